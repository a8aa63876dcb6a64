"""The line of commands: replies wait for the high watermark, and nothing uncommitted outlives leadership."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.control import (
    AdminRequest,
    AllocateProducerIds,
    AlterPartition,
    BrokerHeartbeat,
    Context,
    Decision,
    ElectLeaderless,
    FenceBrokers,
    FenceCause,
    FenceTarget,
)
from kraft.control.commands import PartitionProposal, ProposedMember
from kraft.control.decide import COMMANDS
from kraft.image import BatchBuilder, MetadataImage, digest, replay
from kraft.image.events import decode_event
from kraft.node import controller_commands as module
from kraft.node.controller_commands import CommandLine, Waiter
from kraft.seam import InvariantError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.control.cluster import Cluster
from tests.control.requests import new_topic
from tests.controller.fake_quorum import FakeQuorum


class HandClock:
    """Stands still, or goes on by so much with each look at it."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.step_ns = 0

    def monotonic_ns(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns


class Host:
    """A controller's side of the line, with a cluster of plain values behind it."""

    def __init__(self, *, at_once: bool = False, partitions: int = 0) -> None:
        self.quorum = FakeQuorum(at_once=at_once)
        self.cluster = Cluster()
        self.cluster.add_brokers(1, 2, 3)
        if partitions:
            self.cluster.add_topic("orders", *[(1, 2, 3)] * partitions)
        self.quorum.values = [b""] * self.cluster.image.offset
        self.quorum.high_watermark = self.cluster.image.offset
        self.clock = HandClock()
        self.line = CommandLine(self.quorum, self, self.clock)  # type: ignore[arg-type]
        self.line.activate(self.cluster.image, 1, self.quorum.high_watermark)
        self.told: list[Any] = []
        self.commands: list[Any] = []
        self.waiting = 0
        self.troubles: list[tuple[Any, type[Exception]]] = []

    def context(self) -> Context:
        self.cluster.being_fenced = self.line.brokers_being_fenced()
        context = self.cluster.context()
        return Context(
            **{
                **{name: getattr(context, name) for name in context.__dataclass_fields__},
                "next_offset": self.quorum.log_end_offset,
            }
        )

    def appended(self, prepared: Any) -> None:
        """Nobody prepares for it here."""

    def decided(self, command: Any, decision: Decision) -> None:
        self.commands.append(command)

    def shutdown_offset(self, effect: Any) -> None:
        self.told.append(effect)

    def work_waits(self) -> None:
        self.waiting += 1

    def failed(self, command: Any, problem: Exception) -> None:
        self.troubles.append((command, type(problem)))

    def submit(self, command: Any, name: str) -> None:
        def tell(told: Any) -> None:
            self.told.append((name, told))

        self.line.submit(command, Waiter(tell, lambda: tell("lost"), tell))

    def commit(self, end_offset: int | None = None) -> None:
        self.quorum.commit(end_offset)
        self.line.high_watermark_reached(self.quorum.high_watermark)

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
        """The leader of the first partition proposes this broker beside the in-sync replicas."""
        assert self.line.image is not None
        topic = self.line.image.topics.get("orders")
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


def test_a_reply_waits_until_its_events_are_committed() -> None:
    host = Host()
    host.submit(host.block(), "first")
    assert host.told == []
    host.commit()
    assert host.names == ["first"]


def test_a_reply_without_events_waits_for_what_it_has_read() -> None:
    host = Host()
    host.submit(host.block(), "writes")
    host.submit(ElectLeaderless(), "reads what is pending")
    assert host.told == []
    host.commit()
    assert host.names == ["writes", "reads what is pending"]


def test_a_reply_that_depends_on_nothing_pending_leaves_at_once() -> None:
    host = Host()
    host.submit(ElectLeaderless(), "reads")
    assert host.names == ["reads"]


def test_replies_leave_in_order_and_only_as_far_as_the_high_watermark() -> None:
    host = Host()
    ends = []
    for name in ("a", "b", "c"):
        host.submit(host.block(), name)
        ends.append(host.quorum.log_end_offset)
    host.commit(ends[1])
    assert host.names == ["a", "b"]
    host.commit(ends[2])
    assert host.names == ["a", "b", "c"]


def test_the_next_command_sees_what_is_not_committed_yet() -> None:
    host = Host()
    host.submit(host.block(), "first")
    host.submit(host.block(), "second")
    host.commit()
    assert [reply.first_producer_id for _, reply in host.told] == [0, 1000]


def test_the_speculative_image_is_the_committed_one_plus_what_is_appended() -> None:
    host = Host(partitions=5)
    before = host.cluster.image
    host.submit(host.fence(1), "fence")
    host.submit(host.block(), "block")
    appended = [decode_event(value) for value in host.quorum.values[before.offset :]]
    assert host.line.image is not None
    expected = replay(before, appended, host.quorum.log_end_offset, 1)
    assert digest(host.line.image) == digest(expected)


def test_losing_leadership_drops_what_is_pending_and_fails_who_waits() -> None:
    host = Host(partitions=1_500)
    host.submit(host.block(), "committed")
    host.commit()
    host.submit(host.block(), "pending")
    host.submit(host.fence(1), "plan")
    assert host.waiting == 1
    host.line.deactivate()
    assert host.told[1:] == [("pending", "lost"), ("plan", "lost")]
    assert host.line.image is None
    assert not host.line.run_next()
    host.submit(host.block(), "later")
    assert host.told[-1] == ("later", "lost")


def test_a_new_leadership_starts_from_the_committed_image() -> None:
    host = Host()
    host.submit(host.block(), "lost")
    host.line.deactivate()
    host.quorum.truncate()
    host.line.activate(host.cluster.image, 2, host.quorum.high_watermark)
    host.submit(host.block(), "again")
    host.commit()
    assert host.told[-1][1].first_producer_id == 0


def test_an_append_that_is_refused_fails_the_command_alone() -> None:
    host = Host()
    host.quorum.is_leader = False
    host.submit(host.block(), "refused")
    assert host.told == [("refused", "lost")]
    assert host.line.image is host.cluster.image
    assert host.commands == []


def test_an_offset_that_differs_from_what_was_decided_is_a_broken_invariant() -> None:
    host = Host()
    host.quorum.on_append = lambda: host.quorum.values.append(b"somebody else")
    with pytest.raises(InvariantError, match="decided for offset"):
        host.submit(host.block(), "surprised")


def test_a_plan_runs_slice_by_slice_with_other_commands_in_between() -> None:
    host = Host(at_once=True, partitions=1_250)
    host.submit(host.fence(1), "plan")
    assert (host.waiting, host.told) == (1, [])
    assert host.line.brokers_being_fenced() == frozenset((1,))
    host.submit(host.block(), "in between")
    assert host.line.run_next()
    assert host.line.run_next()
    assert not host.line.run_next()
    host.line.high_watermark_reached(host.quorum.high_watermark)
    assert host.names == ["in between", "plan"]
    assert host.line.brokers_being_fenced() == frozenset()
    assert host.line.image is not None
    assert host.line.image.brokers[1].fenced


def test_a_broker_that_shuts_down_joins_no_isr_while_its_plan_runs() -> None:
    """Between two slices it is active by the image still, and not eligible for anything."""
    host = Host(at_once=True, partitions=1_500)
    host.submit(host.shut_down(1), "plan")
    assert host.line.brokers_being_fenced() == frozenset((1,))
    host.submit(host.join(1), "join")
    host.line.high_watermark_reached(host.quorum.high_watermark)
    (refused,) = host.told[-1][1].partitions
    assert refused.error_code is ErrorCode.INELIGIBLE_REPLICA
    assert host.line.run_next()
    assert not host.line.run_next()
    assert host.line.image is not None
    assert not host.line.image.is_active(1)
    assert host.line.brokers_being_fenced() == frozenset()


def test_a_broker_that_shuts_down_is_answered_behind_the_first_slice_of_its_plan_and_whenever_it_asks_again() -> None:
    """It takes a controller that says nothing for two seconds for dead, and a plan over very many takes longer."""
    host = Host(partitions=2_500)
    host.submit(host.shut_down(1), "stop")
    assert [name for name in host.told if isinstance(name, tuple)] == []
    host.commit()
    (first,) = [told[1] for told in host.told if isinstance(told, tuple)]
    assert not first.should_shut_down
    assert host.line.brokers_being_fenced() == frozenset((1,))
    host.submit(host.shut_down(1), "again")
    assert host.line.run_next()
    host.commit()
    assert [told[0] for told in host.told if isinstance(told, tuple)] == ["stop", "again"]
    while host.line.run_next():
        host.commit()
    assert host.line.image is not None
    assert not host.line.image.is_active(1)


def test_the_reply_of_a_plan_waits_for_its_last_slice_to_commit() -> None:
    host = Host(partitions=750)
    host.submit(host.fence(1), "plan")
    host.commit()
    assert host.told == []
    host.line.run_next()
    assert host.told == []
    host.commit()
    assert host.names == ["plan"]


def test_a_plan_waits_while_much_that_it_appended_is_not_committed() -> None:
    host = Host(partitions=3_000)
    host.submit(host.fence(1), "plan")
    assert host.line.run_next()
    assert host.line.run_next()
    assert not host.line.run_next(), "three slices of 500 are under way"
    host.submit(host.block(), "other")
    assert host.quorum.log_end_offset - host.quorum.high_watermark == 1_501
    waiting = host.waiting
    host.commit(host.quorum.high_watermark + 1_000)
    assert host.waiting > waiting
    assert host.line.run_next()
    host.commit()
    assert host.names == ["other"]


# steps


def large(host: Host, *names: str, partitions: int = 5_000) -> AdminRequest:
    """CreateTopics of very large topics."""
    return host.cluster.admin_request(ApiKey.CREATE_TOPICS, topics=[new_topic(name, partitions, 3) for name in names])


def run_out(host: Host) -> int:
    """Run all that waits; how many steps that was."""
    steps = 0
    while host.line.run_next():
        steps += 1
    return steps


def test_a_very_large_topic_has_the_line_to_itself_until_it_is_there_as_a_whole() -> None:
    host = Host(at_once=True)
    before = host.quorum.log_end_offset
    host.submit(large(host, "orders"), "large")
    host.submit(host.block(), "first")
    host.submit(host.block(), "second")
    while host.quorum.log_end_offset == before:
        assert host.line.is_taken
        assert host.told == []
        assert host.line.image is host.cluster.image
        assert host.line.run_next()
    assert [one.next_offset - one.base_offset for one in host.quorum.batches] == [5_001]
    run_out(host)
    assert not host.line.is_taken
    host.line.high_watermark_reached(host.quorum.high_watermark)
    assert host.names == ["large", "first", "second"]
    assert [reply.first_producer_id for _, reply in host.told[1:]] == [0, 1000]
    assert host.line.image is not None
    appended = [decode_event(value) for value in host.quorum.values[before:]]
    expected = replay(host.cluster.image, appended, host.quorum.log_end_offset, 1)
    assert digest(host.line.image) == digest(expected)


def count_taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each step from now on adds to a batch."""
    taken: list[int] = []
    honest = BatchBuilder.take

    def take(self: BatchBuilder, events_max: int) -> bool:
        before = len(self.values)
        done = honest(self, events_max)
        taken.append(len(self.values) - before)
        return done

    monkeypatch.setattr(BatchBuilder, "take", take)
    return taken


def test_no_step_of_a_very_large_topic_takes_more_events_than_a_step_may(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = count_taken(monkeypatch)
    host = Host(at_once=True)
    host.submit(large(host, "orders"), "large")
    assert run_out(host) > 5
    assert sum(taken) == 5_001
    assert max(taken) <= module.EVENTS_PER_STEP_MAX


def test_a_very_large_batch_is_appended_in_a_step_that_replays_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = count_taken(monkeypatch)
    host = Host(at_once=True)
    end = host.quorum.log_end_offset
    host.submit(large(host, "orders"), "large")
    while host.quorum.log_end_offset == end:
        taken.clear()
        assert host.line.run_next()
    assert taken == [0]


def test_plans_wait_for_what_has_the_line() -> None:
    host = Host(at_once=True, partitions=600)
    host.submit(host.fence(1), "plan")
    host.submit(large(host, "large"), "large")
    run_out(host)
    host.line.high_watermark_reached(host.quorum.high_watermark)
    assert host.names == ["large", "plan"]
    large_topic = host.line.image.topics.get("large")  # type: ignore[union-attr]
    assert large_topic is not None
    assert all(1 not in state.isr for _, state in large_topic.partitions()), "1 was being fenced"


@pytest.mark.parametrize("steps", [0, 3, 5])
def test_losing_leadership_fails_what_has_the_line_and_who_waits_for_it(steps: int) -> None:
    host = Host()
    host.submit(large(host, "orders"), "large")
    host.submit(host.block(), "waits")
    for _ in range(steps):
        assert host.line.run_next()
    assert host.line.is_taken
    host.line.deactivate()
    assert host.told == [("large", "lost"), ("waits", "lost")]
    assert not host.line.is_taken
    assert not host.line.run_next()
    assert host.quorum.log_end_offset == host.quorum.high_watermark


def test_a_record_of_the_quorum_between_two_steps_has_the_batch_decided_again() -> None:
    host = Host(at_once=True)
    host.submit(large(host, "orders"), "large")
    for _ in range(5):
        assert host.line.run_next()
    host.quorum.append([b"a record of the quorum"])
    run_out(host)
    host.line.high_watermark_reached(host.quorum.high_watermark)
    ((_, reply),) = host.told
    assert reply.topics[0].error_code is ErrorCode.NONE
    assert [one.next_offset - one.base_offset for one in host.quorum.batches] == [1, 5_001]


def test_the_trouble_of_a_command_that_waited_is_its_own() -> None:
    host = Host(at_once=True)
    host.submit(large(host, "orders"), "large")
    host.submit("no command", "trouble")
    host.submit(host.block(), "fine")
    run_out(host)
    host.line.high_watermark_reached(host.quorum.high_watermark)
    assert host.told[0] == ("trouble", ErrorCode.UNKNOWN_SERVER_ERROR)
    assert host.names[1:] == ["large", "fine"]
    assert host.troubles == [("no command", KeyError)]


# shares of the line


def is_fenced(host: Host, broker_id: int) -> bool:
    assert host.line.image is not None
    return host.line.image.brokers[broker_id].fenced


def partitions_of(host: Host, broker_id: int) -> int:
    """In how many partitions of the first topic the broker is in sync."""
    topic = None if host.line.image is None else host.line.image.topics.get("orders")
    assert topic is not None
    return sum(broker_id in state.isr for _, state in topic.partitions())


@pytest.mark.parametrize("steps_per_commit", [1, 5])
def test_a_fence_goes_on_while_very_large_topics_are_made_one_after_the_other(steps_per_commit: int) -> None:
    host = Host(partitions=3_000)
    host.submit(host.fence(1), "fence")
    assert partitions_of(host, 1) == 2_500
    host.submit(large(host, "large-0"), "large")
    made = 1
    for step in range(60):
        if host.line.is_taken and not host.line._waiting:
            host.submit(large(host, f"large-{made}"), "large")
            made += 1
        host.line.run_next()
        if step % steps_per_commit == 0:
            host.commit()
    assert is_fenced(host, 1)
    assert host.names.count("large") >= 2, "both get on"
    assert made > host.names.count("large")


def test_plans_and_those_that_wait_take_turns() -> None:
    host = Host(at_once=True, partitions=3_000)
    host.submit(host.fence(1), "fence")
    host.submit(large(host, "large", partitions=1_500), "large")
    for number in range(4):
        host.submit(host.block(), f"block {number}")
    host.clock.step_ns = module.TURN_NS_MAX
    host.commands.clear()
    run_out(host)
    kinds = [type(command).__name__ for command in host.commands]
    begin = kinds.index("AllocateProducerIds")
    assert kinds[begin : begin + 4] == ["AllocateProducerIds", "FenceBrokers"] * 2
    assert kinds.count("AllocateProducerIds") == 4
    assert is_fenced(host, 1)


def test_those_that_wait_let_a_plan_go_first_also_while_it_waits_for_commits() -> None:
    host = Host(partitions=3_000)
    host.submit(host.fence(1), "fence")
    host.submit(large(host, "large"), "large")
    host.submit(host.block(), "waits")
    run_out(host)
    assert partitions_of(host, 1) == 1_500
    assert host.block() not in host.commands
    host.commit()
    run_out(host)
    host.commit()
    run_out(host)
    assert is_fenced(host, 1)
    assert host.block() in host.commands


def test_what_others_have_appended_stops_no_plan() -> None:
    host = Host(partitions=3_000)
    host.submit(host.fence(1), "fence")
    host.submit(large(host, "large"), "large")
    while host.line.is_taken:
        assert host.line.run_next()
    assert host.line.run_next()
    assert host.line.run_next()
    assert partitions_of(host, 1) == 1_500
    assert not host.line.run_next(), "three slices of 500 are under way"


def test_a_plan_that_takes_a_broker_out_comes_before_others() -> None:
    host = Host(at_once=True, partitions=1_200)
    host.submit(large(host, *[f"small-{number}" for number in range(4)], partitions=900), "topics")
    host.submit(host.fence(1), "fence")
    run_out(host)
    host.line.high_watermark_reached(host.quorum.high_watermark)
    assert host.names == ["fence", "topics"]


def test_of_those_that_waited_as_many_are_decided_in_a_step_as_fit_into_a_turn() -> None:
    host = Host(at_once=True)
    host.submit(large(host, "large"), "large")
    for number in range(30):
        host.submit(host.block(), f"block {number}")
    while host.line.is_taken:
        assert host.line.run_next()
    host.clock.step_ns = module.TURN_NS_MAX // 10
    assert host.line.run_next()
    assert host.commands.count(host.block()) == 10
    host.clock.step_ns = 0
    assert host.line.run_next()
    assert host.commands.count(host.block()) == 30
    assert not host.line.run_next()


def test_a_turn_ends_when_a_command_takes_the_line() -> None:
    host = Host(at_once=True)
    for name in ("first", "second"):
        host.submit(large(host, name), name)
    host.submit(host.block(), "block")
    while host.line.is_taken:
        assert host.line.run_next()
    assert host.line.run_next()
    assert host.line.is_taken
    assert host.block() not in host.commands


def test_while_too_many_wait_others_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    host = Host(at_once=True)
    host.submit(large(host, "large"), "large")
    for name in ("first", "second", "third"):
        host.submit(host.block(), name)
    host.line.submit(ElectLeaderless())
    assert host.told == [("third", ErrorCode.REQUEST_TIMED_OUT)]
    run_out(host)
    host.line.high_watermark_reached(host.quorum.high_watermark)
    assert host.names == ["third", "large", "first", "second"]
    assert ElectLeaderless() in host.commands, "the controller's own commands are not turned away"


def test_the_controllers_own_command_comes_before_those_that_wait() -> None:
    host = Host(at_once=True, partitions=5)
    host.submit(large(host, "large"), "large")
    host.submit(host.block(), "waits")
    host.line.submit_first(host.fence(1))
    assert not host.line.brokers_being_fenced(), "what has the line is decided on an image that stays as it is"
    while host.line.is_taken:
        assert host.line.run_next()
    host.line.submit_first(host.fence(2))
    assert host.line.brokers_being_fenced() == {2}, "those that wait keep nobody up"
    assert host.line.run_next()
    assert host.line.brokers_being_fenced() == {1, 2}
    assert host.block() not in host.commands
    run_out(host)
    assert host.block() in host.commands
    assert is_fenced(host, 1)
    assert is_fenced(host, 2)


# trouble


def raising(*_: Any, **__: Any) -> Any:
    raise KeyError("planted")


def test_the_trouble_of_a_command_that_is_decided_at_once_is_told_as_that_of_one_that_waited() -> None:
    host = Host(at_once=True)
    host.submit("no command", "trouble")
    assert host.told == [("trouble", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert host.troubles == [("no command", KeyError)]


def test_trouble_in_a_later_step_is_the_commands_own(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(at_once=True)
    host.submit(large(host, "large"), "large")
    host.submit(host.block(), "fine")
    with monkeypatch.context() as patch:
        patch.setattr(BatchBuilder, "take", raising)
        while host.line.is_taken:
            assert host.line.run_next()
    run_out(host)
    host.line.high_watermark_reached(host.quorum.high_watermark)
    assert host.told[0] == ("large", ErrorCode.UNKNOWN_SERVER_ERROR)
    assert host.names == ["large", "fine"]


def test_trouble_while_a_batch_is_filled_is_the_commands_own(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(at_once=True)
    host.submit(large(host, "large"), "large")
    while not isinstance(host.line._under_way, module._Decided):
        assert host.line.run_next()
    monkeypatch.setattr(BatchBuilder, "take", raising)
    assert host.line.run_next()
    assert host.told == [("large", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert not host.line.is_taken


def test_the_trouble_of_a_plans_slice_is_the_plans_own(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(at_once=True, partitions=1_500)
    host.submit(host.fence(1), "plan")
    with monkeypatch.context() as patch:
        patch.setitem(COMMANDS, FenceBrokers, raising)
        assert host.line.run_next()
    assert host.told == [("plan", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert host.line.brokers_being_fenced() == frozenset()
    assert not host.line.run_next()
    host.submit(host.fence(1), "again")
    run_out(host)
    assert is_fenced(host, 1)


def test_a_reply_that_raises_harms_no_other() -> None:
    host = Host()
    outcomes: list[str] = []

    def reply(_: Any) -> None:
        outcomes.append("reply")
        raising()

    host.line.submit(
        host.block(), Waiter(reply, lambda: outcomes.append("lost"), lambda error: outcomes.append(error.name))
    )
    host.submit(host.block(), "fine")
    host.commit()
    assert outcomes == ["reply", "UNKNOWN_SERVER_ERROR"]
    assert host.names == ["fine"]


def test_a_batch_whose_image_cannot_be_built_is_in_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    end_offset = host.quorum.log_end_offset
    with monkeypatch.context() as patch:
        patch.setattr(BatchBuilder, "build", raising)
        host.submit(host.block(), "trouble")
    assert host.quorum.log_end_offset == end_offset
    assert host.told == [("trouble", ErrorCode.UNKNOWN_SERVER_ERROR)]
    host.submit(host.block(), "fine")
    host.commit()
    assert host.told[-1][1].first_producer_id == 0


@pytest.mark.parametrize("name", ["decided", "appended"])
def test_trouble_behind_the_append_is_a_broken_invariant(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    host = Host()
    monkeypatch.setattr(host, name, raising)
    with pytest.raises(InvariantError, match="may be in the log"):
        host.submit(host.block(), "trouble")
    assert host.told == []


# planted bugs


def reply_on_append(self: CommandLine, parked: Any) -> None:
    """Bug B31: the reply leaves when the events are appended."""
    parked.asked.waiter.reply(parked.reply)


def keep_on_resign(self: CommandLine) -> None:
    """Bug B32: what is not committed survives the loss of leadership."""
    kept = self.image
    honest_deactivate(self)
    self.image = kept


def activate_only_if_empty(self: CommandLine, committed: MetadataImage, epoch: int, high_watermark: int) -> None:
    """The other half of B32."""
    honest_activate(self, self.image or committed, epoch, high_watermark)


honest_deactivate = CommandLine.deactivate
honest_activate = CommandLine.activate


def test_planted_reply_on_append_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.CommandLine, "_park", reply_on_append)
    for notices in (
        test_a_reply_waits_until_its_events_are_committed,
        test_a_reply_without_events_waits_for_what_it_has_read,
        test_the_reply_of_a_plan_waits_for_its_last_slice_to_commit,
    ):
        with pytest.raises(AssertionError):
            notices()


def test_planted_no_rollback_on_resign_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.CommandLine, "deactivate", keep_on_resign)
    with pytest.raises(AssertionError):
        test_losing_leadership_drops_what_is_pending_and_fails_who_waits()
    monkeypatch.setattr(module.CommandLine, "activate", activate_only_if_empty)
    with pytest.raises((AssertionError, InvariantError)):
        test_a_new_leadership_starts_from_the_committed_image()
