"""Compaction, transactions and producers: it must not change what readers get, nor a rebuilt producer state."""

from __future__ import annotations

from dataclasses import replace as changed

from kraft.storage.log import AppendOrigin, Log
from kraft.storage.markers import read_marker
from kraft.wire.records import Record, read_header
from kraft.wire.records.rewriting import emptied
from tests.stages.batches import LOG, NOW_MS, headers, lead, marker, open_log, read_all, warmed
from tests.stages.machine import Machine
from tests.storage.cleaning import COMPACTED, clean, committed, last_values, records, settle, write

CONFIG = changed(COMPACTED, segment_bytes=100_000, delete_retention_ms=1000)


def end(log: Log, producer: int, *, commit: bool, epoch: int = 0) -> int:
    return lead(log, marker(producer, epoch, commit=commit), origin=AppendOrigin.COORDINATOR).base_offset


def begun(machine: Machine) -> Log:
    return open_log(machine, CONFIG)


def markers(log: Log) -> list[int]:
    return [header.base_offset for header in headers(read_all(log)) if header.is_control]


def visible(found: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in found]


def test_compaction_removes_aborted_data_and_keeps_the_older_committed_value() -> None:
    machine = Machine()
    log = begun(machine)
    write(log, (b"a", b"old"))
    write(log, (b"a", b"aborted"), producer=(1, 0, 0), transactional=True)
    end(log, 1, commit=False)
    write(log, (b"b", b"1"))
    settle(log)
    clean(log, machine)
    assert visible(records(log)) == [(b"a", b"old"), (b"b", b"1")]
    assert visible(committed(log)) == visible(records(log))


def test_compaction_removes_values_superseded_by_committed_data() -> None:
    machine = Machine()
    log = begun(machine)
    write(log, (b"a", b"old"))
    write(log, (b"a", b"new"), producer=(1, 0, 0), transactional=True)
    end(log, 1, commit=True)
    settle(log)
    clean(log, machine)
    assert visible(committed(log)) == [(b"a", b"new")]
    assert markers(log) == [2]


def test_compaction_distinguishes_two_overlapping_transactions() -> None:
    machine = Machine()
    log = begun(machine)
    write(log, (b"a", b"1"), producer=(1, 0, 0), transactional=True)
    write(log, (b"a", b"2"), producer=(2, 0, 0), transactional=True)
    write(log, (b"b", b"1"), producer=(1, 0, 1), transactional=True)
    end(log, 2, commit=False)
    write(log, (b"b", b"2"), producer=(2, 0, 1), transactional=True)
    end(log, 1, commit=True)
    end(log, 2, commit=True)
    settle(log)
    before = last_values(committed(log))
    clean(log, machine)
    assert last_values(committed(log)) == before
    assert visible(committed(log)) == [(b"a", b"1"), (b"b", b"2")]


def test_compaction_keeps_a_marker_for_delete_retention_ms_after_its_data_is_removed() -> None:
    for commit in (True, False):
        machine = Machine()
        log = begun(machine)
        write(log, (b"a", b"1"), producer=(1, 0, 0), transactional=True)
        end(log, 1, commit=commit)
        write(log, (b"a", b"2"))
        write(log, (b"z", b"1"), producer=(1, 1, 0))  # so that the transaction is not its producer's last batch
        settle(log)
        clean(log, machine, now_ms=NOW_MS)
        assert markers(log) == [1], "the data went in this very round"
        clean(log, machine, 4, now_ms=NOW_MS + 10)
        stamped = next(header for header in headers(read_all(log)) if header.is_control)
        assert (stamped.has_delete_horizon, stamped.base_timestamp) == (True, NOW_MS + 1010)
        clean(log, machine, 4, now_ms=NOW_MS + 1009)
        assert markers(log) == [1]
        clean(log, machine, 4, now_ms=NOW_MS + 1010)
        assert markers(log) == []


def test_compaction_keeps_a_marker_while_any_of_its_data_remains() -> None:
    machine = Machine()
    log = begun(machine)
    write(log, (b"a", b"1"), (b"b", b"1"), producer=(1, 0, 0), transactional=True)
    end(log, 1, commit=True)
    write(log, (b"a", b"2"))
    settle(log)
    for day in range(3):
        clean(log, machine, now_ms=NOW_MS + day * 5000)
    assert markers(log) == [2]
    assert visible(committed(log)) == [(b"b", b"1"), (b"a", b"2")]


def test_compaction_finds_an_abort_in_a_later_segment_than_its_data() -> None:
    machine = Machine()
    log = open_log(machine, changed(COMPACTED, segment_bytes=300))
    write(log, (b"a", b"old"))
    write(log, (b"a", b"aborted"), producer=(1, 0, 0), transactional=True)
    for number in range(12):
        write(log, (b"k", b"%d" % number))
    end(log, 1, commit=False)
    settle(log)
    assert len(log.segments) > 3
    clean(log, machine)
    assert visible(records(log)) == [(b"a", b"old"), (b"k", b"11")]


