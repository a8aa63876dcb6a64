"""Tests that the disk observer reports what a log gains, loses, and would keep through a power loss, and
nothing else."""

from __future__ import annotations

from uuid import UUID

import pytest

from kraft.image import ImageBuilder
from kraft.image.dump import digest
from kraft.image.image import EMPTY_IMAGE
from kraft.quorum.metadata_batches import voters_record
from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.seam import Address
from kraft.sim.check.observations import (
    BatchWritten,
    BytesCorrupted,
    LogCut,
    LogDurable,
    Observation,
    SnapshotSeen,
    VoteDurable,
    VotersWritten,
)
from kraft.sim.cluster.disk_observer import DiskObserver
from kraft.sim.world import World
from kraft.storage.quorum_state import QuorumState
from kraft.storage.snapshots import SnapshotId, SnapshotStore
from kraft.wire.records import Record, encode_batch
from kraft.wire.records.control_records import encode_control
from tests.stages.partition_metadata import write_partition_metadata

LOG = ("orders", 0)
TOPIC_ID = UUID(int=7)
PLACE = "/data/1/orders-0"
FIRST, SECOND = f"{PLACE}/00000000000000000000.log", f"{PLACE}/00000000000000000002.log"


def batch(offset: int, epoch: int = 0, value: bytes = b"v") -> bytes:
    return bytes(encode_batch([Record(0, 1_000, None, value)], base_offset=offset, leader_epoch=epoch))


