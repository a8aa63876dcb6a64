"""Tests of decoding records of __consumer_offsets as commits: in every version of their schema, and as pykraft's broker
writes them.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.broker.group.records import GroupKey, GroupLogEntry, OffsetKey, OffsetValue, encode_entry
from kraft.client.spark.state.offset_commits import Commit, commits
from kraft.seam import WireError

WRITTEN = datetime(2026, 1, 2, tzinfo=UTC)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def key(kind: int, group: bytes, topic: bytes, partition: int) -> bytes:
    return (
        struct.pack(">hh", kind, len(group))
        + group
        + struct.pack(">h", len(topic))
        + topic
        + struct.pack(">i", partition)
    )


def value(version: int, offset: int, epoch: int, note: bytes, ms: int) -> bytes:
    head = struct.pack(">hq", version, offset)
    if version >= 3:
        head += struct.pack(">i", epoch)
    text = bytes([len(note) + 1]) + note if version >= 4 else struct.pack(">h", len(note)) + note
    return (
        head
        + text
        + struct.pack(">q", ms)
        + (struct.pack(">q", 99) if version == 1 else b"")
        + (b"\0" if version >= 4 else b"")
    )


@pytest.mark.parametrize("version", range(5))
def test_offset_commit_record_is_decoded_in_each_schema_version(version: int) -> None:
    record = (key(1, b"g", b"orders", 3), value(version, 7, 2, b"note", 1_000), 12, 34, WRITTEN)
    epoch = 2 if version >= 3 else None
    committed = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert list(commits([record])) == [Commit("g", "orders", 3, 7, epoch, "note", committed, 12, 34)]


def test_deleted_offset_commit_is_a_tombstone_with_the_time_of_its_record() -> None:
    (found,) = commits([(key(0, b"g", b"orders", 3), None, 12, 34, WRITTEN)])
    assert found == Commit("g", "orders", 3, None, None, None, WRITTEN, 12, 34)
    assert found.is_tombstone


def test_group_records_and_records_of_unknown_versions_are_not_decoded_as_offset_commits() -> None:
    group = encode_entry(GroupLogEntry(GroupKey("g"), None))
    records = [
        (group.key, group.value, 0, 0, WRITTEN),
        (None, b"", 0, 1, WRITTEN),
        (key(1, b"g", b"t", 0), value(5, 1, 1, b"", 1), 0, 2, WRITTEN),
        (struct.pack(">h", 77) + b"who knows", b"", 0, 3, WRITTEN),
    ]
    assert list(commits(records)) == []


@pytest.mark.parametrize("size", [0, 1, 5, 11])
def test_truncated_offset_commit_record_is_rejected_with_its_partition_and_offset(size: int) -> None:
    whole = key(1, b"g", b"orders", 3)
    with pytest.raises(WireError, match="record 34 of __consumer_offsets-12 cannot be read"):
        list(commits([(whole[:size], value(4, 7, 2, b"", 1), 12, 34, WRITTEN)]))
    with pytest.raises(WireError, match="record 34 of __consumer_offsets-12"):
        list(commits([(whole, value(4, 7, 2, b"", 1)[:size], 12, 34, WRITTEN)]))


@given(
    names,
    names,
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    names,
    st.none() | st.uuids(),
)
def test_offset_commit_record_written_by_the_pykraft_broker_is_decoded(
    group: str, topic: str, partition: int, offset: int, epoch: int, note: str, topic_id: UUID | None
) -> None:
    entry = GroupLogEntry(OffsetKey(group, topic, partition), OffsetValue(offset, epoch, note, 5, topic_id=topic_id))
    record = encode_entry(entry)
    (found,) = commits([(record.key, record.value, 0, 0, WRITTEN)])
    known_epoch = None if epoch < 0 else epoch
    assert (found.group_id, found.topic, found.partition) == (group, topic, partition)
    assert (found.offset, found.leader_epoch, found.metadata) == (offset, known_epoch, note)
