"""LeaderState: a leader's view of its followers, and the high watermark and in-sync set computed from it. Times are
monotonic ms.

Invariants:
- the high watermark never decreases. It never exceeds the log end of any in-sync member (of the maximal set) or of a
  replica about to join. It does not move while the committed set has fewer members than the effective
  min.insync.replicas (KIP-966);
- a follower's progress is its fetch offset: it has everything below that offset;
- a replica is proposed for the in-sync set only when no change is pending, and only once it has reached the high
  watermark and the start of this leader's epoch, in its current incarnation;
- the leader neither waits for nor proposes a replica that the controller removed from the set, until the registered
  brokers change or the timer fires. The controller removes a broker from its partitions before it fences the broker or
  records its shutdown, and rejects proposals of the broker until then;
- the leader neither waits for nor proposes a replica whose log directory is offline: the replica may no longer have the
  records that it reported.
Source: KIP-497, KIP-903, KIP-966, Kafka's Partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kraft.broker.replica.isr import AnswerVerdict, InSyncSet, IsrAnswer, IsrChange, IsrProposal
from kraft.image.partitions import PartitionState, RecoveryState
from kraft.image.registrations import LOST_DIRECTORY
from kraft.wire.error_codes import ErrorCode

UNKNOWN_OFFSET = -1
NEVER_MS = -(2**62)
UNKNOWN_BROKER_EPOCH = -1
NO_BROKERS: frozenset[int] = frozenset()


class LeaderEffects(NamedTuple):
    """The actions after an input, in this order: wake requests that wait for the high watermark, then send the
    proposal."""

    high_watermark_moved: bool = False
    proposal: IsrProposal | None = None


NOTHING = LeaderEffects()
MOVED = LeaderEffects(high_watermark_moved=True)


class FollowerProgress:
    """The leader's knowledge of one follower's progress."""

    __slots__ = (
        "broker_epoch",
        "end_offset",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_then",
        "log_start_offset",
    )

    def __init__(self, *, last_caught_up_ms: int) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_caught_up_ms = last_caught_up_ms
        self.last_fetch_ms = NEVER_MS
        self.leader_end_then = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_BROKER_EPOCH

    def fetched(self, fetch_offset: int, log_start: int, leader_end: int, now_ms: int, broker_epoch: int) -> None:
        """Record a fetch from `fetch_offset`. The leader's log ended at `leader_end` when that fetch was read."""
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.leader_end_then:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = fetch_offset
        self.log_start_offset = log_start
        self.leader_end_then = leader_end
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end: int, now_ms: int, lag_ms_max: int) -> bool:
        """Return whether the follower has reached the leader's log end now or within the last `lag_ms_max`."""
        return self.end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_ms_max


