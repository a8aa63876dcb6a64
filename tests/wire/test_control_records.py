from __future__ import annotations

import contextlib
import dataclasses
import struct
from uuid import UUID

import kio.schema.k_raft_version_record.v0.data
import kio.schema.leader_change_message.v0.data
import kio.schema.leader_change_message.v1.data
import kio.schema.snapshot_footer_record.v0.data
import kio.schema.snapshot_header_record.v0.data
import kio.schema.voters_record.v0.data
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader

from kraft.seam import WireError
from kraft.wire.records import Record, decode_batch, encode_batch, read_header
from kraft.wire.records.control_records import (
    ControlRecord,
    ControlRecordType,
    LeaderChange,
    VoterEndpoint,
    VoterEntry,
    VoterKey,
    decode_control,
    decode_control_record,
    decode_controls,
    encode_control,
)

IDS = st.none() | st.uuids().filter(lambda value: value.int != 0)
INT32 = st.integers(-(2**31), 2**31 - 1)
KEYS = st.lists(st.builds(VoterKey, INT32, IDS), max_size=4).map(tuple)
ENDPOINTS = st.lists(
    st.builds(VoterEndpoint, st.text(max_size=9), st.text(max_size=9), st.integers(0, 65535)), max_size=3
)
LEVELS = st.integers(0, 9)
VOTERS = st.lists(st.builds(VoterEntry, INT32, IDS, ENDPOINTS.map(tuple), LEVELS, LEVELS), max_size=4).map(tuple)
TYPE = ControlRecordType
CONTROL = st.one_of(
    st.builds(ControlRecord, type=st.sampled_from([TYPE.ABORT, TYPE.COMMIT]), coordinator_epoch=INT32),
    st.builds(
        ControlRecord, type=st.just(TYPE.LEADER_CHANGE), leader_change=st.builds(LeaderChange, INT32, KEYS, KEYS)
    ),
    st.builds(ControlRecord, type=st.just(TYPE.SNAPSHOT_HEADER), last_contained_log_timestamp=st.integers(0, 2**60)),
    st.builds(ControlRecord, type=st.just(TYPE.SNAPSHOT_FOOTER)),
    st.builds(ControlRecord, type=st.just(TYPE.KRAFT_VERSION), kraft_version=st.integers(0, 5)),
    st.builds(ControlRecord, type=st.just(TYPE.VOTERS), voters=VOTERS),
)


@given(st.lists(CONTROL, min_size=1, max_size=4), st.integers(0, 2**40))
def test_control_records_decode_to_what_was_encoded(controls: list[ControlRecord], base_offset: int) -> None:
    batch = encode_control(*controls, base_offset=base_offset, leader_epoch=4, timestamp_ms=99)
    expected = [dataclasses.replace(control, offset=base_offset + i) for i, control in enumerate(controls)]
    assert decode_controls(batch) == expected
    assert decode_control(bytes(5) + batch, 5) == expected[0]
    header = read_header(batch)
    assert header.is_control
    assert (header.base_sequence, header.partition_leader_epoch) == (-1, 4)


def test_a_transaction_marker_is_78_bytes_with_its_producer_and_the_transactional_bit() -> None:
    batch = encode_control(ControlRecord(type=TYPE.COMMIT, coordinator_epoch=3), producer_id=7, producer_epoch=2)
    header = read_header(batch)
    assert len(batch) == 78
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
    record = decode_batch(batch)[0]
    assert record.key == struct.pack(">hh", 0, 1)
    assert record.value == struct.pack(">hi", 0, 3)


DIRECTORY = UUID(int=7)


def value_of(control: ControlRecord) -> bytes:
    value = decode_batch(encode_control(control))[0].value
    assert value is not None
    return value


