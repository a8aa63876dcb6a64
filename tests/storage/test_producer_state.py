"""Producer state: the rules of idempotence, snapshots, and equality of states derived from the same log."""

from __future__ import annotations

import random
from struct import pack

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.storage.log import AppendOrigin, AppendRefused, Log, LogConfig
from kraft.storage.producers.producer_state import ProducerStates
from kraft.storage.producers.snapshot_file import SnapshotEntry, decode, encode
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import read_header
from tests.stages.batches import LOG, NOW_MS, batch, follow, lead, marker, open_log, read_all, warmed
from tests.stages.machine import Machine

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150)
SEQUENCE_MAX = 2**31 - 1


@pytest.fixture
def log() -> Log:
    return open_log(Machine(), CONFIG)


def refused(log: Log, data: bytearray, **options: AppendOrigin) -> ErrorCode:
    before = (log.log_end_offset, log.size_bytes)
    with pytest.raises(AppendRefused) as caught:
        lead(log, data, **options)
    assert (log.log_end_offset, log.size_bytes) == before
    return caught.value.error_code


def test_a_duplicate_of_each_of_the_last_five_batches_gets_the_offset_of_the_original_batch(log: Log) -> None:
    for sequence in range(0, 21, 3):
        lead(log, batch(3, producer=(7, 0, sequence)))
    for sequence in range(6, 21, 3):
        info = lead(log, batch(3, producer=(7, 0, sequence)))
        assert (info.base_offset, info.last_offset, info.duplicate) == (sequence, sequence + 2, True)
    assert log.log_end_offset == 21
    assert refused(log, batch(3, producer=(7, 0, 3))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batch_that_overlaps_earlier_producer_sequences_is_rejected_as_out_of_order(log: Log) -> None:
    lead(log, batch(3, producer=(7, 0, 0)))
    assert refused(log, batch(2, producer=(7, 0, 0))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_sequence_gap_is_refused_and_the_missing_batch_is_still_accepted(log: Log) -> None:
    lead(log, batch(2, producer=(7, 0, 0)))
    assert refused(log, batch(2, producer=(7, 0, 4))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert lead(log, batch(2, producer=(7, 0, 2))).base_offset == 2


def test_an_unknown_producer_may_begin_with_any_sequence(log: Log) -> None:
    assert not lead(log, batch(1, producer=(7, 3, 55))).duplicate
    assert not lead(log, batch(1, producer=(7, 3, 56))).duplicate


def test_an_older_producer_epoch_is_fenced_and_a_newer_one_begins_at_sequence_zero(log: Log) -> None:
    lead(log, batch(1, producer=(7, 3, 0)))
    assert refused(log, batch(1, producer=(7, 2, 1))) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(log, batch(1, producer=(7, 4, 1))) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    lead(log, batch(1, producer=(7, 4, 0)))
    assert refused(log, batch(1, producer=(7, 3, 0))) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_producer_sequence_after_the_largest_is_zero(log: Log) -> None:
    lead(log, batch(2, producer=(7, 0, SEQUENCE_MAX - 1)))
    lead(log, batch(2, producer=(7, 0, 0)))
    assert lead(log, batch(2, producer=(7, 0, SEQUENCE_MAX - 1))).base_offset == 0


def test_a_batch_may_wrap_around_the_largest_producer_sequence(log: Log) -> None:
    lead(log, batch(4, producer=(7, 0, SEQUENCE_MAX - 1)))
    assert lead(log, batch(4, producer=(7, 0, SEQUENCE_MAX - 1))).duplicate
    assert not lead(log, batch(1, producer=(7, 0, 2))).duplicate


def test_a_duplicate_in_an_append_time_log_gets_the_append_time_of_the_original_batch() -> None:
    log = open_log(Machine(), LogConfig(log_append_time=True))
    assert lead(log, batch(1, producer=(7, 0, 0)), now_ms=NOW_MS + 1).log_append_time_ms == NOW_MS + 1
    assert lead(log, batch(1, producer=(7, 0, 0)), now_ms=NOW_MS + 9).log_append_time_ms == NOW_MS + 1


def test_producer_sequences_are_checked_only_in_appends_of_clients(log: Log) -> None:
    lead(log, batch(1, producer=(7, 1, 0)))
    lead(log, batch(1, producer=(7, 1, 40)), origin=AppendOrigin.COORDINATOR)
    fenced = refused(log, batch(1, producer=(7, 0, 41)), origin=AppendOrigin.COORDINATOR)
    assert fenced == ErrorCode.INVALID_PRODUCER_EPOCH


def test_inactive_producers_expire_unless_their_transaction_is_open(log: Log) -> None:
    lead(log, batch(1, producer=(1, 0, 0), timestamp=1000))
    lead(log, batch(1, producer=(2, 0, 0), timestamp=1000, transactional=True))
    lead(log, batch(1, producer=(3, 0, 0), timestamp=5000))
    assert log.producers.expire(6001, 4000) == 1
    assert sorted(log.producers.entries) == [2, 3]


def test_a_truncation_restores_earlier_producer_state(log: Log) -> None:
    for sequence in range(30):
        lead(log, batch(1, producer=(7, 0, sequence)))
    log.truncate_to(12, NOW_MS)
    assert log.producers.entries[7].next_sequence == 12
    assert lead(log, batch(1, producer=(7, 0, 12))).base_offset == 12
    log.truncate_fully(100, NOW_MS)
    assert not log.producers.entries


def test_a_producer_snapshot_has_kafkas_bytes() -> None:
    entry = SnapshotEntry(1, 2, 3, 4, 5, 6, 7, -1)
    body = pack(">i", 1) + pack(">qhiqiqiq", 1, 2, 3, 4, 5, 6, 7, -1)
    assert encode([entry]) == pack(">hI", 1, crc32c(body)) + body
    assert len(encode([entry])) == 10 + 46
    assert decode(encode([entry])) == [entry]


@settings(max_examples=50, deadline=None)
@given(st.binary(min_size=1, max_size=1), st.integers(0, 55))
def test_a_damaged_producer_snapshot_decodes_to_none(byte: bytes, position: int) -> None:
    data = bytearray(encode([SnapshotEntry(1, 2, 3, 4, 5, 6, 7, -1)]))
    if data[position : position + 1] != byte:
        data[position : position + 1] = byte
        assert decode(bytes(data)) is None
    assert decode(bytes(data[:position])) is None


def test_a_damaged_producer_snapshot_is_deleted_and_the_log_is_scanned_instead() -> None:
    machine = Machine()
    log = open_log(machine, CONFIG)
    for sequence in range(20):
        lead(log, batch(1, producer=(7, 0, sequence)))
    expected = log.producers.snapshot()
    log.close(clean=True)
    newest = f"{LOG}/{20:020d}.snapshot"
    machine.overwrite(newest, b"nonsense")
    log = open_log(machine, CONFIG, clean=True)
    assert log.producers.snapshot() == expected
    assert not machine.disk.exists(newest)


@pytest.mark.parametrize("seed", range(10))
def test_a_producer_snapshot_removed_by_truncation_stays_removed_after_a_power_loss(seed: int) -> None:
    machine = Machine(seed)
    log = open_log(machine)
    for sequence in range(10):
        lead(log, batch(1, producer=(7, 0, sequence)))
    log.close(clean=True)  # a snapshot of offset 10
    log = open_log(machine, clean=True, recovery_point=10)
    log.truncate_to(8, NOW_MS)
    for sequence in range(8):
        follow(log, batch(1, base=8 + sequence, epoch=1, producer=(9, 0, sequence)))
    machine.host.write_back()
    machine.power_off()
    log = open_log(machine, recovery_point=8)
    assert log.log_end_offset == 16
    log.truncate_to(12, NOW_MS)
    assert log.producers.entries[7].next_sequence == 8
    assert log.producers.entries[9].next_sequence == 4


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32), st.booleans())
def test_producer_state_of_leader_follower_and_rebuild_is_equal(seed: int, clean: bool) -> None:
    draw = random.Random(seed)
    machine = Machine(seed)
    leader = open_log(machine, CONFIG, directory="/data/leader-0")
    sequences = [0] * 3
    epochs = [0] * 3
    for _ in range(40):
        producer = draw.randrange(3)
        state = leader.producers.entries.get(producer)
        in_transaction = state is not None and state.txn_first_offset >= 0
        if in_transaction and draw.random() < 0.5:
            epochs[producer] += draw.randrange(2)
            commit = draw.random() < 0.5
            lead(leader, marker(producer, epochs[producer], commit=commit), origin=AppendOrigin.COORDINATOR)
            sequences[producer] = leader.producers.entries[producer].next_sequence
            continue
        count = draw.randint(1, 3)
        data = batch(
            count,
            producer=(producer, epochs[producer], sequences[producer]),
            transactional=in_transaction or draw.random() < 0.5,
            size=draw.choice([5, 100]),
        )
        lead(leader, data)
        sequences[producer] += count
    follower = open_log(machine, CONFIG)
    follow(follower, read_all(leader))
    leader.close(clean=clean)
    machine.kill()
    rebuilt = open_log(machine, CONFIG, clean=clean, directory="/data/leader-0")
    assert leader.producers.snapshot() == follower.producers.snapshot() == rebuilt.producers.snapshot()
    aborted = [
        warmed(lambda log=log: log.aborted_transactions(0, leader.log_end_offset))  # type: ignore[misc]
        for log in (follower, rebuilt)
    ]
    assert aborted[0] == aborted[1]


def test_the_work_per_transaction_does_not_grow_with_the_number_of_transactions_in_the_log() -> None:
    class CountedOffset(int):
        def __lt__(self, other: int) -> bool:
            nonlocal comparisons
            comparisons += 1
            return int(self) < other

    comparisons, transactions = 0, 200
    header = read_header(batch(1, producer=(7, 0, 0), transactional=True))
    states = ProducerStates(0)
    for offset in range(0, 2 * transactions, 2):
        states.apply_batch(header, CountedOffset(offset))
        states.apply_marker(7, 0, 0, offset + 1, NOW_MS, aborted=False)
        states.complete(7, offset + 1)
    assert states.first_unstable_offset == 0, "the high watermark is still 0"
    assert comparisons <= 10 * transactions