class LeaderState:
    """Leader state of one partition in one leader epoch. Parameters named `eligible` map the ids of brokers that may
    join an in-sync set (unfenced, not shutting down) to their broker epochs."""

    __slots__ = (
        "alone",
        "effective_min_isr",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "isr",
        "lag_ms_max",
        "leader_epoch",
        "local_id",
        "log_end_offset",
        "min_isr",
        "offline",
        "own_acked_offset",
        "recovering",
        "removed_by_controller",
        "replicas",
    )

    def __init__(
        self,
        local_id: int,
        state: PartitionState,
        *,
        log_end_offset: int,
        own_acked_offset: int,
        high_watermark: int,
        min_isr: int,
        lag_ms_max: int,
        now_ms: int,
        removed_by_controller: frozenset[int] = NO_BROKERS,
        offline: frozenset[int] = NO_BROKERS,
    ) -> None:
        """Begin to lead in `state.leader_epoch`, whose first record will be at `log_end_offset`.

        `own_acked_offset` is the end of the records that the leader itself acknowledges: its log end, or its synced end
        if each append must be synced. `removed_by_controller` are the replicas that the controller removed from the
        in-sync set with this change. `offline` are replicas in offline log directories; they may not join, whatever
        they reported."""
        self.local_id = local_id
        self.leader_epoch = state.leader_epoch
        self.epoch_start_offset = log_end_offset
        self.log_end_offset = log_end_offset
        self.own_acked_offset = own_acked_offset
        self.high_watermark = high_watermark
        self.min_isr = min_isr
        self.lag_ms_max = lag_ms_max
        self.isr = InSyncSet(state.isr, state.partition_epoch)
        self.removed_by_controller = removed_by_controller
        self.offline = offline
        self.followers: dict[int, FollowerProgress] = {}
        self._take_assignment(state, now_ms)

    # metadata

    def metadata_changed(
        self, state: PartitionState, now_ms: int, eligible: Mapping[int, int], offline: frozenset[int] = NO_BROKERS
    ) -> LeaderEffects:
        """Apply a newer partition epoch in the same leader epoch. Followers keep their progress, and a pending change
        is decided. If an AlterPartition response has already delivered this partition epoch, the pending change stays,
        because it was proposed after that response."""
        self.offline = offline
        if state.partition_epoch > self.isr.partition_epoch:
            self._take_newer(state, now_ms)
        return self._effects(now_ms, eligible)

    def _take_newer(self, state: PartitionState, now_ms: int) -> None:
        gone, asked = self.isr.committed.difference(state.isr), self.isr.pending
        for broker_id in gone:
            if state.directory_of(broker_id) == LOST_DIRECTORY:  # the records that it reported were lost with its log
                self.followers.pop(broker_id, None)
        self.removed_by_controller |= removed_from_isr(
            gone if asked is None else gone & asked.ids, state
        )  # but not the replicas that this leader itself removed
        self.removed_by_controller = self.removed_by_controller.intersection(state.replicas)
        self.isr.commit(state.isr, state.partition_epoch)
        self._take_assignment(state, now_ms)

    def min_isr_changed(self, min_isr: int, now_ms: int, eligible: Mapping[int, int]) -> LeaderEffects:
        """Apply a new value of min.insync.replicas. The high watermark may be able to move."""
        self.min_isr = min_isr
        self.effective_min_isr = min(min_isr, len(self.replicas))
        return self._effects(now_ms, eligible)

    def _take_assignment(self, state: PartitionState, now_ms: int) -> None:
        self.replicas = state.replicas
        self.recovering = state.leader_recovery_state == RecoveryState.RECOVERING
        self.effective_min_isr = min(self.min_isr, len(state.replicas))
        others = [broker_id for broker_id in state.replicas if broker_id != self.local_id]
        for gone in self.followers.keys() - set(others):
            del self.followers[gone]
        for broker_id in others:
            if broker_id not in self.followers:
                since = now_ms if broker_id in self.isr.committed else NEVER_MS
                self.followers[broker_id] = FollowerProgress(last_caught_up_ms=since)
        self._note_alone()

    # inputs

    def appended(self, log_end_offset: int, own_acked_offset: int, now_ms: int, eligible: Mapping[int, int]) -> bool:
        """Record that the log now ends at `log_end_offset`. Return whether the high watermark moved.

        Followers fetch from this leader, so while a follower is in sync, the leader's own log end never holds the high
        watermark back. If appends must be synced, `synced` moves the leader's acked offset."""
        self.log_end_offset = log_end_offset
        if own_acked_offset == self.own_acked_offset:
            return False
        self.own_acked_offset = own_acked_offset
        return self.alone and self._advance(now_ms, eligible)

    def synced(self, own_acked_offset: int, now_ms: int, eligible: Mapping[int, int]) -> bool:
        """Record that the disk holds everything below `own_acked_offset`. Return whether the high watermark moved."""
        self.own_acked_offset = own_acked_offset
        return self._advance(now_ms, eligible)

    def knows_incarnation(self, replica_id: int, broker_epoch: int) -> bool:
        """Return False if the fetch comes from an older incarnation than the latest fetch."""
        progress = self.followers.get(replica_id)
        return progress is None or broker_epoch < 0 or broker_epoch >= progress.broker_epoch

    def fetched(
        self,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        leader_end: int,
        now_ms: int,
        broker_epoch: int,
        eligible: Mapping[int, int],
    ) -> LeaderEffects:
        """Record a fetch from `fetch_offset` in this leader epoch: the follower has everything below that offset. The
        leader's log ended at `leader_end` when the fetch was read."""
        progress = self.followers.get(replica_id)
        if progress is None:
            return NOTHING
        progress.fetched(fetch_offset, log_start_offset, leader_end, now_ms, broker_epoch)
        proposal = None
        if replica_id not in self.isr.maximal:
            proposal = self._propose_expand(replica_id, progress, eligible)
        if fetch_offset > self.high_watermark and self._advance(now_ms, eligible):
            return LeaderEffects(True, proposal) if proposal is not None else MOVED
        return NOTHING if proposal is None else LeaderEffects(False, proposal)

    def was_caught_up(self, replica_id: int, offset: int, at_ms: int) -> None:
        """Record that the follower which last reported `offset` sent a request at `at_ms`, when the leader's log ended
        at `offset`."""
        progress = self.followers.get(replica_id)
        if progress is not None and progress.end_offset == offset:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, at_ms)

    def brokers_changed(
        self, now_ms: int, eligible: Mapping[int, int], offline: frozenset[int] = NO_BROKERS
    ) -> LeaderEffects:
        """Apply a change of the registered brokers. The controller has finished with the brokers that it removed from
        the in-sync set, so they may join again. The leader no longer waits for brokers that may not join. Both are
        checked here, because an idle follower sends nothing that would cause another check."""
        self.removed_by_controller = NO_BROKERS
        self.offline = offline
        proposal = self.eligible_changed(eligible)
        return LeaderEffects(self._advance(now_ms, eligible), proposal)

    def eligible_changed(self, eligible: Mapping[int, int]) -> IsrProposal | None:
        """Propose replicas that caught up while they were not eligible, or while another proposal was pending. An idle
        follower does not trigger the proposal, because its fetch session no longer names an unchanged partition."""
        if self.isr.pending is not None or len(self.isr.committed) == len(self.replicas):
            return None
        joining = {
            replica_id
            for replica_id, progress in self.followers.items()
            if replica_id not in self.isr.committed and self._may_join(replica_id, progress, eligible)
        }
        return self._propose(IsrChange.EXPAND, self.isr.committed | joining) if joining else None

    def check_lag(self, now_ms: int) -> IsrProposal | None:
        """Handle the in-sync timer: propose to remove members that have not caught up for `lag_ms_max`, and report that
        an unclean election is recovered."""
        if self.isr.pending is not None:
            return None
        lagging = {
            broker_id
            for broker_id, progress in self.followers.items()
            if broker_id in self.isr.committed
            and not progress.is_caught_up(self.log_end_offset, now_ms, self.lag_ms_max)
        }
        if lagging:
            return self._propose(IsrChange.SHRINK, self.isr.committed - lagging)
        return self._propose(IsrChange.RECOVER, self.isr.committed) if self.recovering else None

    def readmit_removed(self, now_ms: int, eligible: Mapping[int, int]) -> IsrProposal | None:
        """Handle the timer for removed replicas: allow replicas that the controller removed and that are caught up to
        join again, and propose them. The controller may have abandoned its plan to fence them."""
        keep_up = {
            broker_id
            for broker_id in self.removed_by_controller.intersection(self.followers)
            if self.followers[broker_id].is_caught_up(self.log_end_offset, now_ms, self.lag_ms_max)
        }
        self.removed_by_controller -= keep_up
        return self.eligible_changed(eligible) if keep_up else None

    def answered(
        self, proposal: IsrProposal, answer: IsrAnswer, now_ms: int, eligible: Mapping[int, int]
    ) -> tuple[AnswerVerdict, bool]:
        """Apply the controller's response to `proposal`. Return the verdict, and whether the high watermark moved."""
        verdict = self.isr.answered(proposal, answer)
        if verdict is AnswerVerdict.COMMITTED:
            self.recovering = False
        if verdict not in (AnswerVerdict.COMMITTED, AnswerVerdict.REVERTED):
            return verdict, False
        self._note_alone()
        return verdict, self._advance(now_ms, eligible)

    # queries

    @property
    def has_enough_replicas(self) -> bool:
        """Whether the in-sync set is large enough to admit a produce with acks=all."""
        return len(self.isr.committed) >= self.effective_min_isr

    def acknowledgement_error(self) -> ErrorCode:
        """Return the error code for a produce request whose last record is below the high watermark; NONE if it
        succeeded."""
        if self.effective_min_isr <= len(self.isr.maximal):
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def has_not_reported(self, replica_id: int) -> bool:
        """Return whether this is a follower whose log end offset is unknown, because it has not fetched yet or its log
        was lost."""
        progress = self.followers.get(replica_id)
        return progress is not None and progress.end_offset == UNKNOWN_OFFSET

    def low_watermark(self, log_start_offset: int, alive: Mapping[int, int]) -> int:
        """Return the lowest log start offset of this replica and its live followers; -1 if one of the offsets is
        unknown."""
        return min(
            [log_start_offset]
            + [progress.log_start_offset for broker_id, progress in self.followers.items() if broker_id in alive]
        )

    # internals

    def _note_alone(self) -> None:
        """Update `alone`: whether no follower is in sync, so that only the leader's own log end holds the high
        watermark back."""
        self.alone = self.isr.maximal == {self.local_id}

    def _effects(self, now_ms: int, eligible: Mapping[int, int]) -> LeaderEffects:
        return MOVED if self._advance(now_ms, eligible) else NOTHING

    def _advance(self, now_ms: int, eligible: Mapping[int, int]) -> bool:
        if len(self.isr.committed) < self.effective_min_isr:
            return False
        least = self.own_acked_offset
        maximal = self.isr.maximal
        for broker_id, progress in self.followers.items():
            if progress.end_offset < least and (
                broker_id in maximal or self._is_about_to_join(broker_id, progress, now_ms, eligible)
            ):
                least = progress.end_offset
        if least <= self.high_watermark:
            return False
        self.high_watermark = least
        return True

    def _is_about_to_join(
        self, broker_id: int, progress: FollowerProgress, now_ms: int, eligible: Mapping[int, int]
    ) -> bool:
        """Return whether the replica is about to join the in-sync set. The high watermark must not pass its log end."""
        return (
            broker_id not in self.removed_by_controller
            and broker_id not in self.offline
            and progress.is_caught_up(self.log_end_offset, now_ms, self.lag_ms_max)
            and _is_eligible(broker_id, progress.broker_epoch, eligible)
        )

    def _propose_expand(
        self, replica_id: int, progress: FollowerProgress, eligible: Mapping[int, int]
    ) -> IsrProposal | None:
        if self.isr.pending is not None or not self._may_join(replica_id, progress, eligible):
            return None
        return self._propose(IsrChange.EXPAND, self.isr.committed | {replica_id})

    def _may_join(self, replica_id: int, progress: FollowerProgress, eligible: Mapping[int, int]) -> bool:
        return (
            replica_id not in self.removed_by_controller
            and replica_id not in self.offline
            and progress.end_offset >= self.high_watermark
            and progress.end_offset >= self.epoch_start_offset
            and _is_eligible(replica_id, progress.broker_epoch, eligible)
        )

    def _propose(self, change: IsrChange, ids: frozenset[int]) -> IsrProposal:
        members = tuple((broker_id, self._epoch_of(broker_id)) for broker_id in sorted(ids))
        proposal = IsrProposal(change, members, self.leader_epoch, self.isr.partition_epoch)
        self.isr.propose(proposal)
        self._note_alone()
        return proposal

    def _epoch_of(self, broker_id: int) -> int:
        progress = self.followers.get(broker_id)
        return UNKNOWN_BROKER_EPOCH if progress is None else progress.broker_epoch


def removed_from_isr(gone: Iterable[int], state: PartitionState) -> frozenset[int]:
    """Return the replicas in `gone` that the controller may be about to fence: `state` removed them from the in-sync
    set, but they are still replicas and have their logs."""
    return frozenset(one for one in gone if one in state.replicas and state.directory_of(one) != LOST_DIRECTORY)


def _is_eligible(broker_id: int, broker_epoch: int, eligible: Mapping[int, int]) -> bool:
    current = eligible.get(broker_id)
    return current is not None and broker_epoch in (current, UNKNOWN_BROKER_EPOCH)
