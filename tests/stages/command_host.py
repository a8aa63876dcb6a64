"""A queue of controller commands that a test drives: the queue's host, and a cluster of plain values."""

from __future__ import annotations

from typing import Any

from kraft.control import (
    AdminRequest,
    AllocateProducerIds,
    AlterPartition,
    BrokerHeartbeat,
    Context,
    Decision,
    FenceBrokers,
    FenceCause,
    FenceTarget,
)
from kraft.control.commands import PartitionProposal, ProposedMember
from kraft.controller.command_queue import CommandQueue, CommandWaiter
from kraft.wire.api_keys import ApiKey
from tests.controller.fake_quorum import FakeQuorum
from tests.stages.admin_requests import new_topic
from tests.stages.decided_cluster import Cluster


class HandClock:
    """A clock that does not move, or that advances by a fixed amount at each reading."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.step_ns = 0

    def monotonic_ns(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns


class Host:
    """The controller as the command queue needs it, over a cluster of plain values."""

    def __init__(self, *, at_once: bool = False, partitions: int = 0) -> None:
        self.quorum = FakeQuorum(at_once=at_once)
        self.cluster = Cluster()
        self.cluster.add_brokers(1, 2, 3)
        if partitions:
            self.cluster.add_topic("orders", *[(1, 2, 3)] * partitions)
        self.quorum.values = [b""] * self.cluster.image.offset
        self.quorum.high_watermark = self.cluster.image.offset
        self.clock = HandClock()
        self.queue = CommandQueue(self.quorum, self, self.clock)  # type: ignore[arg-type]
        self.queue.activate(self.cluster.image, 1, self.quorum.high_watermark)
        self.told: list[Any] = []
        self.commands: list[Any] = []
        self.waiting = 0
        self.troubles: list[tuple[Any, type[Exception]]] = []

    def context(self) -> Context:
        self.cluster.being_fenced = self.queue.brokers_being_fenced()
        context = self.cluster.context()
        return Context(
            **{
                **{name: getattr(context, name) for name in context.__dataclass_fields__},
                "next_offset": self.quorum.log_end_offset,
            }
        )

    def appended(self, prepared: Any) -> None:
        """Do nothing, because no image is prepared here."""

    def decided(self, command: Any, decision: Decision) -> None:
        self.commands.append(command)

    def shutdown_offset(self, effect: Any) -> None:
        self.told.append(effect)

    def work_available(self) -> None:
        self.waiting += 1

    def failed(self, command: Any, problem: Exception) -> None:
        self.troubles.append((command, type(problem)))

    def submit(self, command: Any, name: str) -> None:
        def tell(told: Any) -> None:
            self.told.append((name, told))

        self.queue.submit(command, CommandWaiter(tell, lambda: tell("lost"), tell))

    def commit(self, end_offset: int | None = None) -> None:
        self.quorum.commit(end_offset)
        self.queue.high_watermark_reached(self.quorum.high_watermark)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.told]

    def block(self) -> AllocateProducerIds:
        return AllocateProducerIds(broker_id=1, broker_epoch=self.cluster.epoch(1))

    def fence(self, broker_id: int) -> FenceBrokers:
        session = self.cluster.sessions[broker_id]
        target = FenceTarget(broker_id, session.broker_epoch, session.connection_number)
        return FenceBrokers(targets=(target,), cause=FenceCause.PROCESS_DIED)

    def shut_down(self, broker_id: int) -> BrokerHeartbeat:
        return BrokerHeartbeat(
            broker_id=broker_id,
            broker_epoch=self.cluster.epoch(broker_id),
            metadata_offset=self.cluster.image.offset,
            want_shut_down=True,
        )

    def join(self, broker_id: int) -> AlterPartition:
        """Let the leader of the first partition propose this broker for the ISR."""
        assert self.queue.image is not None
        topic = self.queue.image.topics.get("orders")
        assert topic is not None
        state = topic.partition(0)
        proposal = PartitionProposal(
            topic_id=topic.topic_id,
            partition_id=0,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr=tuple(ProposedMember(member, self.cluster.epoch(member)) for member in (*state.isr, broker_id)),
        )
        epoch = self.cluster.epoch(state.leader)
        return AlterPartition(broker_id=state.leader, broker_epoch=epoch, partitions=(proposal,))


def large(host: Host, *names: str, partitions: int = 5_000) -> AdminRequest:
    """Return a CreateTopics command with topics that have very many partitions."""
    return host.cluster.admin_request(ApiKey.CREATE_TOPICS, topics=[new_topic(name, partitions, 3) for name in names])


def run_out(host: Host) -> int:
    """Run the queue until it is empty. Return the number of steps."""
    steps = 0
    while host.queue.run_next():
        steps += 1
    return steps


def is_fenced(host: Host, broker_id: int) -> bool:
    assert host.queue.image is not None
    return host.queue.image.brokers[broker_id].fenced


def partitions_of(host: Host, broker_id: int) -> int:
    """Return the number of partitions of the first topic in which this broker is in sync."""
    topic = None if host.queue.image is None else host.queue.image.topics.get("orders")
    assert topic is not None
    return sum(broker_id in state.isr for _, state in topic.partitions())
