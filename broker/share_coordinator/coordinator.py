"""ShareCoordinator: the state machine of one partition of `__share_group_state`, as its driver calls it.

Invariants:
- a write of an older leader epoch or state epoch is refused, as soon as a newer one has read or begun the state;
- a write of a leader that has not read the state since it was deleted and begun again is refused as well, because the
  state epoch of the new state may be the same or lower;
- a request is answered when the state that it read or wrote is committed.

The driver calls `handle` for a request, `snapshot_cold` and `forget_topics` from time to time. Each call returns a
ShareStep. When the entries of a step are in the log, the driver calls `appended`, which applies them. Calls come one at
a time, in the order of the log. Nothing here waits, draws random numbers or reads a clock.
Source: KIP-932, Kafka's ShareCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from kraft.broker.shard.now import Now
from kraft.broker.share_coordinator.records import (
    NO_COUNT,
    NO_EPOCH,
    NO_OFFSET,
    ShareKey,
    ShareSnapshot,
    ShareStateEntry,
    ShareUpdate,
)
from kraft.broker.share_coordinator.requests import (
    DeleteStateRequest,
    InitializeStateRequest,
    ReadStateRequest,
    Request,
    StateReply,
    Ticket,
    WriteStateRequest,
)
from kraft.broker.share_coordinator.share_state import ShareState, apply_entry, redundant_before, updated
from kraft.broker.share_coordinator.step import PendingReply, ShareStep
from kraft.wire.error_codes import ErrorCode

ENTRIES_PER_STEP = 100


class ShareCoordinatorSettings(NamedTuple):
    """Settings under share.coordinator.…, with times in ms."""

    updates_per_snapshot: int = 500
    cold_interval_ms: int = 300_000


class ShareCoordinator:
    """The share partitions of one partition of the topic, from the end of loading to `unload`."""

    def __init__(
        self, settings: ShareCoordinatorSettings, states: Mapping[ShareKey, ShareState], end_offset: int
    ) -> None:
        """`states` is what the log below `end_offset` adds up to."""
        self._settings = settings
        self._states = dict(states)
        self._end_offset = end_offset
        self._redundant_before = 0
        self._redundant = (0, 0)
        """An offset below which records are not needed, once the log is committed up to the second offset."""

    # for the driver

    @property
    def end_offset(self) -> int:
        """Offset at which the next batch must be appended."""
        return self._end_offset

    @property
    def states(self) -> Mapping[ShareKey, ShareState]:
        """The states by share partition; callers must not change the mapping."""
        return self._states

    @property
    def next_timer_ms(self) -> int | None:
        """Return None: no timers."""
        return None

    def redundant_before(self, high_watermark: int) -> int:
        """Return the offset below which the driver may delete records: they are not needed to load the states, and the
        records that replace them are committed.

        The states include records that are not committed. While there are any, an offset that one call finds is
        returned by a later call, when all that was in the log at the time of the first one is committed."""
        found, end_offset = redundant_before(self._states, self._end_offset), self._end_offset
        if high_watermark >= end_offset:
            self._redundant_before, self._redundant = found, (found, end_offset)
        elif high_watermark >= self._redundant[1]:
            self._redundant_before, self._redundant = self._redundant[0], (found, end_offset)
        return self._redundant_before

    def begin(self, now: Now) -> ShareStep:
        """Do nothing: a new coordinator has nothing to continue."""
        return ShareStep()

    def appended(self, entries: Sequence[ShareStateEntry], end_offset: int) -> None:
        """Apply a step's entries, which are in the log. The log now ends at `end_offset`."""
        first = end_offset - len(entries)
        for number, entry in enumerate(entries):
            apply_entry(self._states, entry, first + number)
        self._end_offset = end_offset

    def advance(self, high_watermark: int) -> None:
        """Do nothing: a reply waits until everything before it is committed."""

    def handle(self, request: Request, ticket: Ticket, now: Now) -> ShareStep:
        """Process one request."""
        state = self._states.get(request.key)
        known = None if state is None else state.snapshot
        error = self._refusal(request, known)
        if error is not ErrorCode.NONE:
            return ShareStep(after=(PendingReply(ticket, request, StateReply(error)),))
        entries: tuple[ShareStateEntry, ...] = ()
        reply = StateReply(ErrorCode.NONE)
        match request:
            case InitializeStateRequest():
                entries = self._initialized(request, known, now)
            case ReadStateRequest(key, leader_epoch):
                reply = StateReply(ErrorCode.NONE, known)
                if state is not None and leader_epoch not in (NO_EPOCH, state.snapshot.leader_epoch):
                    entries = (self._changed(key, state, _new_leader(state.snapshot, leader_epoch), now),)
            case WriteStateRequest(key):
                assert state is not None
                entries = (self._changed(key, state, _written(request, state.snapshot), now, request.state_epoch),)
            case DeleteStateRequest(key, state_epoch):
                is_older = known is not None and (state_epoch == NO_EPOCH or known.state_epoch < state_epoch)
                entries = (ShareStateEntry(key, None),) if is_older else ()
            case _:
                reply = StateReply(ErrorCode.NONE, known)
        return ShareStep(entries, after=(PendingReply(ticket, request, reply),))

    def fire(self, now: Now) -> ShareStep | None:
        """Return None: no timers."""
        return None

    def stored(self, after: PendingReply, now: Now) -> ShareStep:
        """Send a reply, because everything that it tells is committed."""
        return ShareStep(replies=((after.ticket, after.reply),))

    def failed(self, after: PendingReply, error: ErrorCode, now: Now) -> ShareStep:
        """Reply with an error, because the batch was not appended, was not committed in time, or the partition has
        moved. The client does not know the outcome and must retry."""
        return ShareStep(replies=((after.ticket, after.request.refused(error)),))

    def late(self, after: PendingReply, error: ErrorCode, now: Now) -> None:
        """Return None: the driver then calls `failed`, and forgets the reply."""

    def snapshot_cold(self, now: Now) -> ShareStep:
        """Write a snapshot of some share partitions that were quiet for the cold interval, if records before their
        snapshot or updates after it could then be deleted."""
        oldest_ms = now.wall_ms - self._settings.cold_interval_ms
        cold = (
            (key, state)
            for key, state in self._states.items()
            if state.snapshot.write_ms <= oldest_ms
            and (state.updates or self._end_offset - state.snapshot_offset > len(self._states))
        )
        chosen = islice(cold, ENTRIES_PER_STEP)
        return ShareStep(tuple(ShareStateEntry(key, _next_snapshot(state.snapshot, now)) for key, state in chosen))

    def forget_topics(self, topic_ids: Collection[UUID], now: Now) -> ShareStep:
        """Delete the states of some share partitions of deleted topics."""
        gone = (key for key in self._states if key.topic_id in topic_ids)
        return ShareStep(tuple(ShareStateEntry(key, None) for key in islice(gone, ENTRIES_PER_STEP)))

    def unload(self, now: Now) -> ShareStep:
        """Forget everything, because this broker is no longer the coordinator."""
        self._states.clear()
        return ShareStep()

    # the rules

    def _refusal(self, request: Request, known: ShareSnapshot | None) -> ErrorCode:
        if isinstance(request, ReadStateRequest | WriteStateRequest):
            if known is None:
                return ErrorCode.INVALID_REQUEST
            is_unread = isinstance(request, WriteStateRequest) and request.leader_epoch > known.leader_epoch
            if is_unread or NO_EPOCH != request.leader_epoch < known.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
        if not isinstance(request, InitializeStateRequest | WriteStateRequest) or known is None:
            return ErrorCode.NONE
        is_fenced = NO_EPOCH != request.state_epoch < known.state_epoch
        return ErrorCode.FENCED_STATE_EPOCH if is_fenced else ErrorCode.NONE

    def _initialized(
        self, request: InitializeStateRequest, known: ShareSnapshot | None, now: Now
    ) -> tuple[ShareStateEntry, ...]:
        """Return the first snapshot of a share partition, or one that replaces a state of an older epoch. A request
        that arrives again changes nothing, because the state may have been written since. A state without a start
        offset gets one in the same epoch too, because a group's member may begin it while an administrator sets the
        start offset. A leader that has read the state before is fenced then."""
        epoch, start = request.state_epoch, request.start_offset
        is_begun = known is not None and epoch == known.state_epoch
        if known is not None and is_begun and (start == NO_OFFSET or known.start_offset != NO_OFFSET):
            return ()
        snapshot_epoch = 0 if known is None else known.snapshot_epoch + 1
        leader_epoch = NO_EPOCH if known is None or is_begun else known.leader_epoch
        count = NO_COUNT if start == NO_OFFSET else 0
        snapshot = ShareSnapshot(snapshot_epoch, epoch, leader_epoch, start, count, now.wall_ms, now.wall_ms)
        return (ShareStateEntry(request.key, snapshot),)

    def _changed(
        self, key: ShareKey, state: ShareState, update: ShareUpdate, now: Now, state_epoch: int = NO_EPOCH
    ) -> ShareStateEntry:
        """Return an update, or a snapshot that includes it if there were enough updates. Only a snapshot can have
        another state epoch."""
        known = state.snapshot
        is_new_epoch = state_epoch not in (NO_EPOCH, known.state_epoch)
        if state.updates < self._settings.updates_per_snapshot and not is_new_epoch:
            return ShareStateEntry(key, update)
        snapshot = _next_snapshot(updated(known, update), now)
        return ShareStateEntry(key, snapshot._replace(state_epoch=state_epoch) if is_new_epoch else snapshot)


def _new_leader(known: ShareSnapshot, leader_epoch: int) -> ShareUpdate:
    return ShareUpdate(known.snapshot_epoch, leader_epoch, known.start_offset, known.delivery_complete_count)


def _written(request: WriteStateRequest, known: ShareSnapshot) -> ShareUpdate:
    return ShareUpdate(
        known.snapshot_epoch,
        request.leader_epoch,
        request.start_offset,
        request.delivery_complete_count,
        request.batches,
    )


def _next_snapshot(snapshot: ShareSnapshot, now: Now) -> ShareSnapshot:
    return snapshot._replace(snapshot_epoch=snapshot.snapshot_epoch + 1, create_ms=now.wall_ms, write_ms=now.wall_ms)
