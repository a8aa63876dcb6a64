"""Checkpoints, partition.metadata, meta.properties, quorum-state: Kafka's bytes, and errors for invalid ones."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.seam import StorageCorrupt
from kraft.storage.checkpoints import BadCheckpoint, decode_offsets, encode_offsets, read_offsets, write_offsets
from kraft.storage.log_names import (
    DELETE_DIRECTORY_SUFFIX,
    marked_directory_name,
    parse_marked_directory,
    parse_partition_directory,
    parse_segment_file,
)
from kraft.storage.meta_properties import ForeignDirectory, MetaProperties
from kraft.storage.partition_metadata import (
    decode_uuid,
    encode_uuid,
    read_partition_metadata,
)
from kraft.storage.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from tests.stages.machine import FOLDER, Machine
from tests.stages.partition_metadata import write_partition_metadata

ID = UUID("12345678-9abc-def0-1234-56789abcdef0")
TEXT = "EjRWeJq83vASNFZ4mrze8A"


def test_an_offset_checkpoint_has_kafkas_bytes() -> None:
    assert encode_offsets({("b", 0): 7, ("a", 10): 5, ("a", 2): 0}) == b"0\n3\na 2 0\na 10 5\nb 0 7\n"
    assert encode_offsets({}) == b"0\n0\n"


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 1 << 31)),
        st.integers(0, 1 << 62),
        max_size=8,
    )
)
def test_an_offset_checkpoint_reads_back_as_written(offsets: dict[tuple[str, int], int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "version"),
        (b"1\n0\n", "version 0"),
        (b"0\nmany\n", "line 2"),
        (b"0\n2\na 0 1\n", "line 4"),
        (b"0\n1\na 0\n", "line 3"),
        (b"0\n1\na 0 -1\n", "line 3"),
        (b"0\n1\na 0 12", "entries"),
    ],
)
def test_a_damaged_offset_checkpoint_counts_as_empty_with_a_reason(text: bytes, why: str) -> None:
    with pytest.raises(BadCheckpoint, match=why):
        decode_offsets(text)
    machine = Machine()
    machine.put(f"{FOLDER}/checkpoint", text)
    offsets, reason = read_offsets(machine.disk, f"{FOLDER}/checkpoint")
    assert offsets == {}
    assert reason is not None
    assert f"{FOLDER}/checkpoint" in reason


def test_an_offset_checkpoint_survives_a_power_loss() -> None:
    machine = Machine(3)
    write_offsets(machine.disk, f"{FOLDER}/c", {("a", 0): 1})
    write_offsets(machine.disk, f"{FOLDER}/c", {("a", 0): 2})
    machine.power_off()
    assert read_offsets(machine.disk, f"{FOLDER}/c") == ({("a", 0): 2}, None)


def test_partition_metadata_has_kafkas_bytes() -> None:
    machine = Machine()
    assert read_partition_metadata(machine.disk, FOLDER) is None
    write_partition_metadata(machine.disk, FOLDER, ID)
    assert machine.content(f"{FOLDER}/partition.metadata") == f"version: 0\ntopic_id: {TEXT}\n".encode()
    assert read_partition_metadata(machine.disk, FOLDER) == ID


@pytest.mark.parametrize("text", [b"", b"version: 1\ntopic_id: x\n", b"version: 0\ntopic_id: short\n", b"version: 0\n"])
def test_damaged_partition_metadata_names_the_file(text: bytes) -> None:
    machine = Machine()
    machine.put(f"{FOLDER}/partition.metadata", text)
    with pytest.raises(StorageCorrupt, match=r"/data/partition\.metadata: "):
        read_partition_metadata(machine.disk, FOLDER)


@given(st.uuids())
def test_an_encoded_uuid_has_22_characters_and_reads_back(value: UUID) -> None:
    assert len(encode_uuid(value)) == 22
    assert decode_uuid(encode_uuid(value)) == value


def test_meta_properties_have_kafkas_keys_and_read_back() -> None:
    properties = MetaProperties("cluster-1", 7, ID)
    data = properties.encode()
    assert data == f"version=1\ncluster.id=cluster-1\nnode.id=7\ndirectory.id={TEXT}\n".encode()
    assert MetaProperties.decode(b"#\n#Fri Jan 01\n" + data.replace(b"\n", b"\r\n"), "f") == properties


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ((b"version=1", b"version=2"), "newer than version 1 .* install the release that wrote it"),
        ((b"version=1", b"version=0"), "older than version 1"),
        ((b"version=1", b""), "has no version"),
        ((b"cluster.id=c\n", b""), "needs cluster.id"),
        ((b"node.id=7", b"node.id=seven"), "node.id"),
        ((TEXT.encode(), b"AAAAAAAAAAAAAAAAAAAAAQ"), "reserved"),
        ((TEXT.encode(), b"?"), "directory.id"),
    ],
)
def test_meta_properties_of_another_format_are_an_error_with_advice(change: tuple[bytes, bytes], why: str) -> None:
    data = MetaProperties("c", 7, ID).encode().replace(*change)
    with pytest.raises(ForeignDirectory, match=f"(?s)/d/meta.properties: .*{why}"):
        MetaProperties.decode(data, "/d/meta.properties")


def test_a_quorum_state_has_kafkas_bytes_and_is_durable_when_written() -> None:
    machine = Machine(2)
    assert read_quorum_state(machine.disk, FOLDER) is None
    state = QuorumState(leader_id=-1, leader_epoch=5, voted_id=102, voted_directory_id=ID)
    write_quorum_state(machine.disk, FOLDER, QuorumState())
    write_quorum_state(machine.disk, FOLDER, state)
    machine.power_off()
    expected = '{"leaderId":-1,"leaderEpoch":5,"votedId":102,"votedDirectoryId":"' + TEXT + '","data_version":1}'
    assert machine.content(f"{FOLDER}/quorum-state") == expected.encode()
    assert read_quorum_state(machine.disk, FOLDER) == state


def test_a_quorum_state_of_kraft_version_0_is_read() -> None:
    text = (
        b'{"clusterId":"","leaderId":3,"leaderEpoch":9,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":3}],"data_version":0}'
    )
    assert QuorumState.decode(text, "f") == QuorumState(leader_id=3, leader_epoch=9)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[1]", b'{"leaderId":1,"leaderEpoch":-4,"votedId":1,"data_version":1}', b"\xff"]
)
def test_a_damaged_quorum_state_stops_the_voter(text: bytes) -> None:
    machine = Machine()
    machine.put(f"{FOLDER}/quorum-state", text)
    with pytest.raises(StorageCorrupt, match=r"/data/quorum-state: .*new directory id"):
        read_quorum_state(machine.disk, FOLDER)


def test_a_quorum_state_of_a_later_release_is_an_error_that_names_its_data_version() -> None:
    text = b'{"leaderId":1,"leaderEpoch":4,"votedId":1,"data_version":2}'
    with pytest.raises(StorageCorrupt, match="data_version 2"):
        QuorumState.decode(text, "f")


def test_names_of_log_files_and_folders_are_parsed_back_to_their_parts() -> None:
    assert parse_segment_file("00000000000000000042.index.swap") == (42, ".index.swap")
    for name in ("42.log", "0000000000000000004x.log", "leader-epoch-checkpoint", "00000000000000000042"):
        assert parse_segment_file(name) is None
    assert parse_partition_directory("my-topic-0-12") == ("my-topic-0", 12)
    for name in ("topic", "-3", "topic-", "topic-x", "topic-²"):
        assert parse_partition_directory(name) is None
    marked = marked_directory_name("t" * 249, 7, ID.hex, DELETE_DIRECTORY_SUFFIX)
    assert len(marked) == 255
    parsed = parse_marked_directory(marked)
    assert parsed is not None
    assert parsed[1] == 7
    assert parse_marked_directory("topic-3") is None
