"""Recovery: what a crash can leave, and what is damage. Every byte position of a small log is tried."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft.seam import StorageCorrupt
from kraft.storage.log import Log, LogConfig
from kraft.storage.recovery import SECTOR_BYTES
from tests.stages.batches import LOG, NOW_MS, batch, headers, lead, open_log, read_all, sync
from tests.stages.machine import Machine

CONFIG = LogConfig(segment_bytes=1 << 20, index_interval_bytes=150)
LOG_FILE = f"{LOG}/{0:020d}.log"


def written(machine: Machine, count: int = 6, *, size: int = 40, config: LogConfig = CONFIG) -> list[bytes]:
    """Write a log of `count` batches in /data/orders-0; return their bytes."""
    log = open_log(machine, config)
    datas = [batch(2, size=size, fill=b"%d" % number) for number in range(count)]
    for data in datas:
        lead(log, data)
    log.close(clean=True)
    return [bytes(data) for data in datas]


def reopened(machine: Machine, data: bytes, **options: int | bool) -> Log:
    """Reopen the log after its only segment's file was replaced by these bytes."""
    machine.overwrite(LOG_FILE, data)
    return open_log(machine, CONFIG, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("strict", [False, True])
def test_a_segment_file_truncated_at_any_byte_recovers_its_whole_batches(strict: bool) -> None:
    machine = Machine()
    datas = written(machine)
    whole = b"".join(datas)
    ends = [sum(map(len, datas[:count])) for count in range(len(datas) + 1)]
    for cut in range(len(whole) + 1):
        log = reopened(machine, whole[:cut], strict=strict)
        kept = max(end for end in ends if end <= cut)
        assert read_all(log) == whole[:kept]
        assert log.recovery_report.bytes_cut == cut - kept
        assert machine.content(LOG_FILE) == whole[:kept]


@pytest.mark.parametrize("strict", [False, True])
def test_a_bit_flipped_in_any_byte_below_the_synced_end_stops_the_log(strict: bool) -> None:
    machine = Machine()
    datas = written(machine, 3)
    whole = b"".join(datas)
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 0x10
        if flips_outside_the_crc(position, datas, strict):
            continue
        with pytest.raises(StorageCorrupt, match=r"00000\.log: the batch at byte \d+ .*To continue") as caught:
            reopened(machine, bytes(flipped), recovery_point=6, strict=strict)
        assert LOG_FILE in str(caught.value)


def flips_outside_the_crc(position: int, datas: list[bytes], strict: bool) -> bool:
    """Return whether a flip of this byte cannot be detected.

    A leader epoch is covered by no CRC. Neither is the base offset: a larger one is a legal gap if it fits the segment,
    except in the metadata log, which has no gaps."""
    starts = [sum(map(len, datas[:count])) for count in range(len(datas))]
    epoch = any(12 <= position - start < 16 for start in starts)
    last_base_offset = 4 <= position - starts[-1] < 8
    return epoch or (last_base_offset and not strict)


def test_a_bit_flipped_before_other_unsynced_batches_is_damage() -> None:
    machine = Machine()
    whole = b"".join(written(machine))
    flipped = bytearray(whole)
    flipped[100] ^= 1
    with pytest.raises(StorageCorrupt, match="good batches follow it"):
        reopened(machine, bytes(flipped))


def test_a_bit_flipped_in_the_last_batch_is_truncated_but_stops_the_metadata_log() -> None:
    machine = Machine()
    datas = written(machine)
    flipped = bytearray(b"".join(datas))
    flipped[-5] ^= 1
    with pytest.raises(StorageCorrupt, match=r"it is whole.*rejoins with a new directory id"):
        reopened(machine, bytes(flipped), strict=True)
    assert read_all(reopened(machine, bytes(flipped))) == b"".join(datas[:-1])


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("lost", range(1, 7))
def test_a_lost_sector_above_the_synced_end_is_truncated_with_all_after_it(lost: int, strict: bool) -> None:
    machine = Machine()
    datas = written(machine, 6, size=300)
    whole = b"".join(datas)
    torn = bytearray(whole)
    torn[lost * SECTOR_BYTES : (lost + 1) * SECTOR_BYTES] = bytes(SECTOR_BYTES)
    log = reopened(machine, bytes(torn), strict=strict)
    kept = 0
    while torn.startswith(b"".join(datas[: kept + 1])):
        kept += 1
    assert read_all(log) == b"".join(datas[:kept])


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("piece", range(1, 13))
@pytest.mark.parametrize("behind", [0, 2])
def test_a_lost_sector_with_a_few_bytes_of_a_batch_is_a_torn_tail(piece: int, behind: int, strict: bool) -> None:
    """If a batch begins at the end of a sector, up to 10 of its bytes in that sector are covered by no CRC: those of
    its offset, and the zeros at the start of its length. Here the log was synced up to that batch."""
    machine = Machine()
    log = open_log(machine, CONFIG, strict=strict)
    first = bytes(batch(300, size=1))  # so that the next offset has more than one byte
    filler = bytes(batch(1, size=(-len(first) - piece - len(batch(1, size=0))) % SECTOR_BYTES))
    while (len(first) + len(filler) + piece) % SECTOR_BYTES:
        filler = bytes(batch(1, size=(len(filler) - len(batch(1, size=0))) + 1))
    datas = [bytearray(first), bytearray(filler), *(batch(2, size=30) for _ in range(1 + behind))]
    for data in datas:
        lead(log, data)
    log.close(clean=True)
    kept = bytes(datas[0]) + bytes(datas[1])
    whole = bytearray(b"".join(map(bytes, datas)))
    whole[len(kept) : len(kept) + piece] = bytes(piece)
    assert (len(kept) + piece) % SECTOR_BYTES == 0
    found = read_all(reopened(machine, bytes(whole), strict=strict, recovery_point=301))
    assert found == (kept if piece > 6 else b"".join(map(bytes, datas)))


def test_a_zero_offset_not_at_the_end_of_a_sector_is_damage() -> None:
    machine = Machine()
    datas = written(machine, 3, size=300)
    whole = bytearray(b"".join(datas))
    whole[len(datas[0]) : len(datas[0]) + 8] = bytes(8)
    assert len(datas[0]) % SECTOR_BYTES < SECTOR_BYTES - 8
    with pytest.raises(StorageCorrupt, match="its CRC matches"):
        reopened(machine, bytes(whole))


def test_zeros_in_only_a_part_of_a_sector_are_damage() -> None:
    """A sector is written to the device completely or not at all."""
    machine = Machine()
    datas = written(machine, 3, size=100)
    whole = bytearray(b"".join(datas))[:SECTOR_BYTES]
    whole[: len(datas[0])] = bytes(len(datas[0]))
    assert len(datas[0]) < len(whole)
    with pytest.raises(StorageCorrupt, match="is damaged"):
        reopened(machine, bytes(whole), strict=True)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.booleans())
