"""SharePartition: which records of a partition a share group has acquired, acknowledged, or may still get.

Invariants:
- at most one member holds a record at a time, from `acquire` until its acknowledgement, release or lock expiry;
- an acknowledged record is never available again, unless its change could not be persisted;
- a record is acquired at most `delivery_count_max` times; then it is archived;
- a change that a member waits for has no effect until it is persisted: the record stays acquired, and its lock does not
  expire meanwhile. A lock that expires takes effect at once, persisted or not (KIP-932 delivers at least once);
- the start offset passes a record only when the record is complete, or is no longer in the log.

Nothing here waits, draws random numbers or reads a clock. Source: KIP-932, Kafka's SharePartition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kraft.broker.share_partition.acknowledging import Acknowledgement, check_acknowledgements
from kraft.broker.share_partition.log_ranges import LogRange
from kraft.broker.share_partition.offset_runs import OffsetRun, OffsetRuns
from kraft.broker.share_partition.portions import portion_of
from kraft.broker.share_partition.states import (
    AcknowledgementBatch,
    AcknowledgeResult,
    AcknowledgeType,
    AcquiredBatch,
    RecordState,
    ShareLimits,
    StateBatch,
    StateWrite,
)
from kraft.seam import require
from kraft.wire.error_codes import ErrorCode

NO_WRITE = 0


class Delivery(NamedTuple):
    """The delivery state of a record. An acquired record has a `member` and a lock until `lock_until_ms`, on the
    monotonic clock. While the write with number `write` is being persisted, the record will get `next_state` and
    `next_count` by it."""

    state: RecordState
    delivery_count: int
    member: str = ""
    lock_until_ms: int = 0
    write: int = NO_WRITE
    next_state: RecordState = RecordState.AVAILABLE
    next_count: int = 0


GAP = Delivery(RecordState.ARCHIVED, 0)
"""The state of an offset at which the log has no record that may be delivered."""
NEVER_DELIVERED = Delivery(RecordState.AVAILABLE, 0)


class SharePartition:
    """The records of one partition for one share group, at the leader of the partition."""

    def __init__(
        self,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        batches: Iterable[StateBatch] = (),
        limits: ShareLimits,
    ) -> None:
        """`batches` are the persisted batches, in ascending order. An offset between them was never delivered, or its
        delivery was not persisted: it is available."""
        self.state_epoch = state_epoch
        self.leader_epoch = leader_epoch
        self.limits = limits
        self.expired_records = 0
        """Number of records whose lock has expired."""
        self._runs: OffsetRuns[Delivery] = OffsetRuns(start_offset)
        self._writes = 0
        for batch in batches:
            self._runs.extend(batch.first_offset, NEVER_DELIVERED)
            self._runs.extend(batch.last_offset + 1, Delivery(RecordState(batch.state), batch.delivery_count))
        self._pass_complete()

    @property
    def start_offset(self) -> int:
        """Offset of the first record that is not complete."""
        return self._runs.start

    @property
    def end_offset(self) -> int:
        """Offset after the last record that was ever acquired."""
        return self._runs.end

    @property
    def runs(self) -> tuple[OffsetRun[Delivery], ...]:
        """The deliveries of all offsets between start and end, as runs."""
        return tuple(self._runs)

    @property
    def fetch_offset(self) -> int:
        """Offset from which the log must be read for the next `acquire`: that of the first available record."""
        available = (run.first for run in self._runs if run.value.state is RecordState.AVAILABLE)
        return next(available, self._runs.end)

    @property
    def can_acquire(self) -> bool:
        """Return whether a record may be acquired: an available one, or a new one within the limit of records in
        flight."""
        return self._new_records_max > 0 or self.fetch_offset < self._runs.end

    @property
    def next_expiry_ms(self) -> int | None:
        """Time on the monotonic clock at which to call `expire_locks`; None if no record is locked."""
        locks = (run.value.lock_until_ms for run in self._runs if _is_held(run.value))
        return min(locks, default=None)

    @property
    def _new_records_max(self) -> int:
        return self.limits.record_locks_max - (self._runs.end - self._runs.start)

    # acquiring

    def acquire(
        self,
        member: str,
        ranges: Sequence[LogRange],
        records_max: int,
        now_ms: int,
        *,
        is_strict: bool = False,
        batch_records: int = 0,
    ) -> tuple[AcquiredBatch, ...]:
        """Let a member acquire the available records in `ranges`, and lock them. Return the acquired records.

        `ranges` has what the log was found to contain, without holes, from `fetch_offset` or an earlier offset on. The
        member gets all available records of a log batch with which it reaches `records_max`, or no record more if the
        limit `is_strict` (KIP-1206). A result ends at the end of a log batch once it has `batch_records`. Of a
        log batch with records that have few deliveries left the member gets a portion, and nothing else."""
        acquired = _AcquiredBatches(batch_records)
        for log_range in ranges:
            if log_range.first > self._runs.end or acquired.count >= records_max:
                break
            acquired.begin_log_batch()
            if not log_range.is_deliverable:
                self._skip(log_range)
                continue
            limit = records_max - acquired.count if is_strict else log_range.end - log_range.first
            portion = self._portion_of(log_range)
            if portion is not None:
                limit = 0 if acquired.count else min(limit, portion)
            self._acquire_known(member, log_range, limit, now_ms, acquired)
            if portion is not None:
                break
            limit = records_max - acquired.count if is_strict else limit
            self._acquire_new(member, log_range, limit, now_ms, acquired, is_strict=is_strict)
        self._pass_complete()
        return acquired.batches()

    def _skip(self, log_range: LogRange) -> None:
        """Archive offsets that have no record which may be delivered."""

        def skipped(delivery: Delivery) -> Delivery:
            is_available = delivery.state is RecordState.AVAILABLE
            return Delivery(RecordState.ARCHIVED, delivery.delivery_count) if is_available else delivery

        self._runs.change(log_range.first, log_range.end, skipped)
        self._runs.extend(log_range.end, GAP)

    def _portion_of(self, log_range: LogRange) -> int | None:
        """Return how many available records of a log batch a member gets; None if no record has few deliveries left."""
        available = (
            (run.end - run.first, run.value.delivery_count)
            for run in self._runs.within(log_range.first, log_range.end)
            if run.value.state is RecordState.AVAILABLE
        )
        return portion_of(available, log_range.batch_size, self.limits.delivery_count_max)

    def _acquire_known(
        self, member: str, log_range: LogRange, limit: int, now_ms: int, acquired: _AcquiredBatches
    ) -> None:
        """Acquire at most `limit` available records of a log batch that were delivered or passed over before."""
        for run in list(self._runs.within(log_range.first, log_range.end)):
            if run.value.state is RecordState.AVAILABLE and limit > 0:
                end = min(run.end, run.first + limit)
                delivery = self._held(member, run.value.delivery_count + 1, now_ms)
                self._deliver(run.first, end, delivery)
                acquired.add(run.first, end, delivery.delivery_count)
                limit -= end - run.first

    def _acquire_new(
        self, member: str, log_range: LogRange, limit: int, now_ms: int, acquired: _AcquiredBatches, *, is_strict: bool
    ) -> None:
        """Acquire at most `limit` records of a log batch that were never acquired."""
        room = self._new_records_max
        first, end = self._runs.end, log_range.end
        if first >= end or limit <= 0 or room <= 0:
            return
        end = min(end, first + limit)
        if is_strict:
            end = min(end, first + room)
        delivery = self._held(member, 1, now_ms)
        self._runs.extend(end, delivery)
        acquired.add(first, end, delivery.delivery_count)

    def _deliver(self, first: int, end: int, delivery: Delivery) -> None:
        self._runs.change(first, end, lambda _: delivery)

    def _held(self, member: str, count: int, now_ms: int) -> Delivery:
        return Delivery(RecordState.ACQUIRED, count, member, now_ms + self.limits.lock_duration_ms)

    # acknowledging

    def acknowledge(self, member: str, batches: Sequence[AcknowledgementBatch], now_ms: int) -> AcknowledgeResult:
        """Apply a member's acknowledgements, all or none of them. Offsets below the start offset are ignored.

        INVALID_RECORD_STATE means that the member does not hold one of the records, INVALID_REQUEST that the request is
        malformed or names an offset that was never delivered."""
        checked = check_acknowledgements(batches, self._runs.start, self._runs.end)
        if isinstance(checked, ErrorCode):
            return AcknowledgeResult(checked)
        for item in checked:
            for run in self._runs.within(item.first, item.end):
                if not _is_held(run.value) or run.value.member != member:
                    return AcknowledgeResult(ErrorCode.INVALID_RECORD_STATE)
        number, is_changed = self._writes + 1, False
        for item in checked:
            if item.type is AcknowledgeType.RENEW:
                self._renew(item, now_ms)
            else:
                is_changed = True
                self._begin_change(item, number)
        return AcknowledgeResult(ErrorCode.NONE, self._begin_write(number) if is_changed else None)

    def _renew(self, item: Acknowledgement, now_ms: int) -> None:
        lock_until_ms = now_ms + self.limits.lock_duration_ms
        self._runs.change(item.first, item.end, lambda one: one._replace(lock_until_ms=lock_until_ms))

    def _begin_change(self, item: Acknowledgement, number: int) -> None:
        """Give the records of an acknowledgement their next state, which write `number` puts into effect."""

        def begun(delivery: Delivery) -> Delivery:
            if item.type is AcknowledgeType.ACCEPT:
                state = RecordState.ACKNOWLEDGED
            elif item.type is AcknowledgeType.RELEASE:
                state = self._state_after(delivery)
            else:
                state = RecordState.ARCHIVED
            return delivery._replace(write=number, next_state=state, next_count=delivery.delivery_count)

        self._runs.change(item.first, item.end, begun)

    def release_member(self, member: str) -> StateWrite | None:
        """Release all records that a member holds, because its session ends. Their delivery counts stay: a record that
        crashes each of its members is archived after its last delivery. Return the change to persist, or None if the
        member holds nothing."""
        number = self._writes + 1
        held = [run for run in self._runs if _is_held(run.value) and run.value.member == member]
        for run in held:
            self._runs.change(run.first, run.end, lambda one: self._given_back(one, number))
        return self._begin_write(number) if held else None

    def _given_back(self, delivery: Delivery, number: int) -> Delivery:
        """Return a held record whose member's session ends, while write `number` is being persisted."""
        state = self._state_after(delivery)
        return delivery._replace(write=number, next_state=state, next_count=delivery.delivery_count)

    def expire_locks(self, now_ms: int) -> StateWrite | None:
        """Release the records whose lock has expired. Return the change to persist, or None if no lock has expired. The
        change is in effect already."""
        expired = [run for run in self._runs if _is_held(run.value) and run.value.lock_until_ms <= now_ms]
        if not expired:
            return None
        batches = [
            StateBatch(run.first, run.end - 1, self._state_after(run.value), run.value.delivery_count)
            for run in expired
        ]
        for run in expired:
            self.expired_records += run.end - run.first
            self._runs.change(run.first, run.end, lambda one: Delivery(self._state_after(one), one.delivery_count))
        self._writes += 1
        self._pass_complete()
        return self._write(self._writes, _joined(batches))

    def _state_after(self, delivery: Delivery) -> RecordState:
        """Return the state of a record that its member did not process."""
        is_last = delivery.delivery_count >= self.limits.delivery_count_max
        return RecordState.ARCHIVED if is_last else RecordState.AVAILABLE

    # the log and the persisted state

    def move_start(self, log_start_offset: int) -> None:
        """Drop the records below the log start offset, because they are no longer in the log. The next write persists
        the new start offset."""
        self._runs.move_start(log_start_offset)
        self._pass_complete()

    def write_start(self) -> StateWrite:
        """Return a write of the start offset alone, so that other leaders begin at it too."""
        return self._begin_write(self._writes + 1)

    def sent_write(self, write: StateWrite) -> StateWrite:
        """Return a write as it must be sent, now that all earlier writes are persisted or have failed. The start offset
        has passed the records of the persisted ones."""
        return self._write(write.number, write.batches)

    def write_stored(self, number: int) -> None:
        """Put the changes of a write into effect, because they are persisted."""

        def stored(delivery: Delivery) -> Delivery:
            return Delivery(delivery.next_state, delivery.next_count) if delivery.write == number else delivery

        self._runs.change(self._runs.start, self._runs.end, stored)
        self._pass_complete()

    def write_failed(self, number: int) -> None:
        """Drop the changes of a write, because they could not be persisted. Members hold the records as before, until
        their locks expire."""

        def failed(delivery: Delivery) -> Delivery:
            if delivery.write != number:
                return delivery
            return delivery._replace(write=NO_WRITE, next_state=RecordState.AVAILABLE, next_count=0)

        self._runs.change(self._runs.start, self._runs.end, failed)

    def _begin_write(self, number: int) -> StateWrite:
        """Return the write of the records that wait for write `number`."""
        require(number == self._writes + 1, "writes are numbered in order")
        self._writes = number
        changed = (run for run in self._runs if run.value.write == number)
        return self._write(
            number,
            _joined(StateBatch(run.first, run.end - 1, run.value.next_state, run.value.next_count) for run in changed),
        )

    def _write(self, number: int, batches: tuple[StateBatch, ...]) -> StateWrite:
        """Return a write with the start offset and the count of complete offsets as they are when it is persisted,
        unless an earlier write is persisted in the meantime."""

        def is_complete(delivery: Delivery) -> bool:
            return delivery.state.is_complete or (delivery.write == number and delivery.next_state.is_complete)

        runs = list(self._runs)
        start = next((run.first for run in runs if not is_complete(run.value)), self._runs.end)
        complete = sum(run.end - run.first for run in runs if run.first >= start and is_complete(run.value))
        left = (batch for batch in batches if batch.last_offset >= start)
        kept = tuple(batch._replace(first_offset=max(batch.first_offset, start)) for batch in left)
        return StateWrite(number, self.state_epoch, self.leader_epoch, start, complete, kept)

    def _pass_complete(self) -> None:
        """Move the start offset past complete records."""
        for run in self._runs:
            if not run.value.state.is_complete:
                self._runs.move_start(run.first)
                return
        self._runs.move_start(self._runs.end)


