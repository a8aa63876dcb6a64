"""Observes a running node without changing it: its quorum state, its published image and its partitions. The share
partitions of a broker are observed by `share_observer`.

Only differences from the last observation are reported. Two spies (wrapped functions) on the active controller record
what a decision named and depended on when it was made. A third spy, on a broker's throttles, records which replicas
they delay. Spies change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kraft.broker.node.serve import Node
from kraft.broker.partition.partition import Partition
from kraft.broker.partition.replication_quota import ReplicationQuota
from kraft.broker.replica.leader import LeaderState
from kraft.control import AlterPartition, Decision, FenceBrokers, FenceCause
from kraft.controller.command_queue import NO_WAITER, CommandWaiter
from kraft.controller.controller import Controller
from kraft.image import MetadataImage
from kraft.image.dump import Digester
from kraft.image.events import PartitionChange
from kraft.image.image import EMPTY_IMAGE
from kraft.image.partitions import PartitionState
from kraft.quorum.publisher import PreparedImage
from kraft.raft.identity import VoterSet
from kraft.raft.raft import Raft
from kraft.raft.state import Leader
from kraft.sim.check.observations import (
    ControllerReplied,
    ImagePublished,
    IsrAccepted,
    Observation,
    PartitionSeen,
    ProposedIsrMember,
    ReplicaThrottled,
    RoleSeen,
    VotersSeen,
)
from kraft.sim.cluster.labels import TopicLabels
from kraft.sim.cluster.share_observer import ShareObserver

NO_NODE = -1


@dataclass(frozen=True, slots=True)
class FenceDecided:
    """A slice of a decision to fence a broker: the broker, and the end offset of the slice's last event. `is_fast`:
    decided because the process died. `is_first`: the first slice of the decision."""

    broker: int
    broker_epoch: int
    connection: int | None
    end_offset: int
    is_fast: bool
    is_first: bool


@dataclass(slots=True)
class _Tag:
    """Offset that the response to a pending request depends on."""

    depends_on: int = 0


@dataclass(slots=True)
class _ObservedPartition:
    """The last observation of a partition. Its values are replaced, never mutated, when something changes."""

    log_end_offset: int
    high_watermark: int
    log_start_offset: int
    recovery_point: int
    state: PartitionState
    leader: LeaderState | None
    maximal: frozenset[int] | None


class NodeObserver:
    """Observes one incarnation of a node."""

    def __init__(
        self,
        node_id: int,
        incarnation: int,
        node: Node,
        tell: Callable[[Observation], None],
        fence_decided: Callable[[int, FenceDecided], None],
        labels: TopicLabels,
    ) -> None:
        self.node = node
        self._id = node_id
        self._incarnation = incarnation
        self._tell = tell
        self._fence_decided = fence_decided
        self._labels = labels
        self._role: RoleSeen | None = None
        self._quorum: tuple[int, bool, int | None, int | None, int, int] | None = None
        self._voters: tuple[int, bool, VoterSet] | None = None
        self._published = 0
        self._digester = Digester()
        self._partitions: dict[Partition, _ObservedPartition] = {}
        self._tags: list[_Tag] = []
        self._decided_on = EMPTY_IMAGE
        """Image on which the active controller based its last decision that produced events."""
        self._shares: ShareObserver | None = None
        if node.controller is not None:
            self._spy(node.controller)
        if node.broker is not None:
            self._shares = ShareObserver(node_id, incarnation, node.broker.broker, tell, labels)
            replicas = node.broker.broker.replicas
            for quota in (replicas.leader_quota, replicas.follower_quota):
                self._spy_throttle(quota)

    # observations

    def quorum_state(self) -> tuple[int, int, int]:
        """Quorum state in the node's memory: (epoch, leader id, voted id)."""
        raft = self.node.quorum.replica
        if raft is None:
            return (0, NO_NODE, NO_NODE)
        voted: Any = raft.voted
        return (raft.epoch, _id(raft.leader_id), NO_NODE if voted is None else voted.node_id)

    def observe_lost_role(self) -> None:
        """Report that a leader has lost its role. Called before the disk is observed, because from then on the node may
        truncate its log."""
        before, raft = self._role, self.node.quorum.replica
        if before is None or not before.is_leader or raft is None or (raft.is_leader and raft.epoch == before.epoch):
            return
        marks = (before.high_watermark, before.log_end_offset, before.log_start_offset)
        self._tell(RoleSeen(self._id, self._incarnation, raft.epoch, False, NO_NODE, raft.is_voter, *marks))

    def observe(self) -> None:
        """Report what changed on the node: the quorum first, then the image, then the partitions."""
        self._observe_quorum()
        self._observe_image()
        if self.node.broker is not None:
            looks = self._partitions
            for partition in self.node.broker.broker.replicas.hosted:
                # Runs for each partition after each round of the event loop. The comparison below is the whole cost of
                # an unchanged one.
                look, log, leader = looks.get(partition), partition.log or partition.readable, partition.leader
                if (
                    look is None
                    or log is None
                    or look.log_end_offset != log.log_end_offset
                    or look.high_watermark != partition.high_watermark
                    or look.log_start_offset != log.log_start_offset
                    or look.recovery_point != log.recovery_point
                    or look.state is not partition.state
                    or look.leader is not leader
                    or (leader is not None and look.maximal is not leader.isr.maximal)
                ):
                    self._observe_partition(partition)
        if self._shares is not None:
            self._shares.report()

    def _observe_quorum(self) -> None:
        raft = self.node.quorum.replica
        if raft is None:
            return
        log = raft.log
        now = (raft.epoch, raft.is_leader, raft.leader_id, raft.high_watermark, log.end_offset, log.start_offset)
        if now == self._quorum:
            return
        self._observe_voters(raft)
        self._quorum = now
        epoch, is_leader, leader_id, high_watermark, end, start = now
        mark = -1 if high_watermark is None else high_watermark
        self._role = RoleSeen(
            self._id, self._incarnation, epoch, is_leader, _id(leader_id), raft.is_voter, mark, end, start
        )
        self._tell(self._role)

    def _observe_voters(self, raft: Raft) -> None:
        """Report a changed voter set. Called before the role is reported, which depends on it."""
        log, history = raft.log, raft.log.voters
        place = (history.latest_offset, raft.is_leader, history.latest)
        if place == self._voters:
            return
        self._voters = place
        role, committed = raft.role, raft.high_watermark
        if isinstance(role, Leader):
            committed = role.high_watermark
        offset = history.latest_offset
        keys = sorted((voter.key.node_id, str(voter.key.directory_id or "")) for voter in history.latest.voters)
        self._tell(
            VotersSeen(
                self._id,
                self._incarnation,
                raft.epoch,
                raft.is_leader,
                offset,
                log.epoch_before(offset + 1) if offset >= 0 else -1,
                tuple(keys),
                -1 if committed is None else committed,
                log.end_offset,
                role.epoch_start_offset if isinstance(role, Leader) else -1,
            )
        )

    def _observe_image(self) -> None:
        image = self.node.publisher.image
        if image.offset != self._published:
            self._published = image.offset
            committed = self.node.quorum.high_watermark
            self._tell(
                ImagePublished(self._id, self._incarnation, image.offset, self._digester.digest(image), committed)
            )

    def _observe_partition(self, partition: Partition) -> None:
        log, state, leader = partition.readable, partition.state, partition.leader
        if log is None or state is None or partition.is_truncating:  # a log is not reported while it is being truncated
            return
        maximal = None if leader is None else leader.isr.maximal
        marks = (log.log_end_offset, partition.high_watermark, log.log_start_offset, log.recovery_point)
        look = _ObservedPartition(*marks, state, leader, maximal)
        self._partitions[partition] = look
        seen = PartitionSeen(
            self._id,
            self._incarnation,
            (self._labels.of(partition.topic_id, partition.topic), partition.index),
            leader is not None,
            state.leader_epoch if leader is None else leader.leader_epoch,
            frozenset(state.isr) if leader is None else leader.isr.committed,
            frozenset() if maximal is None else maximal,
            min(partition.config.min_insync_replicas, len(state.replicas)),
            look.log_start_offset,
            look.high_watermark,
            log.last_stable_offset,
            look.log_end_offset,
            look.recovery_point,
            -1 if leader is None else leader.isr.partition_epoch,
        )
        self._tell(seen)

    # spies

    def _spy(self, controller: Controller) -> None:
        queue = controller.queue
        decided, carry_out, appended = controller.decided, queue._carry_out, controller.appended

        def spy_appended(prepared: PreparedImage) -> None:
            self._decided_on = prepared.before
            appended(prepared)

        def spy_decided(command: Any, decision: Decision) -> None:
            self._decided(controller, command, decision)
            decided(command, decision)

        def spy_carry_out(asked: Any, decision: Decision, end_offset: int) -> None:
            tag = _Tag()
            self._tags.append(tag)
            waiter = asked.waiter
            told = partial(self._replies, tag, waiter)
            spied = waiter if waiter is NO_WAITER else CommandWaiter(told, waiter.lost, waiter.failed)
            try:
                carry_out(replace(asked, waiter=spied), decision, end_offset)
            finally:
                self._tags.remove(tag)

        # Set attributes of the instance; the classes stay unchanged.
        controller.decided = spy_decided  # type: ignore[method-assign]
        controller.appended = spy_appended  # type: ignore[method-assign]
        queue._carry_out = spy_carry_out  # type: ignore[method-assign]

    def _spy_throttle(self, quota: ReplicationQuota) -> None:
        holds_back = quota.holds_back

        def spy(partition: Partition, replica_id: int) -> bool:
            is_held = holds_back(partition, replica_id)
            if is_held:
                place = (self._labels.of(partition.topic_id, partition.topic), partition.index)
                isr = () if partition.state is None else tuple(partition.state.isr)
                self._tell(ReplicaThrottled(self._id, place, replica_id, isr))
            return is_held

        quota.holds_back = spy  # type: ignore[method-assign]

    def _decided(self, controller: Controller, command: Any, decision: Decision) -> None:
        end_offset = controller.quorum.log_end_offset if decision.events else 0
        if self._tags:
            tag = self._tags[-1]
            tag.depends_on = max(tag.depends_on, decision.depends_on, end_offset)
        if isinstance(command, FenceBrokers) and decision.events:
            is_fast, is_first = command.cause is FenceCause.PROCESS_DIED, command.cursor is None
            for target in command.targets:
                self._fence_decided(self._id, FenceDecided(*target, end_offset, is_fast, is_first))
        elif isinstance(command, AlterPartition) and decision.events:
            self._report_accepted(command, decision)

    def _report_accepted(self, command: AlterPartition, decision: Decision) -> None:
        """Report the ISR proposals that a leader made and this controller accepted, with the metadata that the decision
        was based on."""
        image = self._decided_on
        changes = [event for event in decision.events if isinstance(event, PartitionChange)]
        taken = {(change.topic_id, change.partition_id) for change in changes}
        for proposal in command.partitions:
            topic = image.topics.get_by_id(proposal.topic_id)
            state = None if topic is None else topic.find(proposal.partition_id)
            if topic is None or state is None or (proposal.topic_id, proposal.partition_id) not in taken:
                continue
            members = ((command.broker_id, command.broker_epoch), *proposal.new_isr)
            self._tell(
                IsrAccepted(
                    self._id,
                    (self._labels.of(topic.topic_id, topic.name), proposal.partition_id),
                    (command.broker_id, proposal.leader_epoch, proposal.partition_epoch),
                    (state.leader, state.leader_epoch, state.partition_epoch),
                    tuple(_member(image, *member) for member in members),
                )
            )

    def _replies(self, tag: _Tag, waiter: CommandWaiter, reply: Any) -> None:
        self._tell(ControllerReplied(self._id, tag.depends_on, self.node.quorum.high_watermark))
        waiter.reply(reply)


def _member(image: MetadataImage, broker_id: int, asked_epoch: int) -> ProposedIsrMember:
    known = image.brokers.get(broker_id)
    epoch, is_active = (-1, False) if known is None else (known.broker_epoch, known.is_active)
    return ProposedIsrMember(broker_id, asked_epoch, epoch, is_active)


def _id(node_id: int | None) -> int:
    return NO_NODE if node_id is None else node_id
