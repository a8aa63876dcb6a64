"""The data folders of a controller and a broker of the previous release: this release reads each file, and writes the
same bytes for the same content.

Bytes that may differ by design are only read, not compared. A compressed batch depends on the compressor (another
version of zlib, lz4, zstd or snappy may encode differently), and a compacted log depends on when the cleaner ran.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from kraft.image import ConfigResourceType, ImageBuilder, MetadataImage, decode_event
from kraft.image.dump import encoded_dump
from kraft.image.encoding import EventEncoder
from kraft.image.image import EMPTY_IMAGE
from kraft.quorum.metadata_batches import batch_of
from kraft.quorum.publisher import SNAPSHOT_CHUNK_EVENTS
from kraft.storage import checkpoints, log_dir
from kraft.storage.log import Log, LogConfig
from kraft.storage.meta_properties import MetaProperties
from kraft.storage.partition_metadata import encode_partition_metadata, read_partition_metadata
from kraft.storage.quorum_state import QuorumState
from kraft.storage.snapshots import SnapshotId, SnapshotStore
from kraft.wire.records import Record, decode_batch, encode_batch, encode_values, iter_headers
from kraft.wire.records.compression import Compression
from kraft.wire.records.control_records import decode_controls, encode_control
from tests.golden.files import BROKER, CLUSTER_ID, CONTROLLER, GOLDEN, NODES, files_of
from tests.golden.workload import (
    CODECS,
    COMPACTED,
    CONFIG_CHANGES,
    LOG_START,
    NOW_MS,
    RECORDS,
    TOPICS,
    codec_records,
    compacted_of,
    records_of,
)
from tests.stages.machine import FOLDER, Machine

DATA = {node: GOLDEN / str(node) for node in NODES}
METADATA = "__cluster_metadata-0"
LATER_MS = NOW_MS + 530 * 86_400_000
"""Milliseconds by which the clock of the previous release was ahead of the records' timestamps."""
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200, retention_ms=-1)
OFFSETS = (
    checkpoints.RECOVERY_POINT_CHECKPOINT,
    checkpoints.INDEX_RECOVERY_POINT_CHECKPOINT,
    checkpoints.LOG_START_CHECKPOINT,
    checkpoints.HIGH_WATERMARK_CHECKPOINT,
    checkpoints.CLEANER_CHECKPOINT,
)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def records_in(folder: Path) -> list[Record]:
    batches = ((data, at) for data in map(Path.read_bytes, segments(folder)) for at, _ in iter_headers(data))
    return list(chain.from_iterable(decode_batch(data, at) for data, at in batches))


def metadata_image(end_offset: int) -> MetadataImage:
    """Return the image at this offset of the metadata log."""
    (log,) = segments(DATA[CONTROLLER] / METADATA)
    data = log.read_bytes()
    batches = [batch_of(data, position, header) for position, header in iter_headers(data)]
    builder = ImageBuilder(EMPTY_IMAGE)
    for batch in batches:
        for value in batch.records if batch.next_offset <= end_offset else ():
            builder.apply(decode_event(value))
    return builder.build(end_offset, batches[-1].epoch)


@pytest.mark.parametrize("node", NODES)
def test_meta_properties_of_the_previous_release_are_read_and_written_identically(node: int) -> None:
    data = (DATA[node] / "meta.properties").read_bytes()
    found = MetaProperties.decode(data, "meta.properties")
    assert (found.cluster_id, found.node_id) == (CLUSTER_ID, node)
    assert found.encode() == data


@pytest.mark.parametrize("node", NODES)
def test_the_quorum_state_of_the_previous_release_is_read_and_written_identically(node: int) -> None:
    data = (DATA[node] / METADATA / "quorum-state").read_bytes()
    found = QuorumState.decode(data, "quorum-state")
    assert (found.leader_id, found.leader_epoch) == (CONTROLLER, 1)
    assert found.voted_id == (CONTROLLER if node == CONTROLLER else -1)
    assert found.encode() == data