def test_a_power_loss_never_prevents_a_start_and_never_loses_synced_data(seed: int, strict: bool) -> None:
    machine = Machine(seed)
    config = LogConfig(segment_bytes=1500, index_interval_bytes=150)
    log = open_log(machine, config, strict=strict)
    synced = 0
    whole = b""
    for life in range(4):
        for number in range(12):
            data = batch(2, size=(seed + number * 37) % 400)
            lead(log, data, life)
            whole += bytes(data)
            if (seed >> number) % 5 == 0:
                sync(log)
                synced = log.log_end_offset
        machine.power_off()
        log = open_log(machine, config, strict=strict, recovery_point=synced)
        assert log.log_end_offset >= synced
        found = read_all(log)
        assert whole.startswith(found)
        whole = found


def test_zeros_after_the_last_batch_are_truncated() -> None:
    machine = Machine()
    whole = b"".join(written(machine))
    assert read_all(reopened(machine, whole + bytes(700), strict=True)) == whole


def test_a_metadata_log_that_ends_below_its_synced_end_does_not_start() -> None:
    machine = Machine()
    datas = written(machine)
    with pytest.raises(StorageCorrupt, match=r"ends at offset 10, but all below offset 12 was synced"):
        reopened(machine, b"".join(datas[:-1]), recovery_point=12, strict=True)


def test_a_metadata_log_with_a_gap_in_its_offsets_does_not_start() -> None:
    machine = Machine()
    datas = written(machine)
    with pytest.raises(StorageCorrupt, match="begins at offset 4, expected 2"):
        reopened(machine, datas[0] + b"".join(datas[2:]), strict=True)


def test_segments_wholly_below_the_recovery_point_are_not_read() -> None:
    machine = Machine()
    written(machine, 20, config=LogConfig(segment_bytes=400))
    log = open_log(machine, LogConfig(segment_bytes=400), recovery_point=38, index_recovery_point=38)
    assert log.recovery_report.segments_read == 1


def test_a_clean_start_reads_no_batches_and_an_unclean_start_recovers_the_same_log() -> None:
    machine = Machine()
    datas = written(machine, 20, config=LogConfig(segment_bytes=400))
    clean = open_log(machine, LogConfig(segment_bytes=400), clean=True)
    assert clean.recovery_report.segments_read == 0
    assert clean.recovery_point == clean.log_end_offset
    unclean = open_log(machine, LogConfig(segment_bytes=400))
    assert unclean.recovery_point == 0
    assert read_all(clean) == read_all(unclean) == b"".join(datas)
    assert clean.epochs.entries == unclean.epochs.entries


def test_damage_in_the_last_segment_of_a_clean_log_is_found() -> None:
    machine = Machine()
    whole = b"".join(written(machine))
    machine.overwrite(LOG_FILE, whole[:-10])
    with pytest.raises(StorageCorrupt, match=r"\.log: the batch at byte \d+ is damaged"):
        open_log(machine, CONFIG, clean=True)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("data", [None, b"", b"12345", bytes(8) + b"\xff" * 16])