def test_an_aborted_transaction_with_a_remaining_empty_batch_keeps_marker_and_entry() -> None:
    machine = Machine()
    log = begun(machine)
    write(log, (b"a", b"old"))
    write(log, (b"a", b"aborted"), producer=(1, 0, 0), transactional=True)
    at = end(log, 1, commit=False)
    settle(log)
    for day in range(3):
        clean(log, machine, now_ms=NOW_MS + day * 5000)
        assert [(header.base_offset, header.record_count) for header in headers(read_all(log))] == [
            (0, 1), (1, 0), (at, 1)
        ]  # fmt: skip
        assert warmed(lambda: log.aborted_transactions(0, log.log_end_offset)) == [(1, 1)]
    machine.kill()
    log = open_log(machine, CONFIG, recovery_point=0)
    log.update_high_watermark(log.log_end_offset)
    assert log.first_unstable_offset is None, "the transaction must not look open"
    assert log.aborted_transactions(0, log.log_end_offset) == [(1, 1)]


def test_a_transaction_index_entry_is_removed_with_its_data() -> None:
    machine = Machine()
    log = begun(machine)
    write(log, (b"a", b"aborted"), producer=(1, 0, 0), transactional=True)
    end(log, 1, commit=False)
    write(log, (b"z", b"1"), producer=(1, 1, 0))
    settle(log)
    clean(log, machine)
    assert log.aborted_transactions(0, log.log_end_offset) == [(1, 0)], "until a round finds no data"
    clean(log, machine)
    assert log.aborted_transactions(0, log.log_end_offset) == []


def test_an_abort_below_the_dirty_part_does_not_affect_later_commits_of_its_producer() -> None:
    machine = Machine()
    log = begun(machine)
    write(log, (b"a", b"aborted"), producer=(1, 0, 0), transactional=True)
    dirty_from = end(log, 1, commit=False) + 1
    write(log, (b"a", b"1"))
    write(log, (b"a", b"2"), producer=(1, 0, 1), transactional=True)
    end(log, 1, commit=True)
    settle(log)
    clean(log, machine, dirty_from)
    assert visible(records(log)) == [(b"a", b"2")]


def test_a_marker_batch_emptied_as_by_kafka_is_not_a_marker() -> None:
    batch = marker(1, 0, commit=True)
    assert read_marker(batch, 0, read_header(batch)) is not None
    empty = emptied(read_header(batch))
    assert read_header(empty).is_control
    assert read_marker(empty, 0, read_header(empty)) is None


def test_compaction_keeps_an_emptied_last_batch_of_a_producer_for_its_last_sequence() -> None:
    machine = Machine()
    log = begun(machine)
    write(log, (b"a", b"1"), (b"b", b"1"), producer=(1, 3, 40))
    write(log, (b"a", b"2"), (b"b", b"2"), producer=(1, 3, 42))
    write(log, (b"a", b"3"), (b"b", b"3"))
    settle(log)
    clean(log, machine)
    kept = headers(read_all(log))
    assert [(header.base_offset, header.record_count) for header in kept] == [(2, 0), (4, 2)]
    assert (kept[0].producer_epoch, kept[0].last_sequence, kept[0].last_offset) == (3, 43, 3)
    log = rebuilt(machine)
    duplicate = write(log, (b"a", b"2"), (b"b", b"2"), producer=(1, 3, 42))
    assert duplicate == 2
    assert write(log, (b"c", b"1"), producer=(1, 3, 44)) == 6


def test_compaction_keeps_the_epoch_of_a_producer_that_has_only_markers() -> None:
    machine = Machine()
    log = begun(machine)
    write(log, (b"a", b"1"), producer=(1, 0, 0), transactional=True)
    end(log, 1, commit=True, epoch=1)
    write(log, (b"a", b"2"))
    settle(log)
    for day in range(4):
        clean(log, machine, now_ms=NOW_MS + day * 5000)
    assert markers(log) == [1]
    assert rebuilt(machine).producers.entries[1].epoch == 1


def test_compaction_removes_everything_of_an_expired_producer() -> None:
    machine = Machine()
    log = begun(machine)
    write(log, (b"a", b"1"), producer=(1, 0, 0))
    write(log, (b"a", b"2"))
    settle(log)
    clean(log, machine)
    assert len(headers(read_all(log))) == 2
    log.expire_producers(NOW_MS + CONFIG.producer_id_expiration_ms + 1)
    clean(log, machine)
    assert len(headers(read_all(log))) == 1


def rebuilt(machine: Machine) -> Log:
    """Return the log with its producer state rebuilt only from its batches."""
    machine.kill()
    for name in machine.files(LOG):
        if name.endswith(".snapshot"):
            machine.disk.unlink(f"{LOG}/{name}")
    return open_log(machine, CONFIG, recovery_point=0)
