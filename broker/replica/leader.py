"""LeaderState: what the leader of a partition knows of its followers, and what follows from it. Times are monotonic ms.

Invariants:
- the high watermark only rises, never above an in-sync member's end (maximal set, and a replica that is about to join),
  and not at all while fewer than the effective min.insync.replicas are in the committed set (KIP-966);
- a follower's progress is the offset that it fetches from: it holds everything below;
- a replica is proposed for the in-sync set only at an end that has reached the high watermark and the start of this
  leader's epoch, in its current incarnation, and only when nothing is pending;
- a replica that the controller takes out is neither waited for nor proposed before the brokers change or the timer
  comes: a plan takes a broker out of its partitions before it fences it or records its shutdown, and refuses it until
  then;
- a replica whose log directory is offline is neither waited for nor proposed: it may no longer hold what it reported.
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
NOBODY: frozenset[int] = frozenset()


class LeaderEffects(NamedTuple):
    """What to do after an input, in this order: wake who waits for the high watermark, then send the proposal."""

    high_watermark_moved: bool = False
    proposal: IsrProposal | None = None


NOTHING = LeaderEffects()
MOVED = LeaderEffects(high_watermark_moved=True)


class FollowerProgress:
    """What the leader knows of one follower."""

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
        """It asks from `fetch_offset`; the leader's log ended at `leader_end` when that fetch was read."""
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
        """At the leader's end, or there within the last `lag_ms_max`."""
        return self.end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_ms_max


