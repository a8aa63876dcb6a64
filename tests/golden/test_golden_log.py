"""A log of the previous release with everything that a log can contain: this release reads it, and writes the same
bytes.
"""

from __future__ import annotations

from kraft.storage.handles import read_through
from kraft.storage.indexes.txn_index import AbortedTransaction
from kraft.storage.log import Log
from kraft.wire.records.batch_codec import iter_batch
from kraft.wire.records.header import iter_headers
from tests.golden.files import LOG, files_of
from tests.golden.written_log import ABORTS, COMMITS, CONFIG, EPOCHS, IDEMPOTENT, NOW_MS, STAYS_OPEN, write_log
from tests.stages.batches import looked_up
from tests.stages.machine import FOLDER, Machine

DIRECTORY = f"{FOLDER}/transfers-0"
RECORDS_END = 74


def opened(machine: Machine, *, clean: bool) -> Log:
    """Open the previous release's log on an in-memory disk, without its clean shutdown marker and recovery point."""
    machine.copy(DIRECTORY, files_of(LOG))
    point = RECORDS_END if clean else 0
    return Log.open_log(machine.disk, DIRECTORY, CONFIG, clean=clean, recovery_point=point, log_start=0, now_ms=NOW_MS)


def test_a_log_written_by_this_release_has_the_bytes_of_the_previous_release() -> None:
    machine = Machine()
    write_log(machine.disk, DIRECTORY)
    assert machine.files(DIRECTORY) == files_of(LOG)


def test_a_log_of_the_previous_release_opens_with_epochs_producers_and_aborted_transactions() -> None:
    log = opened(Machine(), clean=True)
    assert (log.log_start_offset, log.log_end_offset) == (0, RECORDS_END)
    assert [segment.base_offset for segment in log.segments] == [0, 36, 71]
    assert log.epochs.entries == ((EPOCHS[0], 0), (EPOCHS[1], 52))
    snapshot = {row.producer_id: row for row in log.producers.snapshot()}
    assert sorted(snapshot) == [IDEMPOTENT, COMMITS, ABORTS, STAYS_OPEN]
    assert (snapshot[IDEMPOTENT].last_sequence, snapshot[IDEMPOTENT].last_offset) == (23, 44)
    assert (snapshot[COMMITS].producer_epoch, snapshot[COMMITS].coordinator_epoch) == (1, 4)
    assert snapshot[STAYS_OPEN].current_txn_first_offset == log.first_unstable_offset == 71
    assert read_through(log.segments[1].txn_index.entries) == [AbortedTransaction(ABORTS, 49, 70, 71)]


def test_the_records_of_a_log_of_the_previous_release_are_read() -> None:
    log = opened(Machine(), clean=True)
    records, offset = [], 0
    while offset < log.log_end_offset:
        data = read_through(lambda at: log.read(at, 300, RECORDS_END).read_cached(), offset)
        for position, header in iter_headers(data):
            records += [] if header.is_control else list(iter_batch(data, position))
            offset = header.next_offset
    assert [record.offset for record in records] == [at for at in range(RECORDS_END) if at not in (48, 70)]
    first, last = records[0], records[-3]
    assert (first.key, first.value, first.timestamp) == (b"key-0", b"value-0", NOW_MS)
    assert first.headers == (("trace", b"0"), ("none", None))
    assert (last.key, last.value) == (b"key-15", b"value-15")
    assert (records[1].key, records[2].value) == (None, None)


def test_offsets_are_found_by_time_in_a_log_of_the_previous_release() -> None:
    log = opened(Machine(), clean=True)
    log.update_high_watermark(log.log_end_offset)
    steps = log.offset_for_timestamp(NOW_MS + 9000)
    found = looked_up(steps)
    assert found is not None
    assert (found.offset, found.timestamp) == (52, NOW_MS + 9000)


def test_opening_and_closing_a_log_of_the_previous_release_keeps_its_bytes() -> None:
    machine = Machine()
    opened(machine, clean=True).close(clean=True)
    assert machine.files(DIRECTORY) == files_of(LOG)


def test_recovery_rebuilds_identical_indexes_of_a_log_of_the_previous_release() -> None:
    """The snapshots of producer state below the log end are an exception: recovery does not write them, because it
    needs only the newest."""
    machine, golden = Machine(), files_of(LOG)
    machine.copy(DIRECTORY, {name: golden[name] for name in golden if name.endswith((".log", ".metadata"))})
    log = Log.open_log(machine.disk, DIRECTORY, CONFIG, clean=False, recovery_point=0, log_start=0, now_ms=NOW_MS)
    log.close(clean=True)
    left = {name for name in golden if name.endswith(".snapshot") and int(name[:20]) < RECORDS_END}
    assert machine.files(DIRECTORY) == {name: golden[name] for name in golden.keys() - left}
    assert len(left) == 2