def test_a_missing_or_invalid_index_is_rebuilt(suffix: str, data: bytes | None) -> None:
    machine = Machine()
    datas = written(machine, 20, config=LogConfig(segment_bytes=600, index_interval_bytes=100))
    path = f"{LOG}/{0:020d}{suffix}"
    before = machine.content(path)
    if data is None:
        machine.disk.unlink(path)
    else:
        machine.overwrite(path, data)
    log = open_log(machine, LogConfig(segment_bytes=600, index_interval_bytes=100), clean=True)
    assert read_all(log) == b"".join(datas)
    if data != b"":  # an empty index is legal: lookups then scan from the segment's start
        assert machine.content(path) == before


def test_recovery_removes_the_segments_after_one_whose_end_was_lost() -> None:
    machine = Machine()
    datas = written(machine, 12, config=LogConfig(segment_bytes=400))
    size = len(machine.content(LOG_FILE))
    machine.overwrite(LOG_FILE, machine.content(LOG_FILE)[: size - len(datas[0])])
    log = open_log(machine, LogConfig(segment_bytes=400))
    kept = size // len(datas[0]) - 1
    assert read_all(log) == b"".join(datas[:kept])
    assert [name for name in machine.files(LOG) if name.endswith(".log")] == [f"{0:020d}.log"]


def test_a_log_that_ends_below_its_log_start_restarts_there() -> None:
    machine = Machine()
    written(machine)
    log = open_log(machine, CONFIG, log_start=500)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (500, 500, 0)
    info = lead(log, batch())
    assert info.base_offset == 500


def test_index_files_without_a_log_file_are_removed() -> None:
    machine = Machine()
    whole = b"".join(written(machine))
    machine.put(f"{LOG}/{77:020d}.index", b"12345678")
    assert read_all(open_log(machine, CONFIG, clean=True)) == whole
    assert f"{77:020d}.index" not in machine.files(LOG)


def test_a_lost_or_damaged_leader_epoch_checkpoint_is_rebuilt_from_the_batches() -> None:
    machine = Machine()
    log = open_log(machine, CONFIG)
    for epoch in (1, 1, 4, 7):
        lead(log, batch(2), epoch)
    log.close(clean=True)
    path = f"{LOG}/leader-epoch-checkpoint"
    assert machine.content(path) == b"0\n3\n1 0\n4 4\n7 6\n"
    machine.overwrite(path, b"0\n3\n1 0\n4")
    assert open_log(machine, CONFIG, clean=True).epochs.entries == ((1, 0), (4, 4), (7, 6))
    machine.disk.unlink(path)
    assert open_log(machine, CONFIG, clean=True).epochs.entries == ((1, 0), (4, 4), (7, 6))


def test_a_large_batch_is_recovered_completely() -> None:
    machine = Machine()
    log = open_log(machine, LogConfig())
    datas = [batch(1, size=5_000_000), batch(1, size=30), batch(1, size=5_000_000)]
    for data in datas:
        lead(log, data)
    machine.kill()
    assert read_all(open_log(machine, LogConfig())) == b"".join(datas)


def test_recovery_does_not_sync_recovered_bytes_and_reports_them_unsynced() -> None:
    machine = Machine()
    log = open_log(machine, LogConfig(segment_bytes=300))
    for _ in range(8):
        lead(log, batch(2, size=40))
    machine.kill()
    log = open_log(machine, LogConfig(segment_bytes=300))
    assert (log.recovery_point, log.unsynced) == (0, True)
    sync(log)
    assert (log.recovery_point, log.unsynced) == (16, False)
    machine.power_off()
    assert open_log(machine, LogConfig(segment_bytes=300), recovery_point=16).log_end_offset == 16


def test_a_good_batch_with_a_decreasing_offset_or_epoch_is_damage() -> None:
    machine = Machine()
    datas = written(machine, 2)
    for bad in (batch(1, base=1, epoch=0), batch(1, base=4, epoch=-1)):
        with pytest.raises(StorageCorrupt, match="its CRC matches"):
            reopened(machine, b"".join(datas) + bytes(bad))


def test_appends_continue_where_recovery_truncated_the_log() -> None:
    machine = Machine()
    datas = written(machine, 3)
    log = reopened(machine, b"".join(datas)[:-7])
    data = batch(1)
    assert lead(log, data, 5).base_offset == 4
    assert read_all(log) == b"".join(datas[:2]) + bytes(data)
    assert headers(read_all(log))[-1].partition_leader_epoch == 5
    assert headers(bytes(data))[0].max_timestamp == NOW_MS


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_rebuilt_index_of_a_synced_segment_is_durable(suffix: str) -> None:
    config = LogConfig(segment_bytes=3000, index_interval_bytes=50)
    for seed in range(10):
        machine = Machine(seed)
        log = open_log(machine, config)
        for number in range(60):
            lead(log, batch(1, timestamp=NOW_MS + number))
        sync(log)
        saved = log.recovery_point
        log.close(clean=False)
        path = f"{LOG}/{0:020d}{suffix}"
        whole = machine.content(path)
        machine.overwrite(path, whole[:-1])
        for _ in range(2):
            open_log(machine, config, recovery_point=saved)
            machine.power_off()
            assert machine.content(path) == whole
