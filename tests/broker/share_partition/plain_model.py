"""PlainSharePartition: the rules of a share partition over a dict of single records, without runs.

It is slow and obvious; tests compare the real one with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from kraft.broker.share_partition.log_ranges import LogRange
from kraft.broker.share_partition.states import AcknowledgementBatch, AcknowledgeType, RecordState, ShareLimits
from kraft.wire.error_codes import ErrorCode

PlainState = tuple[int, int]


@dataclass(frozen=True)
class PlainRecord:
    state: RecordState = RecordState.AVAILABLE
    count: int = 0
    member: str = ""
    lock_until_ms: int = 0
    write: int = 0
    target: PlainState = (0, 0)


class PlainSharePartition:
    def __init__(self, start: int, limits: ShareLimits) -> None:
        self.start = start
        self.limits = limits
        self.records: dict[int, PlainRecord] = {}
        self.writes = 0

    @property
    def end(self) -> int:
        return max(self.records, default=self.start - 1) + 1

    @property
    def fetch_offset(self) -> int:
        free = (offset for offset in sorted(self.records) if self.records[offset].state is RecordState.AVAILABLE)
        return next(free, self.end)

    def acquire(
        self, member: str, ranges: Sequence[LogRange], most: int, now_ms: int, *, strict: bool
    ) -> list[PlainState]:
        taken: list[PlainState] = []
        for piece in ranges:
            if len(taken) >= most or piece.first > self.end:
                break
            portion = self._portion(piece)
            if portion is not None:
                if not taken:
                    strict_end = most if strict else piece.end
                    for offset in portion[:strict_end]:
                        count = self.records[offset].count + 1
                        lock = now_ms + self.limits.lock_duration_ms
                        self.records[offset] = PlainRecord(RecordState.ACQUIRED, count, member, lock)
                        taken.append((offset, count))
                break
            has_room = None
            for offset in range(piece.first, piece.end):
                record = self.records.get(offset)
                if offset < self.start:
                    continue
                if record is None and has_room is None:
                    has_room = len(self.records) < self.limits.record_locks_max
                if not piece.is_deliverable:
                    if record is None or record.state is RecordState.AVAILABLE:
                        count = 0 if record is None else record.count
                        self.records[offset] = PlainRecord(RecordState.ARCHIVED, count)
                    continue
                if strict and (
                    len(taken) >= most or (record is None and len(self.records) >= self.limits.record_locks_max)
                ):
                    continue
                if record is None and not has_room:
                    continue
                if record is None or record.state is RecordState.AVAILABLE:
                    count = 1 if record is None else record.count + 1
                    lock = now_ms + self.limits.lock_duration_ms
                    self.records[offset] = PlainRecord(RecordState.ACQUIRED, count, member, lock)
                    taken.append((offset, count))
        self._advance()
        return taken

    def _portion(self, piece: LogRange) -> list[int] | None:
        """Return the offsets of a portion, if a record of the log batch has few deliveries left."""
        most = self.limits.delivery_count_max
        half = max(2, most / 2)
        known = [offset for offset in range(piece.first, piece.end) if offset in self.records]
        free = [offset for offset in known if self.records[offset].state is RecordState.AVAILABLE]
        worn = [offset for offset in free if self.records[offset].count >= half]
        if not piece.is_deliverable or not worn:
            return None
        for offset in worn:
            if most > 2 and self.records[offset].count >= most - 1:
                before = [one for one in free if one < offset]
                first_worn = [one for one in worn if one < offset][:1]
                if not first_worn:
                    return before or [offset]
                return before[: self._portion_size(piece, free, first_worn[0])]
        return free[: self._portion_size(piece, free, worn[0])]

    def _portion_size(self, piece: LogRange, free: list[int], worn: int) -> int:
        half = max(2, ceil(self.limits.delivery_count_max / 2))
        size, divisions = piece.batch_size, self.records[worn].count - half + 1
        for _ in range(divisions):
            size //= 2
        return max(1, size, sum(one < worn for one in free))

    def acknowledge(self, member: str, batches: Sequence[AcknowledgementBatch], now_ms: int) -> tuple[ErrorCode, int]:
        named = [
            (offset, batch.types[0] if len(batch.types) == 1 else batch.types[offset - batch.first_offset])
            for batch in batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        ]
        if any(offset >= self.end for offset, _ in named):
            return ErrorCode.INVALID_REQUEST, 0
        named = [(offset, kind) for offset, kind in named if offset >= self.start]
        if not all(self._holds(member, offset) for offset, _ in named):
            return ErrorCode.INVALID_RECORD_STATE, 0
        changes = [offset for offset, kind in named if kind != AcknowledgeType.RENEW]
        if changes:
            self.writes += 1
        for offset, kind in named:
            record = self.records[offset]
            if kind == AcknowledgeType.RENEW:
                self.records[offset] = replace(record, lock_until_ms=now_ms + self.limits.lock_duration_ms)
            else:
                state = {
                    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
                    AcknowledgeType.RELEASE: self._released(record),
                }.get(AcknowledgeType(kind), RecordState.ARCHIVED)
                self.records[offset] = replace(record, write=self.writes, target=(state, record.count))
        return ErrorCode.NONE, self.writes if changes else 0

    def _holds(self, member: str, offset: int) -> bool:
        record = self.records[offset]
        return record.state is RecordState.ACQUIRED and not record.write and record.member == member

    def _released(self, record: PlainRecord) -> RecordState:
        is_last = record.count >= self.limits.delivery_count_max
        return RecordState.ARCHIVED if is_last else RecordState.AVAILABLE

    def release_member(self, member: str) -> int:
        held = [offset for offset in self.records if self._holds(member, offset)]
        self.writes += bool(held)
        for offset in held:
            record = self.records[offset]
            target = (self._released(record), record.count)
            self.records[offset] = replace(record, write=self.writes, target=target)
        return self.writes if held else 0

    def expire(self, now_ms: int) -> int:
        late = [
            offset
            for offset, record in self.records.items()
            if record.state is RecordState.ACQUIRED and not record.write and record.lock_until_ms <= now_ms
        ]
        self.writes += bool(late)
        for offset in late:
            record = self.records[offset]
            self.records[offset] = PlainRecord(self._released(record), record.count)
        self._advance()
        return self.writes if late else 0

    def settle(self, number: int, *, stored: bool) -> None:
        for offset, record in self.records.items():
            if record.write == number and stored:
                self.records[offset] = PlainRecord(RecordState(record.target[0]), record.target[1])
            elif record.write == number:
                self.records[offset] = replace(record, write=0, target=(0, 0))
        self._advance()

    def move_start(self, start: int) -> None:
        if start > self.start:
            self.records = {offset: record for offset, record in self.records.items() if offset >= start}
            self.start = start
        self._advance()

    def _advance(self) -> None:
        while self.start in self.records and self.records[self.start].state.is_complete:
            del self.records[self.start]
            self.start += 1