def test_the_checkpoints_of_the_previous_release_are_read_and_written_identically() -> None:
    found = {name: checkpoints.decode_offsets((DATA[BROKER] / name).read_bytes()) for name in OFFSETS}
    recovery, _, start, watermark, cleaner = (found[name] for name in OFFSETS)
    ends = {(RECORDS, 0): 24, (COMPACTED, 0): 14, ("__consumer_offsets", 0): 1}
    assert recovery == watermark == ends | {(f"codec-{codec}", 0): 10 for codec in CODECS}
    assert start == {(RECORDS, 0): LOG_START}
    assert cleaner == {(COMPACTED, 0): 12}
    for name in OFFSETS:
        assert checkpoints.encode_offsets(found[name]) == (DATA[BROKER] / name).read_bytes(), name


def test_a_clean_shutdown_of_the_previous_release_is_recognized_and_written_identically() -> None:
    machine = Machine()
    golden = files_of(DATA[BROKER])
    machine.copy(FOLDER, golden)
    directory = log_dir.LogDirectory.open_directory(machine.disk, FOLDER, node_id=BROKER, cluster_id=CLUSTER_ID)
    clean = directory.take_clean_shutdown()
    assert clean is not None
    directory.write_clean_shutdown(clean.broker_epoch)
    assert machine.files(FOLDER)[log_dir.CLEAN_SHUTDOWN] == golden[log_dir.CLEAN_SHUTDOWN]


@pytest.mark.parametrize("topic", [RECORDS, COMPACTED, *(f"codec-{codec}" for codec in CODECS)])
def test_partition_metadata_of_the_previous_release_has_the_topic_id_of_the_metadata_log(topic: str) -> None:
    machine = Machine()
    machine.copy(FOLDER, files_of(DATA[BROKER] / f"{topic}-0"))
    image = metadata_image(2**62)
    found = image.topics.get(topic)
    assert found is not None
    assert read_partition_metadata(machine.disk, FOLDER) == found.topic_id
    golden = (DATA[BROKER] / f"{topic}-0" / "partition.metadata").read_bytes()
    assert encode_partition_metadata(found.topic_id) == golden


def test_the_metadata_log_of_the_previous_release_replays_to_the_same_cluster() -> None:
    image = metadata_image(2**62)
    assert image.cluster_id == CLUSTER_ID
    assert (image.broker_ids(), [one.controller_id for one in image.sorted_controllers()]) == ([BROKER], [CONTROLLER])
    assert sorted(topic.name for topic in image.topics) == sorted([*TOPICS, "__consumer_offsets"])
    last = {"retention.ms": str(10**12 + CONFIG_CHANGES - 1)}
    assert dict(image.topic_configs(RECORDS)) == TOPICS[RECORDS] | last
    assert dict(image.configs_of(ConfigResourceType.TOPIC, COMPACTED)) == TOPICS[COMPACTED]


def test_reencoding_the_metadata_log_gives_the_same_bytes() -> None:
    (log,) = segments(DATA[CONTROLLER] / METADATA)
    data = log.read_bytes()
    encoder = EventEncoder(metadata_image(2**62).metadata_version)
    written = bytearray()
    for position, header in iter_headers(data):
        place = {"base_offset": header.base_offset, "leader_epoch": header.partition_leader_epoch}
        at_ms = header.max_timestamp
        if header.is_control:
            written += encode_control(*decode_controls(data, position), timestamp_ms=at_ms, **place)
        else:
            events = map(decode_event, batch_of(data, position, header).records)
            written += encode_values([encoder.encode(event) for event in events], timestamp_ms=at_ms, **place)
    assert bytes(written) == data