class LeaderState:
    """One partition in one leader epoch. `eligible` arguments map the ids of brokers that may join an in-sync set
    (unfenced, not shutting down) to their broker epochs."""

    __slots__ = (
        "alone",
        "effective_min_isr",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "isr",
        "lag_ms_max",
        "leader_epoch",
        "left",
        "local_id",
        "log_end_offset",
        "min_isr",
        "offline",
        "own_share",
        "recovering",
        "replicas",
    )

    def __init__(
        self,
        local_id: int,
        state: PartitionState,
        *,
        log_end_offset: int,
        own_share: int,
        high_watermark: int,
        min_isr: int,
        lag_ms_max: int,
        now_ms: int,
        left: frozenset[int] = NOBODY,
        offline: frozenset[int] = NOBODY,
    ) -> None:
        """Begin to lead in `state.leader_epoch`, whose first record will be at `log_end_offset`. `own_share` is how far
        the leader counts itself: its end, or its synced end where each append waits for the disk. `left`: whom the
        controller has taken out of the in-sync set with this change. `offline`: replicas in log directories that are
        offline; whatever they have told us, they may not join."""
        self.local_id = local_id
        self.leader_epoch = state.leader_epoch
        self.epoch_start_offset = log_end_offset
        self.log_end_offset = log_end_offset
        self.own_share = own_share
        self.high_watermark = high_watermark
        self.min_isr = min_isr
        self.lag_ms_max = lag_ms_max
        self.isr = InSyncSet(state.isr, state.partition_epoch)
        self.left = left
        self.offline = offline
        self.followers: dict[int, FollowerProgress] = {}
        self._take_assignment(state, now_ms)

    # metadata

    def metadata_changed(
        self, state: PartitionState, now_ms: int, eligible: Mapping[int, int], offline: frozenset[int] = NOBODY
    ) -> LeaderEffects:
        """A newer partition epoch in the same leader epoch: progress stays, what was pending is decided by it. One that
        an answer has told before decides nothing: what is pending by now was asked behind it."""
        self.offline = offline
        if state.partition_epoch > self.isr.partition_epoch:
            self._take_newer(state, now_ms)
        return self._effects(now_ms, eligible)

    def _take_newer(self, state: PartitionState, now_ms: int) -> None:
        gone, asked = self.isr.committed.difference(state.isr), self.isr.pending
        for broker_id in gone:
            if state.directory_of(broker_id) == LOST_DIRECTORY:  # what it told us is gone with its log
                self.followers.pop(broker_id, None)
        self.left |= taken_out(gone if asked is None else gone & asked.ids, state)  # but not whom we have dropped
        self.left = self.left.intersection(state.replicas)
        self.isr.commit(state.isr, state.partition_epoch)
        self._take_assignment(state, now_ms)

    def min_isr_changed(self, min_isr: int, now_ms: int, eligible: Mapping[int, int]) -> LeaderEffects:
        """min.insync.replicas has another value: the high watermark may be free to move."""
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

    def appended(self, log_end_offset: int, own_share: int, now_ms: int, eligible: Mapping[int, int]) -> bool:
        """The log ends at `log_end_offset` now. True if the high watermark moved. Followers fetch from us, so while one
        of them is in sync our own end never holds the high watermark back (a wait for the disk ends in `synced`).
        """
        self.log_end_offset = log_end_offset
        if own_share == self.own_share:
            return False
        self.own_share = own_share
        return self.alone and self._advance(now_ms, eligible)

    def synced(self, own_share: int, now_ms: int, eligible: Mapping[int, int]) -> bool:
        """The disk holds everything below `own_share`. True if the high watermark moved."""
        self.own_share = own_share
        return self._advance(now_ms, eligible)

    def knows_incarnation(self, replica_id: int, broker_epoch: int) -> bool:
        """False for a fetch of an older incarnation than the last one that fetched."""
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
        """A follower has asked from `fetch_offset` in this leader epoch, so it holds everything below. `leader_end` is
        where our log ended when that fetch was read."""
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
        """A follower that last said `offset` asked at `at_ms`, when there was nothing beyond it."""
        progress = self.followers.get(replica_id)
        if progress is not None and progress.end_offset == offset:
            progress.last_caught_up_ms = max(progress.last_caught_up_ms, at_ms)

    def brokers_changed(
        self, now_ms: int, eligible: Mapping[int, int], offline: frozenset[int] = NOBODY
    ) -> LeaderEffects:
        """The controller has told of brokers: what it meant to do with those that it took out is done. Who may not join
        any more is waited for no longer, and nothing else may ever say so: an idle follower does not."""
        self.left = NOBODY
        self.offline = offline
        proposal = self.eligible_changed(eligible)
        return LeaderEffects(self._advance(now_ms, eligible), proposal)

    def eligible_changed(self, eligible: Mapping[int, int]) -> IsrProposal | None:
        """Propose those that caught up while they were not eligible, or while another proposal was pending: an idle
        follower's session does not name a partition again in which nothing happens."""
        if self.isr.pending is not None or len(self.isr.committed) == len(self.replicas):
            return None
        joining = {
            replica_id
            for replica_id, progress in self.followers.items()
            if replica_id not in self.isr.committed and self._may_join(replica_id, progress, eligible)
        }
        return self._propose(IsrChange.EXPAND, self.isr.committed | joining) if joining else None

    def check_lag(self, now_ms: int) -> IsrProposal | None:
        """The timer: drop members that have not caught up for `lag_ms_max`, and tell that an unclean election is dealt
        with."""
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

    def check_left(self, now_ms: int, eligible: Mapping[int, int]) -> IsrProposal | None:
        """The timer: propose those that the controller took out and that keep up. Its plan may have been given up."""
        keep_up = {
            broker_id
            for broker_id in self.left.intersection(self.followers)
            if self.followers[broker_id].is_caught_up(self.log_end_offset, now_ms, self.lag_ms_max)
        }
        self.left -= keep_up
        return self.eligible_changed(eligible) if keep_up else None

    def answered(
        self, proposal: IsrProposal, answer: IsrAnswer, now_ms: int, eligible: Mapping[int, int]
    ) -> tuple[AnswerVerdict, bool]:
        """The controller's answer to `proposal`: the verdict, and whether the high watermark moved."""
        verdict = self.isr.answered(proposal, answer)
        if verdict is AnswerVerdict.COMMITTED:
            self.recovering = False
        if verdict not in (AnswerVerdict.COMMITTED, AnswerVerdict.REVERTED):
            return verdict, False
        self._note_alone()
        return verdict, self._advance(now_ms, eligible)

    # questions

    @property
    def has_enough_replicas(self) -> bool:
        """May an acks=all produce be admitted?"""
        return len(self.isr.committed) >= self.effective_min_isr

    def acknowledgement_error(self) -> ErrorCode:
        """For a produce whose last record is below the high watermark."""
        if self.effective_min_isr <= len(self.isr.maximal):
            return ErrorCode.NONE
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def is_unheard(self, replica_id: int) -> bool:
        """Whether this is a follower that has not told us how far it is, or has in vain."""
        progress = self.followers.get(replica_id)
        return progress is not None and progress.end_offset == UNKNOWN_OFFSET

    def low_watermark(self, log_start_offset: int, alive: Mapping[int, int]) -> int:
        """The least log start of this replica and of those of its followers that are alive; -1 if one is unknown."""
        return min(
            [log_start_offset]
            + [progress.log_start_offset for broker_id, progress in self.followers.items() if broker_id in alive]
        )

    # inside

    def _note_alone(self) -> None:
        """`alone`: our own end may be what holds the high watermark back."""
        self.alone = self.isr.maximal == {self.local_id}

    def _effects(self, now_ms: int, eligible: Mapping[int, int]) -> LeaderEffects:
        return MOVED if self._advance(now_ms, eligible) else NOTHING

    def _advance(self, now_ms: int, eligible: Mapping[int, int]) -> bool:
        if len(self.isr.committed) < self.effective_min_isr:
            return False
        least = self.own_share
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
        """In line to join the in-sync set: the high watermark must not run away from it."""
        return (
            broker_id not in self.left
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
            replica_id not in self.left
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


def taken_out(gone: Iterable[int], state: PartitionState) -> frozenset[int]:
    """Of those that left the in-sync set with `state`, the ones that a plan may mean to fence: they are replicas as
    before, and have their logs."""
    return frozenset(one for one in gone if one in state.replicas and state.directory_of(one) != LOST_DIRECTORY)


def _is_eligible(broker_id: int, broker_epoch: int, eligible: Mapping[int, int]) -> bool:
    current = eligible.get(broker_id)
    return current is not None and broker_epoch in (current, UNKNOWN_BROKER_EPOCH)