class _AcquiredBatches:
    """Collects acquired records: neighbouring ones with the same delivery count form one batch. A batch ends at the end
    of a log batch once it has `batch_records` records (0: no limit)."""

    def __init__(self, batch_records: int) -> None:
        self.count = 0
        self._batch_records = batch_records
        self._batches: list[AcquiredBatch] = []
        self._is_open = False

    def begin_log_batch(self) -> None:
        if self._batches and self._batch_records:
            last = self._batches[-1]
            self._is_open = self._is_open and last.last_offset - last.first_offset + 1 < self._batch_records

    def add(self, first: int, end: int, delivery_count: int) -> None:
        self.count += end - first
        last = self._batches[-1] if self._batches and self._is_open else None
        if last is not None and last.last_offset + 1 == first and last.delivery_count == delivery_count:
            self._batches[-1] = last._replace(last_offset=end - 1)
        else:
            self._batches.append(AcquiredBatch(first, end - 1, delivery_count))
        self._is_open = True

    def batches(self) -> tuple[AcquiredBatch, ...]:
        return tuple(self._batches)


def _is_held(delivery: Delivery) -> bool:
    """Return whether a member holds the record, and has not asked to change that."""
    return delivery.state is RecordState.ACQUIRED and delivery.write == NO_WRITE


def _joined(batches: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    """Return the batches, in ascending order, with neighbours of the same state joined."""
    joined: list[StateBatch] = []
    for batch in batches:
        last = joined[-1] if joined else None
        if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
            joined[-1] = last._replace(last_offset=batch.last_offset)
        else:
            joined.append(batch)
    return tuple(joined)
