"""The quorum's files: their state after a stop, a crash or a snapshot, and the effects of damage."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio

from kraft.quorum.counters import QuorumMeasures
from kraft.quorum.listener_delivery import Delivery
from kraft.quorum.metadata_batches import summarise
from kraft.quorum.metadata_log import MetadataLog
from kraft.quorum.own_snapshots import SnapshotKeeper
from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.raft.log_view import LogView, SnapshotId
from kraft.raft.ready import AppendEvents, AppendFetched, AppendLeaderChange, AppendVoters, QuorumState
from kraft.seam import Address, Seam, StorageCorrupt, WireError
from kraft.sim.world import World
from kraft.storage.log import LogConfig

from .test_quorum_in_world import Cluster

VOTERS = VoterSet(tuple(Voter(ReplicaKey(n), Address(f"c{n}", 9000)) for n in (1, 2, 3)))
GROWN = VoterSet((*VOTERS.voters, Voter(ReplicaKey(4, UUID(int=4)), Address("c4", 9000))))
FOLDER = "/data/__cluster_metadata-0"


def in_world(body: Callable[[Seam], None]) -> None:
    async def main(world: World) -> None:
        seam = world.node("n")
        await seam.disk.offload(body, seam)

    World(1).run(main)


def opened(seam: Seam, **config: int) -> tuple[MetadataLog, LogView, QuorumState]:
    return MetadataLog.open(seam.disk, seam.clock, "/data", "CONTROLLER", LogConfig(**config), VOTERS)


def test_the_log_the_voters_and_the_quorum_state_are_restored_after_a_restart() -> None:
    def body(seam: Seam) -> None:
        log, view, state = opened(seam)
        assert (view.end_offset, state) == (0, QuorumState())
        log.append(AppendLeaderChange(0, 1, 1, (1, 2, 3), (1, 2)))
        batch = log.append(AppendEvents(1, 1, (b"a", b"b")))
        assert (batch.base_offset, batch.next_offset, batch.epoch, batch.records) == (1, 3, 1, (b"a", b"b"))
        log.append(AppendVoters(3, 2, GROWN))
        written = QuorumState(2, 3, ReplicaKey(2, UUID(int=7)))
        log.write_state(written)
        log.close()
        log, view, state = opened(seam)
        assert state == written
        assert (view.end_offset, view.synced_end_offset, view.last_epoch) == (4, 4, 2)
        assert view.epochs == ((0, 0), (1, 0), (2, 3))
        assert view.voters.latest == GROWN
        assert view.voters.at(3) == VOTERS
        log.truncate(3)
        assert opened(seam)[1].voters.latest == VOTERS

    in_world(body)


def test_followers_metadata_log_is_identical_to_the_leaders() -> None:
    def body(seam: Seam) -> None:
        leader, _, _ = opened(seam)
        leader.append(AppendLeaderChange(0, 1, 1, (1, 2, 3), (1, 2)))
        leader.append(AppendEvents(1, 1, (b"a",)))
        leader.append(AppendVoters(2, 1, GROWN))
        data = leader.read(0, 1 << 20, 3)
        batches = summarise(data)
        assert [(batch.base_offset, batch.next_offset) for batch in batches] == [(0, 1), (1, 2), (2, 3)]
        assert batches[2].voters == GROWN
        follower, _, _ = MetadataLog.open(seam.disk, seam.clock, "/other", "CONTROLLER", LogConfig(), VOTERS)
        follower.append_fetched(AppendFetched(data, batches))
        assert follower.read(0, 1 << 20, 3) == data
        for bad in (data[:-1], data + b"x", data[:70] + b"?" + data[71:]):
            with pytest.raises(WireError):
                summarise(bad)

    in_world(body)


def test_snapshot_ahead_of_the_log_restarts_the_log_at_its_end() -> None:
    """The log is as after a crash between the end of a download and the truncation of the log."""

    def body(seam: Seam) -> None:
        log, _, _ = opened(seam)
        log.append(AppendEvents(0, 1, (b"old",)))
        writer = log.begin_snapshot(SnapshotId(50, 3), GROWN)
        writer.append([b"a", b"b"])
        writer.finish()
        log, view, _ = opened(seam)
        assert (view.start_offset, view.end_offset, view.last_epoch) == (50, 50, 3)
        assert view.voters.latest == GROWN
        assert log.read_snapshot(SnapshotId(50, 3)).values == (b"a", b"b")
        log.append(AppendEvents(50, 3, (b"new",)))
        log.close()
        _, view, _ = opened(seam)
        assert (view.start_offset, view.end_offset) == (50, 51)

    in_world(body)


def test_metadata_log_that_starts_above_0_without_a_snapshot_is_corrupt() -> None:
    def body(seam: Seam) -> None:
        log, _, _ = opened(seam, segment_bytes=100)
        for number in range(6):
            log.append(AppendEvents(number, 1, (b"x" * 50,)))
        log.close()
        seam.disk.unlink(f"{FOLDER}/{0:020d}.log")
        with pytest.raises(StorageCorrupt, match="no snapshot ends there"):
            opened(seam)

    in_world(body)


def test_trimmed_metadata_log_reopens_at_its_snapshot() -> None:
    def body(seam: Seam) -> None:
        log, _, _ = opened(seam, segment_bytes=100)
        for number in range(6):
            log.append(AppendEvents(number, 1, (b"x" * 50,)))
        for end in (2, 4):
            writer = log.begin_snapshot(SnapshotId(end, 1), None)
            writer.append([b"state"])
            writer.finish()
        assert log.sizes([SnapshotId(2, 1), SnapshotId(4, 1)]) > log.log.size_bytes
        paths = log.trim(4, [SnapshotId(2, 1)])
        assert f"{0:020d}.log" not in seam.disk.list(FOLDER)
        for path in paths:
            seam.disk.unlink(path)
        log.close()
        _, view, _ = opened(seam, segment_bytes=100)
        assert (view.start_offset, view.end_offset, view.snapshots) == (4, 6, [SnapshotId(4, 1)])
        assert view.voters.latest == VOTERS

    in_world(body)


def test_snapshot_finished_while_a_newer_one_is_installed_leaves_no_file() -> None:
    async def main(world: World) -> None:
        seam, files, offered = world.node("n"), trio.Lock(), list[Any]()
        log, view, _ = await seam.disk.offload(opened, seam)
        driver: Any = SimpleNamespace(
            metadata=log,
            raft=SimpleNamespace(log=view),
            files=files,
            is_blocked=False,
            offer=offered.append,
            measures=QuorumMeasures(),
        )
        driver.raft.may_snapshot = lambda _snapshot: True
        keeper = SnapshotKeeper(seam, driver, Delivery(files), retention_bytes=-1, retention_ms=-1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run)
            async with files:  # the install has already looked for files older than its snapshot
                keeper.request(SnapshotId(7, 2), [(b"a",)])
                while not log.store.list():
                    await world.sleep_ms(1)
                view.install(SnapshotId(9, 2), VOTERS)
            await world.sleep_ms(100)
            nursery.cancel_scope.cancel()
        assert not offered
        assert not log.store.list()

    World(1).run(main)


def test_invalid_snapshot_download_is_rejected_and_the_log_is_kept() -> None:
    def body(seam: Seam) -> None:
        log, _, _ = opened(seam)
        log.append(AppendEvents(0, 1, (b"a",)))
        log.receive(SnapshotId(9, 1), 0, b"rubbish" * 20)
        assert log.install_download(SnapshotId(9, 1)) is None
        assert log.log.log_end_offset == 1
        assert not [name for name in seam.disk.list(FOLDER) if "checkpoint" in name and "epoch" not in name]

    in_world(body)


def damage(seam: Seam, node_id: int) -> None:
    """Damage a batch in the middle of the log."""
    folder = f"/data/{node_id}/__cluster_metadata-0"
    path = f"{folder}/{0:020d}.log"
    data = bytearray(seam.disk.read_file(path))
    data[len(data) // 2] ^= 0xFF
    seam.disk.write_file_atomic(path, bytes(data))


def test_observer_with_a_damaged_log_deletes_it_and_fetches_it_again() -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world)
        cluster.start()
        values = [b"%d" % number * 40 for number in range(30)]
        for value in values:
            await cluster.write(value)
        await cluster.wait(lambda: cluster.have(*values))
        cluster.kill(4)
        damage(world.node("c4"), 4)
        cluster.restart(4)
        await cluster.wait(lambda: cluster.members[4].replica.values == values)

    World(2).run(main)


@pytest.mark.parametrize("is_state_damaged", [False, True])
def test_observer_with_a_damaged_log_keeps_its_epoch_unless_quorum_state_is_damaged(is_state_damaged: bool) -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world)
        cluster.start()
        await cluster.write(*(b"%d" % number * 40 for number in range(30)))
        await cluster.write(b"last")
        observer = cluster.members[4]
        await cluster.wait(lambda: observer.replica.values[-1:] == [b"last"])
        assert observer.quorum is not None
        core = observer.quorum.replica
        assert core is not None
        before = core.epoch
        assert before > 0
        for node in cluster.members:
            cluster.kill(node)
        damage(world.node("c4"), 4)
        world.node("c4").disk.make_directory("/data/4/__cluster_metadata-0/lost+found")
        if is_state_damaged:
            world.node("c4").disk.write_file_atomic("/data/4/__cluster_metadata-0/quorum-state", b"{")
        cluster.restart(4)
        await cluster.wait(lambda: observer.quorum is not None and observer.quorum.replica is not None)
        core = observer.quorum.replica
        assert core is not None
        assert (core.epoch, core.log.end_offset) == (0 if is_state_damaged else before, 0)

    World(2).run(main)


def test_voter_with_a_damaged_log_stops_and_reports_how_to_rejoin() -> None:
    failures: list[BaseException] = []

    async def main(world: World) -> None:
        cluster = Cluster(world, observers=0)
        cluster.start()
        for number in range(30):
            await cluster.write(b"%d" % number * 40)
        cluster.kill(3)
        damage(world.node("c3"), 3)
        world.start("c3", cluster.members[3].main, on_failure=lambda name, error: failures.append(error))
        await world.wait_ended("c3")

    World(2).run(main)
    assert len(failures) == 1
    assert "directory id" in str(failures[0])
    assert "00000000000000000000.log" in str(failures[0])


def written(seam: Seam, count: int) -> MetadataLog:
    log, _, _ = opened(seam)
    for number in range(count):
        log.append(AppendEvents(number, 1, (b"%d" % number * 50,)))
    return log


SEGMENT = f"{FOLDER}/{0:020d}.log"


@pytest.mark.parametrize("lost", [2, 40, 300])
def test_log_shorter_than_its_recovery_point_is_corrupt(lost: int) -> None:
    """The missing records look like the torn tail of a crash, but this node had acknowledged them."""

    def body(seam: Seam) -> None:
        log = written(seam, 9)
        log.close()
        data = seam.disk.read_file(SEGMENT)
        seam.disk.write_file_atomic(SEGMENT, data[:-lost])
        with pytest.raises(StorageCorrupt, match="was synced"):
            opened(seam)
        seam.disk.write_file_atomic(SEGMENT, data[:-lost] + bytes(lost))
        with pytest.raises(StorageCorrupt, match="was synced"):
            opened(seam)
        seam.disk.write_file_atomic(SEGMENT, data)
        assert opened(seam)[1].end_offset == 9

    in_world(body)


def test_torn_tail_above_the_recovery_point_is_truncated() -> None:
    def body(seam: Seam) -> None:
        written(seam, 5).close()
        log, _, _ = opened(seam)
        log.append(AppendEvents(5, 1, (b"not synced" * 50,)))
        data = seam.disk.read_file(SEGMENT)
        seam.disk.write_file_atomic(SEGMENT, data[:-30])
        assert opened(seam)[1].end_offset == 5

    in_world(body)


def test_log_truncated_below_its_synced_end_opens_after_a_restart() -> None:
    def body(seam: Seam) -> None:
        written(seam, 9).close()
        log, _, _ = opened(seam)
        log.truncate(4)
        assert opened(seam)[1].end_offset == 4
        log, _, _ = opened(seam)
        log.append(AppendEvents(4, 2, (b"b",)))
        log.close()
        assert opened(seam)[1].end_offset == 5

    in_world(body)


def test_log_replaced_by_a_snapshot_below_its_end_opens_at_the_snapshot() -> None:
    """Records above the snapshot were never committed."""

    def body(seam: Seam) -> None:
        source, _, _ = MetadataLog.open(seam.disk, seam.clock, "/other", "CONTROLLER", LogConfig(), VOTERS)
        writer = source.begin_snapshot(SnapshotId(3, 2), None)
        writer.append([b"state"])
        writer.finish()
        _, data = source.read_chunk(SnapshotId(3, 2), 0, 1 << 20)
        written(seam, 9).close()
        log, _, _ = opened(seam)
        log.receive(SnapshotId(3, 2), 0, data)
        assert log.install_download(SnapshotId(3, 2)) is not None
        view = opened(seam)[1]
        assert (view.start_offset, view.end_offset) == (3, 3)

    in_world(body)


def test_running_voter_saves_its_recovery_point_periodically() -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world, observers=0)
        cluster.start()
        await cluster.write(b"a" * 50)
        await world.sleep_ms(11_000)
        for n in cluster.members:
            cluster.kill(n, power=True)
        path = "/data/1/__cluster_metadata-0/" + f"{0:020d}.log"
        disk = world.node("c1").disk
        disk.write_file_atomic(path, disk.read_file(path)[:-1])
        failures: list[BaseException] = []
        world.start("c1", cluster.members[1].main, on_failure=lambda name, error: failures.append(error))
        await world.wait_ended("c1")
        assert "was synced" in str(failures[0])

    World(2).run(main)