class Bench:
    """A host with its disk as a node uses it, and the observations that the disk observer reported since they were last
    read."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.told: list[Observation] = []
        self.trimmed: list[bytes] = []
        self.observer = DiskObserver(1, self.world.host("node-1"), self.told.append, trimmed=self.trimmed.extend)
        self.disk = self.world.node("node-1").disk
        self.disk.make_directory(PLACE)
        write_partition_metadata(self.disk, PLACE, TOPIC_ID)

    def look(self) -> list[Observation]:
        self.told.clear()
        self.observer.observe()
        return list(self.told)

    def write(self, path: str, *batches: bytes) -> None:
        file = self.disk.open(path) if self.disk.exists(path) else self.disk.create(path)
        file.append(*batches)

    def sync(self, path: str) -> None:
        self.disk.open(path).sync_blocking()
        self.disk.sync_directory(PLACE)


def ends(told: list[Observation]) -> list[int]:
    return [seen.next_offset for seen in told if isinstance(seen, BatchWritten)]


def test_the_disk_observer_reports_each_batch_once_in_order() -> None:
    bench = Bench()
    bench.write(FIRST, batch(0), batch(1))
    assert ends(bench.look()) == [1, 2]
    assert bench.look() == []
    bench.write(FIRST, batch(2))
    assert ends(bench.look()) == [3]


def test_the_disk_observer_reports_a_batch_when_its_last_byte_is_written() -> None:
    bench = Bench()
    data = batch(0)
    bench.write(FIRST, data[:40])
    assert bench.look() == []
    bench.write(FIRST, data[40:])
    assert ends(bench.look()) == [1]


def test_equal_batches_have_equal_digests_and_batches_that_differ_in_epoch_do_not() -> None:
    digests = []
    for made in (batch(0), batch(0), batch(0, epoch=1), batch(0, value=b"w")):
        bench = Bench()
        bench.write(FIRST, made)
        digests += [seen.digest for seen in bench.look() if isinstance(seen, BatchWritten)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_synced_bytes_are_reported_durable_once_their_directory_entry_is_durable_too() -> None:
    bench = Bench()
    bench.write(FIRST, batch(0))
    bench.disk.open(FIRST).sync_blocking()
    assert LogDurable(1, LOG, 1) not in bench.look()
    bench.disk.sync_directory(PLACE)
    assert bench.look() == [LogDurable(1, LOG, 1)]
    bench.write(FIRST, batch(1))
    bench.look()
    bench.sync(FIRST)
    assert bench.look() == [LogDurable(1, LOG, 2)]


def test_the_disk_observer_reports_a_truncation_and_the_batches_written_after_it() -> None:
    bench = Bench()
    bench.write(FIRST, batch(0), batch(1), batch(2))
    bench.sync(FIRST)
    bench.look()
    bench.disk.open(FIRST).truncate(len(batch(0)))
    bench.write(FIRST, batch(1, epoch=1))
    told = bench.look()
    assert LogCut(1, LOG, 0, 1) in told
    assert ends(told) == [2]


def without_its_front() -> Bench:
    """Return a log after the deletion of its first segment was reported; it had two segments of two batches each."""
    bench = Bench()
    bench.write(FIRST, batch(0), batch(1))
    bench.write(SECOND, batch(2), batch(3))
    bench.look()
    bench.disk.rename(FIRST, f"{FIRST}.deleted")
    assert bench.look() == [LogCut(1, LOG, 2, 4)]
    return bench


def test_a_log_replaced_by_its_copy_after_a_prefix_was_deleted_is_not_reported_as_truncated() -> None:
    """While a replica moves to another directory, retention deletes a segment that is copied already."""
    bench = without_its_front()
    bench.write(FIRST, batch(0), batch(1))
    assert not [seen for seen in bench.look() if isinstance(seen, LogCut | BatchWritten)]
    bench.write(SECOND, batch(4))
    assert ends(bench.look()) == [5]
    bench.disk.open(SECOND).truncate(len(batch(2)))
    assert LogCut(1, LOG, 0, 3) in bench.look()


def test_batches_that_differ_from_the_deleted_prefix_in_whose_place_they_are_written_are_reported() -> None:
    bench = without_its_front()
    bench.write(FIRST, batch(0), batch(1, value=b"w"))
    told = bench.look()
    assert LogCut(1, LOG, 0, 0) in told
    assert ends(told) == [1, 2, 3, 4]


def test_the_disk_observer_follows_a_log_into_its_next_segment() -> None:
    bench = Bench()
    bench.write(FIRST, batch(0))
    bench.look()
    bench.write(FIRST, batch(1))
    bench.write(SECOND, batch(2))
    assert ends(bench.look()) == [2, 3]
    bench.write(SECOND, batch(3))
    assert ends(bench.look()) == [4]


def test_the_durable_log_ends_in_the_first_segment_that_is_not_completely_durable() -> None:
    bench = Bench()
    bench.write(FIRST, batch(0), batch(1))
    bench.write(SECOND, batch(2))
    bench.sync(SECOND)
    assert not [seen for seen in bench.look() if isinstance(seen, LogDurable)]
    bench.sync(FIRST)
    assert bench.look() == [LogDurable(1, LOG, 3)]


def test_deleting_the_first_segment_moves_the_log_start_without_truncation() -> None:
    bench = Bench()
    bench.write(FIRST, batch(0), batch(1))
    bench.write(SECOND, batch(2))
    bench.look()
    bench.disk.unlink(FIRST)
    assert bench.look() == [LogCut(1, LOG, 2, 3)]


def test_a_removed_log_folder_is_reported_as_a_truncation_to_an_empty_log() -> None:
    bench = Bench()
    bench.write(FIRST, batch(0))
    bench.look()
    bench.disk.remove_tree(PLACE)
    assert bench.look() == [LogCut(1, LOG, 0, 0)]


def test_the_disk_observer_reports_the_log_left_by_a_power_loss() -> None:
    lost_something = 0
    for seed in range(12):
        bench = Bench(seed)
        bench.write(FIRST, batch(0))
        bench.sync(FIRST)
        for offset in range(1, 5):
            bench.write(FIRST, batch(offset))
        bench.look()
        bench.world.host("node-1").lose_power()
        told = bench.look()
        left = bytes(
            bench.world.host("node-1")
            .root.entries["data"]
            .entries["1"]
            .entries["orders-0"]
            .entries[FIRST.rpartition("/")[2]]
            .data
        )  # type: ignore[union-attr]
        whole = 0
        while left[whole * len(batch(0)) : (whole + 1) * len(batch(0))] == batch(whole):
            whole += 1
        assert whole >= 1
        if whole < 5:
            lost_something += 1
            assert LogCut(1, LOG, 0, whole) in told
    assert lost_something


@pytest.mark.parametrize("piece", [8, 12])
def test_a_batch_whose_offset_was_in_a_lost_sector_counts_as_torn(piece: int) -> None:
    """The CRC of the batch may match nevertheless, because it does not cover the offset."""
    sizes = {len(batch(0, value=b"v" * count)): count for count in range(512)}
    first, second = batch(0, value=b"v" * sizes[512 - piece]), batch(1)
    for lost, told in ((0, [1, 2]), (piece, [1])):
        bench = Bench()
        bench.write(FIRST, first, bytes(lost) + second[lost:])
        assert ends(bench.look()) == told


def test_each_durable_vote_is_reported_even_if_overwritten_at_once() -> None:
    bench = Bench()
    bench.disk.make_directory("/data/1/__cluster_metadata-0")
    bench.look()
    for epoch, voted in ((4, 102), (5, 103)):
        state = QuorumState(leader_epoch=epoch, voted_id=voted)
        bench.disk.write_file_atomic("/data/1/__cluster_metadata-0/quorum-state", state.encode())
    assert [(seen.epoch, seen.voted_id) for seen in bench.told if isinstance(seen, VoteDurable)] == [(4, 102), (5, 103)]
    assert bench.look() == []


def test_an_observed_log_ends_at_its_first_torn_segment() -> None:
    """After a failed sync a power loss leaves zeros in one file, and an intact file after it."""
    bench = Bench()
    bench.write(FIRST, batch(0), batch(1))
    bench.write(SECOND, batch(2))
    assert ends(bench.look()) == [1, 2, 3]
    file = bench.disk.open(FIRST)
    file.truncate(len(batch(0)))
    file.append(bytes(len(batch(1))))
    assert bench.look() == [BytesCorrupted(1, LOG, "00000000000000000000.log"), LogCut(1, LOG, 0, 1)]


def test_a_batch_with_a_wrong_crc_is_reported_once_and_an_incomplete_batch_never() -> None:
    bench = Bench()
    wrong = bytearray(batch(1))
    wrong[-1] ^= 1
    bench.write(FIRST, batch(0), batch(1)[:-1])
    assert BytesCorrupted not in {type(seen) for seen in bench.look()}
    bench.disk.open(FIRST).truncate(len(batch(0)))
    bench.write(FIRST, bytes(wrong))
    assert bench.look() == [BytesCorrupted(1, LOG, "00000000000000000000.log")]
    assert bench.look() == []


METADATA = "/data/1/__cluster_metadata-0"


def test_an_observed_metadata_log_ends_before_a_segment_that_does_not_continue_the_previous_one() -> None:
    """A power loss restored the name of a deleted segment, and none of its bytes."""
    bench = Bench()
    bench.disk.make_directory(METADATA)
    bench.write(f"{METADATA}/{2:020}.log", batch(2))
    bench.sync(f"{METADATA}/{2:020}.log")
    bench.disk.sync_directory(METADATA)
    assert ends(bench.look()) == [3]
    bench.write(f"{METADATA}/{0:020}.log")
    told = bench.look()
    assert LogCut(1, None, 0, 0) in told
    assert not [seen for seen in told if isinstance(seen, LogDurable) and seen.end_offset > 0]
    bench.write(f"{METADATA}/{0:020}.log", batch(0), batch(1))
    assert ends(bench.look()) == [1, 2, 3]


def metadata_of_three_files() -> tuple[Bench, list[str]]:
    """Return a metadata log of three segment files, two batches in the first and one in each other file, which the
    observer has reported."""
    bench, paths = Bench(), [f"{METADATA}/{base:020}.log" for base in (0, 2, 3)]
    bench.disk.make_directory(METADATA)
    bench.write(paths[0], batch(0), batch(1))
    bench.write(paths[1], batch(2))
    bench.write(paths[2], batch(3))
    assert ends(bench.look()) == [1, 2, 3, 4]
    return bench, paths


def test_batches_trimmed_from_the_metadata_log_are_passed_to_the_observers_callback() -> None:
    bench, paths = metadata_of_three_files()
    bench.write(paths[2], batch(4))
    bench.disk.rename(paths[0], f"{paths[0]}.deleted")
    bench.disk.unlink(paths[1])
    assert LogCut(1, None, 3, 4) in bench.look()
    assert bench.trimmed == [batch(0), batch(1), batch(2)]


def test_a_power_loss_may_shorten_a_trimmed_metadata_segment() -> None:
    bench, paths = metadata_of_three_files()
    bench.disk.open(paths[0]).truncate(len(batch(0)) + 5)
    bench.disk.rename(paths[0], f"{paths[0]}.deleted")
    bench.look()
    assert bench.trimmed == [batch(0)]


def test_metadata_batches_truncated_or_removed_with_the_log_do_not_count_as_trimmed() -> None:
    """A truncated or removed batch may never have been committed: a new leader had other records there, or a snapshot
    replaced the log."""
    for cut_from, base in ((1, 2), (0, 9)):
        bench, paths = metadata_of_three_files()
        for path in paths[cut_from:]:
            bench.disk.rename(path, f"{path}.deleted")
        bench.write(f"{METADATA}/{base:020}.log", batch(base, epoch=1))
        assert [seen for seen in bench.look() if isinstance(seen, LogCut)]
        assert bench.trimmed == []


def test_an_observed_log_ends_where_a_power_loss_removed_a_middle_segment() -> None:
    """The name of the segment is still there, and the files after it are intact: recovery truncates the log there."""
    bench, third = Bench(), f"{PLACE}/{4:020}.log"
    bench.write(FIRST, batch(0), batch(1))
    bench.write(SECOND, batch(2), batch(3))
    bench.write(third, batch(4))
    assert ends(bench.look()) == [1, 2, 3, 4, 5]
    bench.disk.open(SECOND).truncate(0)
    bench.told.clear()
    bench.observer.observe_after_power_loss()
    assert LogCut(1, LOG, 0, 2) in bench.told
    assert ends(bench.told) == []
    bench.write(f"{PLACE}/{0:020}.index")
    assert bench.look() == []
    bench.disk.unlink(third)
    assert bench.look() == []
    bench.write(SECOND, batch(2))
    assert ends(bench.look()) == [3]


def test_an_observed_compacted_log_continues_after_a_gap() -> None:
    bench = Bench()
    bench.write(FIRST, batch(0))
    bench.write(SECOND, batch(2))
    assert ends(bench.look()) == [1, 3]


def test_a_log_restarted_beyond_its_end_is_reported_as_truncated_before_its_new_batches() -> None:
    bench = Bench()
    bench.write(FIRST, batch(0))
    bench.look()
    bench.disk.unlink(FIRST)
    bench.write(SECOND)
    bench.write(SECOND, batch(2))
    told = bench.look()
    assert told[0] == LogCut(1, LOG, 2, 2)
    assert ends(told) == [3]


def test_a_log_recreated_at_a_later_offset_is_reported_with_its_start() -> None:
    """A power loss removed the name of the log's only file, and the log's checkpoint has its start."""
    bench = Bench()
    assert bench.look() == []
    bench.write(SECOND)
    assert bench.look() == [LogCut(1, LOG, 2, 2)]
    bench.write(SECOND, batch(2))
    assert ends(bench.look()) == [3]


def test_a_folder_with_the_same_name_and_another_topic_id_is_observed_as_another_log() -> None:
    bench = Bench()
    bench.write(FIRST, batch(0))
    bench.look()
    bench.disk.rename(PLACE, f"{PLACE}.1234-delete")
    bench.disk.make_directory(PLACE)
    write_partition_metadata(bench.disk, PLACE, UUID(int=8))
    bench.write(FIRST, batch(0, value=b"w"))
    told = bench.look()
    assert [seen.log for seen in told if isinstance(seen, BatchWritten)] == [("orders@2", 0)]
    assert LogCut(1, LOG, 0, 0) in told


def test_a_log_replaced_by_its_copy_with_other_segment_boundaries_is_observed_as_the_same_log() -> None:
    bench = Bench()
    bench.write(FIRST, batch(0), batch(1))
    bench.write(SECOND, batch(2))
    bench.look()
    copy, old = f"{PLACE}-copy", f"{PLACE}-old"
    bench.disk.make_directory(copy)
    write_partition_metadata(bench.disk, copy, TOPIC_ID)
    bench.write(f"{copy}/00000000000000000000.log", batch(0), batch(1), batch(2))
    bench.disk.rename(PLACE, old)
    bench.disk.rename(copy, PLACE)
    bench.write(FIRST, batch(3))
    told = bench.look()
    assert not [seen for seen in told if isinstance(seen, LogCut)]
    assert [seen.base_offset for seen in told if isinstance(seen, BatchWritten)] == [3]


def test_the_disk_observer_reports_voters_from_records_and_snapshots() -> None:
    bench = Bench()
    metadata = "/data/1/__cluster_metadata-0"
    bench.disk.make_directory(metadata)
    voters = VoterSet(tuple(Voter(ReplicaKey(node, UUID(int=node)), Address("host", 1)) for node in (102, 101)))
    record, keys = voters_record(voters, "CONTROLLER"), ((101, str(UUID(int=101))), (102, str(UUID(int=102))))
    control = bytes(encode_control(record, base_offset=1, leader_epoch=3, timestamp_ms=0))
    bench.write(f"{metadata}/00000000000000000000.log", batch(0, 3), control)
    assert [seen for seen in bench.look() if isinstance(seen, VotersWritten)] == [VotersWritten(1, 1, 3, keys)]
    writer = SnapshotStore(bench.disk, metadata).create(SnapshotId(2, 3), last_contained_log_timestamp=0, now_ms=0)
    writer.append_controls(record)
    writer.finish()
    assert [seen for seen in bench.look() if isinstance(seen, VotersWritten)] == [VotersWritten(1, -1, -1, keys)]


def test_a_snapshot_is_reported_once_and_makes_all_records_below_it_durable() -> None:
    bench = Bench()
    metadata = "/data/1/__cluster_metadata-0"
    bench.disk.make_directory(metadata)
    store = SnapshotStore(bench.disk, metadata)
    writer = store.create(SnapshotId(7, 2), last_contained_log_timestamp=0, now_ms=0)
    writer.append([])
    assert not [seen for seen in bench.look() if isinstance(seen, SnapshotSeen)]
    writer.finish()
    told = bench.look()
    (snapshot,) = [seen for seen in told if isinstance(seen, SnapshotSeen)]
    assert (snapshot.node, snapshot.end_offset, snapshot.epoch) == (1, 7, 2)
    assert snapshot.digest == digest(ImageBuilder(EMPTY_IMAGE).build(7, 2))
    assert LogDurable(1, None, 7) in told
    assert bench.look() == []


def test_a_folder_removed_from_one_of_several_log_directories_is_reported_at_once() -> None:
    bench = Bench()
    place = "/data/1/dir-a/orders-3"
    bench.disk.make_directory(place)
    write_partition_metadata(bench.disk, place, TOPIC_ID)
    bench.write(f"{place}/00000000000000000000.log", batch(0))
    assert ends(bench.look()) == [1]
    bench.disk.rename(place, "/data/1/dir-a/orders-3.0123-delete")
    assert bench.look() == [LogCut(1, ("orders", 3), 0, 0)]


def test_the_disk_observer_reports_writes_to_a_log_although_another_log_has_a_new_file() -> None:
    bench = Bench()
    other = "/data/1/orders-1"
    bench.disk.make_directory(other)
    write_partition_metadata(bench.disk, other, TOPIC_ID)
    bench.write(FIRST, batch(0))
    bench.write(f"{other}/00000000000000000000.log", batch(0))
    bench.look()
    bench.write(FIRST, batch(1))
    bench.write(f"{other}/00000000000000000001.log", batch(1))
    assert [(seen.log, seen.next_offset) for seen in bench.look() if isinstance(seen, BatchWritten)] == [
        (LOG, 2),
        (("orders", 1), 2),
    ]


def test_the_disk_observer_reports_an_earlier_segment_that_becomes_durable() -> None:
    bench = Bench()
    bench.write(FIRST, batch(0), batch(1))
    bench.write(SECOND, batch(2))
    bench.disk.open(SECOND).sync_blocking()
    bench.disk.sync_directory(PLACE)
    assert not [seen for seen in bench.look() if isinstance(seen, LogDurable)]
    bench.disk.open(FIRST).sync_blocking()
    assert bench.look() == [LogDurable(1, LOG, 3)]