@pytest.mark.parametrize("node", NODES)
def test_rewriting_a_metadata_snapshot_of_the_same_image_gives_the_same_bytes(node: int) -> None:
    golden = sorted((DATA[node] / METADATA).glob("*.checkpoint"))
    assert len(golden) == 2
    for path in golden:
        snapshot = SnapshotId.parse(path.name)
        assert snapshot is not None
        machine = Machine()
        machine.put(f"{FOLDER}/{path.name}", path.read_bytes())
        store = SnapshotStore(machine.disk, FOLDER)
        at_ms = store.open(snapshot).last_contained_log_timestamp()
        writer = store.create(snapshot, last_contained_log_timestamp=at_ms, now_ms=at_ms)
        writer.append(
            list(chain.from_iterable(encoded_dump(metadata_image(snapshot.end_offset), SNAPSHOT_CHUNK_EVENTS)))
        )
        writer.finish()
        assert machine.files(FOLDER) == {path.name: path.read_bytes()}


@pytest.mark.parametrize("node", NODES)
def test_rewriting_the_indexes_of_the_metadata_log_gives_the_same_bytes(node: int) -> None:
    golden = files_of(DATA[node] / METADATA)
    (log_file,) = segments(DATA[node] / METADATA)
    machine = Machine()
    log = new_log(machine, LogConfig(retention_ms=-1))
    for position, header in iter_headers(log_file.read_bytes()):
        data = log_file.read_bytes()[position : position + header.size_bytes]
        log.append_as_follower(data, now_ms=LATER_MS)
    log.close(clean=True)
    written = machine.files(FOLDER)
    assert {name: golden[name] for name in written} == written
    assert {name for name in written if name.endswith((".index", ".timeindex", ".log", "-checkpoint"))} == {
        log_file.name,
        log_file.name.replace(".log", ".index"),
        log_file.name.replace(".log", ".timeindex"),
        "leader-epoch-checkpoint",
    }


def test_the_records_of_the_previous_release_are_read() -> None:
    found = records_in(DATA[BROKER] / f"{RECORDS}-0")
    assert [(one.key, one.value) for one in found] == records_of(0) + records_of(1)
    assert [one.offset for one in found] == list(range(24))
    assert [one.timestamp for one in found] == [
        NOW_MS + 100_000 * step + 1000 * at for step in (0, 1) for at in range(12)
    ]
    assert {one.headers for one in found[12:]} == {(("step", b"1"),)}


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_batch_of_the_previous_release_is_read(codec: str) -> None:
    folder = DATA[BROKER] / f"codec-{codec}-0"
    (path,) = segments(folder)
    ((_, header),) = iter_headers(path.read_bytes())
    assert Compression.of(header.codec).name.lower() == codec
    assert [one.value for one in records_in(folder)] == codec_records(codec)


def test_a_compacted_log_of_the_previous_release_is_read_with_the_last_value_of_each_key() -> None:
    found = {one.key: one.value for one in records_in(DATA[BROKER] / f"{COMPACTED}-0")}
    assert found == dict(compacted_of(0) + compacted_of(1))


def test_reencoding_and_appending_the_records_gives_identical_log_files() -> None:
    """The steps are in the original order: twelve batches, a clean restart, twelve more batches, and a new log start
    offset."""
    golden = files_of(DATA[BROKER] / f"{RECORDS}-0")
    machine = Machine()
    log = new_log(machine, CONFIG)
    machine.put(f"{FOLDER}/partition.metadata", golden["partition.metadata"])
    for path in segments(DATA[BROKER] / f"{RECORDS}-0"):
        data = path.read_bytes()
        for position, header in iter_headers(data):
            if header.base_offset == len(records_of(0)):
                log.close(clean=True)
                log = new_log(machine, CONFIG)
            batch = encode_batch(
                decode_batch(data, position),
                base_offset=header.base_offset,
                leader_epoch=header.partition_leader_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
            )
            log.append_as_leader(batch, header, header.partition_leader_epoch, now_ms=LATER_MS)
    log.advance_log_start(LOG_START)
    log.close(clean=True)
    assert machine.files(FOLDER) == golden


def new_log(machine: Machine, config: LogConfig) -> Log:
    """Open the log in `FOLDER`, ready for an append. If the log existed before, it was shut down cleanly."""
    log = Log.open_log(machine.disk, FOLDER, config, clean=True, recovery_point=0, log_start=0, now_ms=LATER_MS)
    cold = log.warm_for_append()
    if cold is not None:
        cold.warm()
        cold.keep()
    return log
