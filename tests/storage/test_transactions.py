"""Transactions in one log: last stable offset, transaction index, aborted transactions of a read, markers."""

from __future__ import annotations

import pytest

from kraft.seam import DiskError
from kraft.storage.log import AppendOrigin, AppendRefused, Log, LogConfig
from kraft.wire.error_codes import ErrorCode
from tests.stages.batches import LOG, NOW_MS, batch, lead, marker, open_log, read, read_all, warmed
from tests.stages.machine import Machine

CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=100)


@pytest.fixture
def log() -> Log:
    return open_log(Machine(), CONFIG)


def data(log: Log, producer: int, sequence: int, count: int = 1, epoch: int = 0) -> int:
    found = lead(log, batch(count, producer=(producer, epoch, sequence), transactional=True))
    return found.base_offset


def end(log: Log, producer: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> int:
    record = marker(producer, epoch, commit=commit, coordinator_epoch=coordinator_epoch)
    return lead(log, record, origin=AppendOrigin.COORDINATOR).base_offset


def refusal(log: Log, record: bytearray, origin: AppendOrigin = AppendOrigin.COORDINATOR) -> ErrorCode:
    with pytest.raises(AppendRefused) as caught:
        lead(log, record, origin=origin)
    return caught.value.error_code


def aborted(log: Log, offset: int, upper: int) -> list[tuple[int, int]]:
    return warmed(lambda: log.aborted_transactions(offset, upper))


def test_the_last_stable_offset_stops_at_the_oldest_open_transaction(log: Log) -> None:
    lead(log, batch(5))
    first = data(log, 1, 0)
    second = data(log, 2, 0)
    log.update_high_watermark(log.log_end_offset)
    assert (log.first_unstable_offset, log.last_stable_offset) == (first, first) == (5, 5)
    end(log, 1, commit=True)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == second


def test_a_decided_transaction_is_unstable_until_its_marker_is_below_the_high_watermark(log: Log) -> None:
    first = data(log, 1, 0)
    at = end(log, 1, commit=False)
    log.update_high_watermark(at)
    assert (log.first_unstable_offset, log.last_stable_offset) == (first, first)
    log.update_high_watermark(at + 1)
    assert (log.first_unstable_offset, log.last_stable_offset) == (None, at + 1)


def test_transaction_index_has_entries_in_kafkas_format_only_for_aborts_with_data() -> None:
    machine = Machine()
    log = open_log(machine, CONFIG)
    end(log, 9, commit=False)
    data(log, 1, 0, 2)
    data(log, 2, 0)
    end(log, 2, commit=True)
    at = end(log, 1, commit=False)
    expected = b"\0\0" + b"".join(value.to_bytes(8, "big") for value in (1, 1, at, at + 1))
    assert machine.content(f"{LOG}/{0:020d}.txnindex") == expected


def test_last_stable_offset_in_a_transaction_index_entry_is_the_start_of_the_oldest_other_transaction(log: Log) -> None:
    data(log, 1, 0)
    other = data(log, 2, 0)
    end(log, 1, commit=False)
    (entry,) = log.active.txn_index.entries()
    assert entry.last_stable_offset == other


def test_a_read_gets_all_overlapping_aborted_transactions_across_segments() -> None:
    log = open_log(Machine(3, cold_read_one_in=2), LogConfig(segment_bytes=400, index_interval_bytes=50))
    spans: list[tuple[int, int, int]] = []
    for round_number in range(12):
        producer = round_number % 3
        first = data(log, producer, round_number // 3 * 2)
        for _ in range(4):
            lead(log, batch(1, size=60))
        data(log, producer, round_number // 3 * 2 + 1)
        spans.append((producer, first, end(log, producer, commit=False)))
    assert len(log.segments) > 8
    for offset in range(log.log_end_offset):
        for most in (1, 300, 2000):
            piece = read(log, offset, most)
            upper = warmed(lambda piece=piece: log.upper_bound(piece))  # type: ignore[misc]
            found = aborted(log, offset, upper)
            read_end = upper if piece.size_bytes else offset
            for producer, first, last in spans:
                if first < read_end and last >= offset:
                    assert (producer, first) in found


def test_a_read_after_all_transactions_gets_no_aborted_transactions(log: Log) -> None:
    data(log, 1, 0)
    end(log, 1, commit=False)
    at = lead(log, batch(3)).base_offset
    assert aborted(log, at, log.log_end_offset) == []
    assert aborted(log, 0, 1) == [(1, 0)]


def test_a_marker_of_an_older_producer_or_coordinator_epoch_is_refused(log: Log) -> None:
    data(log, 1, 0, epoch=5)
    assert refusal(log, marker(1, 4, commit=True)) == ErrorCode.INVALID_PRODUCER_EPOCH
    end(log, 1, commit=True, epoch=5, coordinator_epoch=3)
    stale = marker(1, 5, commit=True, coordinator_epoch=2)
    assert refusal(log, stale) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_only_a_marker_that_bumps_the_producer_epoch_clears_the_producers_sequences(log: Log) -> None:
    data(log, 1, 0)
    end(log, 1, commit=True)
    data(log, 1, 1)
    end(log, 1, commit=True, epoch=1)
    wrong = batch(1, producer=(1, 1, 2), transactional=True)
    assert refusal(log, wrong, AppendOrigin.CLIENT) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    data(log, 1, 0, epoch=1)


def test_non_transactional_batch_of_a_producer_with_an_open_transaction_is_refused(log: Log) -> None:
    data(log, 1, 0)
    assert refusal(log, batch(1, producer=(1, 0, 1)), AppendOrigin.CLIENT) == ErrorCode.INVALID_TXN_STATE


def test_open_transactions_survive_restarts_and_truncations() -> None:
    machine = Machine()
    log = open_log(machine, CONFIG)
    data(log, 1, 0)
    data(log, 2, 0)
    end(log, 2, commit=False)
    log.close(clean=True)
    for clean in (True, False):
        log = open_log(machine, CONFIG, clean=clean)
        assert log.first_unstable_offset == 0
        assert aborted(log, 0, 10) == [(2, 1)]
    log.truncate_to(2, NOW_MS)
    assert aborted(log, 0, 10) == []
    assert log.first_unstable_offset == 0
    assert log.producers.entries[2].txn_first_offset == 1


def test_a_lost_transaction_index_is_rebuilt() -> None:
    machine = Machine()
    log = open_log(machine, CONFIG)
    data(log, 1, 0)
    end(log, 1, commit=False)
    lead(log, batch(4))
    log.close(clean=True)
    path = f"{LOG}/{0:020d}.txnindex"
    good = machine.content(path)
    machine.overwrite(path, good[:-1])
    log = open_log(machine, CONFIG, clean=True)
    assert aborted(log, 0, 10) == [(1, 0)]
    assert machine.content(path) == good


def test_retention_never_passes_the_first_open_transaction() -> None:
    log = open_log(Machine(), LogConfig(segment_bytes=200, retention_bytes=0))
    lead(log, batch(1, size=150))
    opened = data(log, 1, 0)
    for _ in range(5):
        lead(log, batch(1, size=150))
    log.update_high_watermark(log.log_end_offset)
    found = log.deletable_segments(NOW_MS)
    assert [segment.base_offset for segment in found] == [0]
    assert log.segments[1].base_offset == opened


def test_a_failed_write_of_an_aborts_index_entry_stops_the_log() -> None:
    machine = Machine()
    log = open_log(machine, CONFIG)
    data(log, 1, 0)
    before = read_all(log)
    log.active.txn_index.handle.path = "/nowhere/at/all.txnindex"  # its folder does not exist: creating it fails
    with pytest.raises(DiskError):
        end(log, 1, commit=False)
    assert log.log_end_offset == 1
    with pytest.raises(DiskError):
        lead(log, batch(1))
    assert read_all(log) == before