def test_quorum_control_records_match_kafkas_schemas() -> None:
    keys = (VoterKey(1, DIRECTORY), VoterKey(2, None))
    change = value_of(ControlRecord(type=TYPE.LEADER_CHANGE, leader_change=LeaderChange(1, keys, keys[:1])))
    read, size = entity_reader(kio.schema.leader_change_message.v1.data.LeaderChangeMessage)(change, 0)
    assert size == len(change)
    assert (read.version, read.leader_id) == (1, 1)
    assert [(voter.voter_id, voter.voter_directory_id) for voter in read.voters] == [(1, DIRECTORY), (2, None)]
    assert len(read.granting_voters) == 1

    entry = VoterEntry(1, DIRECTORY, (VoterEndpoint("CONTROLLER", "host", 9093),), 0, 1)
    voters = value_of(ControlRecord(type=TYPE.VOTERS, voters=(entry,)))
    read, size = entity_reader(kio.schema.voters_record.v0.data.VotersRecord)(voters, 0)
    assert size == len(voters)
    assert (read.voters[0].endpoints[0].port, read.voters[0].k_raft_version_feature.max_supported_version) == (9093, 1)

    header = value_of(ControlRecord(type=TYPE.SNAPSHOT_HEADER, last_contained_log_timestamp=5))
    read, size = entity_reader(kio.schema.snapshot_header_record.v0.data.SnapshotHeaderRecord)(header, 0)
    assert (read.last_contained_log_timestamp, size) == (5, len(header))
    footer = value_of(ControlRecord(type=TYPE.SNAPSHOT_FOOTER))
    assert entity_reader(kio.schema.snapshot_footer_record.v0.data.SnapshotFooterRecord)(footer, 0)[1] == len(footer)
    version = value_of(ControlRecord(type=TYPE.KRAFT_VERSION, kraft_version=1))
    read, size = entity_reader(kio.schema.k_raft_version_record.v0.data.KRaftVersionRecord)(version, 0)
    assert (read.k_raft_version, size) == (1, len(version))


def test_a_leader_change_of_version_zero_names_voters_without_directories() -> None:
    value = struct.pack(">hi", 0, 3) + b"\2" + struct.pack(">i", 3) + b"\0" + b"\1" + b"\0"
    read, size = entity_reader(kio.schema.leader_change_message.v0.data.LeaderChangeMessage)(value, 0)
    assert (read.leader_id, size) == (3, len(value))
    control = decode_control_record(Record(5, 0, struct.pack(">hh", 0, 2), value))
    assert control.leader_change == LeaderChange(3, (VoterKey(3, None),), ())


def test_control_records_of_unknown_type_or_newer_version_are_read_and_malformed_ones_are_corrupt() -> None:
    assert decode_control_record(Record(5, 0, struct.pack(">hh", 0, 99), b"")).type is None
    marker = decode_control_record(Record(5, 0, struct.pack(">hh", 3, 0), struct.pack(">hi", 0, 8)))
    assert (marker.type, marker.coordinator_epoch) == (TYPE.ABORT, 8)
    for key in (None, struct.pack(">hh", -1, 0), b"\0"):
        with pytest.raises(WireError):
            decode_control_record(Record(5, 0, key, struct.pack(">hi", 0, 8)))
    with pytest.raises(WireError, match="ends too soon"):
        decode_control_record(Record(5, 0, struct.pack(">hh", 0, 0), b"\0"))


def test_a_control_record_needs_a_type_and_a_control_batch_a_record() -> None:
    with pytest.raises(ValueError, match="without a type"):
        encode_control(ControlRecord(type=None))
    empty = encode_batch([Record(0, 0, None, b"")])[:61]
    struct.pack_into(">i", empty, 8, 49)
    struct.pack_into(">i", empty, 57, 0)
    with pytest.raises(WireError, match="has no record"):
        decode_control(empty)


@given(CONTROL, st.data())
def test_mutated_control_records_raise_only_wire_errors(control: ControlRecord, data: st.DataObject) -> None:
    record = decode_batch(encode_control(control))[0]
    value = bytearray(record.value or b"")
    if value:
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(value[: data.draw(st.integers(0, len(value)))])
    with contextlib.suppress(WireError):
        decode_control_record(record._replace(value=cut))
