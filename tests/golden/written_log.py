"""A partition's log with everything that a log can contain, written the same way by every release.

It has two leader epochs, several segments, headers, null keys and values, an idempotent producer, a committed, an
aborted and an open transaction, and a clean shutdown. As a program it writes the log into the given folder. The
previous release runs it with its own modules, so it must import nothing of tests.
"""

from __future__ import annotations

import sys
from uuid import UUID

import trio

from kraft.seam import Disk
from kraft.storage.append import AppendOrigin
from kraft.storage.log import Log, LogConfig
from kraft.storage.producers.verification import NOT_VERIFYING
from kraft.wire.records import Record, encode_batch, read_header
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, encode_control

FOLDER = "transfers-0"
TOPIC_ID = UUID("5d1f0c9a-3b52-4e0e-9a57-2f6f1f3a8c11")
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200)
NOW_MS = 1_750_000_000_000
IDEMPOTENT, COMMITS, ABORTS, STAYS_OPEN = 7000, 7001, 7002, 7003
EPOCHS = (3, 5)


def write_log(disk: Disk, directory: str) -> None:
    """Create the log in `directory`, which must not exist, and close it cleanly."""
    log = Log.open_log(disk, directory, CONFIG, clean=False, recovery_point=0, log_start=0, now_ms=NOW_MS)
    cold = log.warm_for_append()
    if cold is not None:
        cold.warm()
        cold.keep()
    ready = log.ready_plan(TOPIC_ID)
    assert ready is not None
    ready.run()
    log.mark_synced(ready)
    first, second = EPOCHS
    for number in range(8):
        _append(log, first, _batch(number, (IDEMPOTENT, 0, 3 * number)))
        _append(log, first, _batch(number, (COMMITS, 1, 3 * number), transactional=True))
    _append(log, first, _marker(COMMITS, 1, ControlRecordType.COMMIT), AppendOrigin.COORDINATOR)
    _append(log, first, _batch(8, (ABORTS, 0, 0), transactional=True))
    for number in range(9, 15):
        _append(log, second, _batch(number, (-1, -1, -1)))
    _append(log, second, _marker(ABORTS, 0, ControlRecordType.ABORT), AppendOrigin.COORDINATOR)
    _append(log, second, _batch(15, (STAYS_OPEN, 2, 0), transactional=True))
    log.update_high_watermark(log.log_end_offset)
    log.close(clean=True)


def _batch(number: int, producer: tuple[int, int, int], *, transactional: bool = False) -> bytearray:
    at = NOW_MS + 1000 * number
    records = (
        Record(0, at, b"key-%d" % number, b"value-%d" % number, (("trace", b"%d" % number), ("none", None))),
        Record(0, at + 7, None, b"no key"),
        Record(0, at + 3, b"key-%d" % number, None),
    )
    producer_id, producer_epoch, base_sequence = producer
    return encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def _marker(producer_id: int, producer_epoch: int, kind: ControlRecordType) -> bytearray:
    record = ControlRecord(type=kind, coordinator_epoch=4)
    return encode_control(record, timestamp_ms=NOW_MS, producer_id=producer_id, producer_epoch=producer_epoch)


def _append(log: Log, epoch: int, batch: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    log.append_as_leader(batch, read_header(batch), epoch, origin=origin, verification=NOT_VERIFYING, now_ms=NOW_MS)


async def _main(directory: str) -> None:
    from kraft.runtime.disk import RealDisk

    write_log(RealDisk(offload_threads=1, sync_threads=1, dirty_budget_bytes=2**20), directory)


if __name__ == "__main__":
    trio.run(_main, sys.argv[1])
