"""Batches, markers and logs for the tests of storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kraft.storage import reading
from kraft.storage.handles import ColdRead, FileCache
from kraft.storage.log import AppendInfo, AppendOrigin, Log, LogConfig, LogSlice
from kraft.storage.producers.verification import NOT_VERIFYING, Verification
from kraft.wire.records import BatchHeader, Record, encode_batch, iter_headers, read_header
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, encode_control
from tests.stages.machine import FOLDER, Machine

T = TypeVar("T")
NOW_MS = 1_750_000_000_000
LOG = f"{FOLDER}/orders-0"
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200)


def batch(
    count: int = 1,
    *,
    base: int = 0,
    epoch: int = -1,
    timestamp: int = NOW_MS,
    size: int = 10,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    fill: bytes = b"v",
) -> bytearray:
    """Return a batch of `count` records with `size` value bytes each. `producer` is (id, epoch, first sequence
    number)."""
    records = [Record(0, timestamp, b"k%d" % number, fill * size) for number in range(count)]
    return encode_batch(
        records,
        base_offset=base,
        leader_epoch=epoch,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
    )


def marker(producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> bytearray:
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    record = ControlRecord(type=kind, coordinator_epoch=coordinator_epoch)
    return encode_control(record, timestamp_ms=NOW_MS, producer_id=producer_id, producer_epoch=producer_epoch)


def looked_up(steps: reading.LookupSteps) -> reading.TimestampedOffset | None:
    """Return the result of an offset lookup by timestamp, after all its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: reading.TimestampedOffset | None = end.value
            return found


def open_log(
    machine: Machine,
    config: LogConfig = SMALL,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    index_recovery_point: int | None = None,
    log_start: int = 0,
    strict: bool = False,
    cache: FileCache | None = None,
    directory: str = LOG,
) -> Log:
    return Log.open_log(
        machine.disk,
        directory,
        config,
        clean=clean,
        recovery_point=recovery_point,
        index_recovery_point=index_recovery_point,
        log_start=log_start,
        now_ms=NOW_MS,
        strict=strict,
        cache=cache,
    )


def warmed(function: Callable[[], T]) -> T:
    """Call a function that runs on the event loop. When the function needs cold data, load the data into memory, as its
    caller in production would."""
    while True:
        try:
            return function()
        except ColdRead as cold:
            cold.warm()
            cold.adopt()


def lead(
    log: Log,
    data: bytearray,
    epoch: int = 0,
    *,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    verification: Verification | None = NOT_VERIFYING,
    now_ms: int = NOW_MS,
) -> AppendInfo:
    return warmed(
        lambda: log.append_as_leader(
            memoryview(data), read_header(data), epoch, origin=origin, verification=verification, now_ms=now_ms
        )
    )


def follow(log: Log, data: bytes | bytearray, *, leader_epoch: int | None = None) -> AppendInfo:
    return warmed(lambda: log.append_as_follower(data, now_ms=NOW_MS, leader_epoch=leader_epoch))


def read(
    log: Log, offset: int, max_bytes: int = 1 << 20, end: int | None = None, *, at_least_one: bool = True
) -> LogSlice:
    limit = log.log_end_offset if end is None else end
    return warmed(lambda: log.read(offset, max_bytes, limit, at_least_one=at_least_one))


def read_all(log: Log, offset: int | None = None) -> bytes:
    """Return all bytes from an offset (default: the log start offset) to the log end, with as many reads as
    necessary."""
    at = log.log_start_offset if offset is None else offset
    parts: list[bytes] = []
    while at < log.log_end_offset:
        data = read(log, at).read()
        assert data, f"nothing to read at {at}, the log ends at {log.log_end_offset}"
        parts.append(data)
        at = headers(data)[-1].next_offset
    return b"".join(parts)


def headers(data: bytes) -> list[BatchHeader]:
    return [header for _, header in iter_headers(data)]


def sync(log: Log) -> None:
    plan = log.files_to_sync()
    if plan is not None:
        plan.run()
        log.mark_synced(plan)


def delete(machine: Machine, paths: list[str]) -> None:
    """Unlink the files that a log has dropped, as its owner does after file.delete.delay.ms."""
    for path in paths:
        machine.disk.unlink(path)
