"""Snapshots of the metadata log: writing, validating, sending in chunks, and refusing invalid ones."""

from __future__ import annotations

import pytest

from kraft.seam import StorageCorrupt
from kraft.storage.snapshots import (
    PositionOutOfRange,
    SnapshotId,
    SnapshotNotFound,
    SnapshotReceiver,
    SnapshotStore,
)
from kraft.wire.records import BATCH_HEADER_BYTES, iter_headers, write_crc
from kraft.wire.records.control_records import ControlRecord, ControlRecordType
from tests.stages.batches import NOW_MS
from tests.stages.machine import FOLDER, Machine

ID = SnapshotId(120, 4)
NAME = "00000000000000000120-0000000004.checkpoint"
VALUES = [(b"one", b"two"), (b"three",)]
VERSION = ControlRecord(type=ControlRecordType.KRAFT_VERSION, kraft_version=1)


def store_of(machine: Machine) -> SnapshotStore:
    return SnapshotStore(machine.disk, FOLDER)


def write(machine: Machine, snapshot: SnapshotId = ID) -> SnapshotStore:
    store = store_of(machine)
    writer = store.create(snapshot, last_contained_log_timestamp=77, now_ms=NOW_MS)
    writer.append_controls(VERSION)
    for values in VALUES:
        writer.append(values)
    writer.append(())
    writer.finish()
    return store


def test_a_metadata_snapshot_reads_back_as_written() -> None:
    machine = Machine()
    reader = write(machine).open(ID)
    batches = list(reader.batches())
    assert [batch.values for batch in batches] == [(), *VALUES]
    assert batches[0].controls[0].kraft_version == 1
    assert {batch.append_time_ms for batch in batches} == {NOW_MS}
    assert reader.last_contained_log_timestamp() == 77


def test_batches_in_a_metadata_snapshot_start_at_offset_zero_with_its_epoch() -> None:
    machine = Machine()
    write(machine)
    found = [header for _, header in iter_headers(machine.content(f"{FOLDER}/{NAME}"))]
    assert [header.base_offset for header in found] == [0, 1, 2, 4, 5]
    assert {header.partition_leader_epoch for header in found} == {4}
    assert [header.is_control for header in found] == [True, True, False, False, True]


def test_a_metadata_snapshot_gets_its_name_only_when_complete_and_durable() -> None:
    machine = Machine(4)
    store = store_of(machine)
    writer = store.create(ID, last_contained_log_timestamp=0, now_ms=NOW_MS)
    writer.append((b"x",))
    assert store.list() == []
    writer.finish()
    machine.power_off()
    store = store_of(machine)
    assert store.list() == [ID]
    store.open(ID).validate()


def test_unfinished_and_deleted_metadata_snapshots_are_removed_and_never_listed() -> None:
    machine = Machine()
    store = write(machine)
    other = SnapshotId(200, 5)
    store.create(other, last_contained_log_timestamp=0, now_ms=NOW_MS)
    marked = store.mark_deleted(ID)
    assert store.list() == []
    assert machine.disk.exists(marked)
    store.clear_leftovers()
    assert not machine.files(FOLDER)


def test_an_abandoned_metadata_snapshot_leaves_no_file() -> None:
    machine = Machine()
    store_of(machine).create(ID, last_contained_log_timestamp=0, now_ms=NOW_MS).abandon()
    assert not machine.files(FOLDER)


def test_metadata_snapshots_are_listed_by_offset_and_epoch() -> None:
    machine = Machine()
    for snapshot in (SnapshotId(9, 2), SnapshotId(120, 4), SnapshotId(10, 2)):
        write(machine, snapshot)
    store = store_of(machine)
    assert store.list() == [SnapshotId(9, 2), SnapshotId(10, 2), SnapshotId(120, 4)]
    assert store.latest() == ID
    assert ID.file_name == NAME
    for name in (NAME + ".part", "0-4.checkpoint", NAME[:-11], "x" + NAME[1:]):
        assert SnapshotId.parse(name) is None


@pytest.mark.parametrize("chunk", [1, 7, 64, 10_000])
def test_a_metadata_snapshot_received_in_chunks_equals_the_original(chunk: int) -> None:
    source, target = write(Machine(1)), Machine(2)
    receiver = store_of(target).receive(ID)
    size = source.size_bytes(ID)
    while receiver.position < size:
        total, data = source.read_chunk(ID, receiver.position, chunk)
        assert total == size
        receiver.append(receiver.position, data)
    assert store_of(target).list() == []
    receiver.finish()
    target.power_off()
    assert [batch.values for batch in store_of(target).open(ID).batches()][1:] == VALUES


def test_snapshot_chunks_out_of_order_or_range_are_refused() -> None:
    machine = Machine()
    store = write(machine)
    size = store.size_bytes(ID)
    for position in (-1, size, size + 1):
        with pytest.raises(PositionOutOfRange):
            store.read_chunk(ID, position, 10)
    with pytest.raises(SnapshotNotFound):
        store.read_chunk(SnapshotId(1, 1), 0, 10)
    with pytest.raises(SnapshotNotFound):
        store.open(SnapshotId(1, 1))
    receiver = store_of(Machine()).receive(ID)
    receiver.append(0, b"abc")
    with pytest.raises(PositionOutOfRange, match="expected 3"):
        receiver.append(4, b"d")


def received(data: bytes) -> tuple[Machine, SnapshotReceiver]:
    machine = Machine()
    receiver = store_of(machine).receive(ID)
    receiver.append(0, data)
    return machine, receiver


def test_a_metadata_snapshot_truncated_or_changed_anywhere_is_refused() -> None:
    machine = Machine()
    write(machine)
    whole = machine.content(f"{FOLDER}/{NAME}")
    changed = [whole[:cut] for cut in range(len(whole))]
    for position in range(0, len(whole), 3):
        flipped = bytearray(whole)
        flipped[position] ^= 0x40
        changed.append(bytes(flipped))
    changed.append(whole + whole)
    refused = 0
    for data in changed:
        target, receiver = received(data)
        with pytest.raises(StorageCorrupt, match=f"{NAME}.*: byte \\d+: "):
            receiver.finish()
        receiver.abandon()
        assert not target.files(FOLDER)
        refused += 1
    assert refused == len(changed)


def test_a_metadata_snapshot_with_unparsable_batches_is_refused_despite_matching_crcs() -> None:
    source = Machine()
    write(source)
    whole = bytes(source.content(f"{FOLDER}/{NAME}"))
    refused = 0
    for position, header in iter_headers(whole):
        for at in range(position + BATCH_HEADER_BYTES, position + header.size_bytes):
            data = bytearray(whole)
            data[at] ^= 0xFF
            write_crc(data, position)
            _, receiver = received(bytes(data))
            try:
                receiver.finish()
            except StorageCorrupt:
                refused += 1
    assert refused > 30
