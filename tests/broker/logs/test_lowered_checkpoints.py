"""A truncated log whose node died before the checkpoints were written. The checkpointed offsets are lowered before the
log accepts appends.
"""

from __future__ import annotations

from typing import Any

from kraft.broker.partition.partition import Partition
from kraft.broker.roles.replica_manager import ReplicaManager
from kraft.sim.world.filesystem import Directory, Inode
from kraft.storage.checkpoints import RECOVERY_POINT_CHECKPOINT, decode_offsets
from tests.stages.plane import Plane, batch, error, run, three, values
from tests.stages.replicas import NONE, produce_numbers, restart, settled

LAYOUT = {"controllers": 1, "brokers": 1, "log_dirs": "/more,/data", "metadata_log_dir": "/data"}
KEY = ("orders", 0)


def inode(plane: Plane, path: str) -> Inode:
    node: Inode | Directory = plane.world.host("b1").root
    for name in path.strip("/").split("/"):
        assert isinstance(node, Directory)
        node = node.entries[name]
    assert isinstance(node, Inode)
    return node


def on_disk(plane: Plane) -> int | None:
    """Return the recovery point in the checkpoint file."""
    return decode_offsets(bytes(inode(plane, f"/more/{RECOVERY_POINT_CHECKPOINT}").data)).get(KEY)


def replicas(plane: Plane) -> ReplicaManager:
    node: Any = plane.cluster.node(1)
    manager: ReplicaManager = node.broker.broker.replicas
    return manager


async def truncated_and_killed(plane: Plane) -> Partition:
    """Sync and checkpoint five records. Truncate the log to two records, and kill the node before the checkpoint is
    written. Start the node again.

    The log is then open but not in use, because the checkpoint must be lowered first. The test holds the directory's
    `checkpointing` lock, as another write of the checkpoint would. This delays the lowering until the lock is released.
    """
    await plane.create_topic("orders", flush_messages="1")
    await produce_numbers(plane, 5)
    await replicas(plane).checkpoints.write_recovery_points()
    opened = plane.partition("orders").log
    assert opened is not None
    opened.truncate_to(2, 0)
    plane.world.kill("b1")
    plane.cluster.started["b1"].node = None
    plane.world.restart("b1")
    await plane.until(lambda: plane.cluster.started["b1"].node is not None)
    directory = replicas(plane).directories.all[0]
    directory.checkpointing.acquire_nowait()
    await plane.until(lambda: directory.recovery_points.get(KEY) == 2)
    await plane.world.sleep_ms(2_000)
    partition = plane.partition("orders")
    assert (partition.directory, partition.log, partition.leader) == (directory, None, None)
    assert on_disk(plane) == 5
    return partition


def release(partition: Partition) -> None:
    assert partition.directory is not None
    partition.directory.checkpointing.release()


def test_a_log_that_ends_below_its_checkpoint_takes_no_append_before_the_checkpoint_is_lowered() -> None:
    async def test(plane: Plane) -> None:
        partition = await truncated_and_killed(plane)
        release(partition)
        await plane.until(lambda: partition.log is not None)
        assert on_disk(plane) == 2
        await plane.cluster.wait_ready(30_000)
        assert error(await plane.produce("orders", batch("again"), client=await plane.another_client())) == NONE

    run(test, **LAYOUT)


def test_a_torn_log_tail_after_a_truncation_and_a_power_loss_does_not_count_as_damage() -> None:
    """The log could not be opened if the checkpoint still claimed that the torn tail was synced."""

    async def test(plane: Plane) -> None:
        partition = await truncated_and_killed(plane)
        release(partition)
        await plane.cluster.wait_ready(30_000)
        partition.flush_records = 1 << 40  # appends wait for no sync after this line
        file = inode(plane, "/more/orders-0/00000000000000000000.log")
        size = len(file.data)
        client = await plane.another_client()
        for number in range(5):
            assert error(await plane.produce("orders", batch(f"{number}"), client=client)) == NONE
        plane.world.kill("b1")
        torn = size + (len(file.data) - size) // 5 + 30  # in the second batch
        file.data, file.durable, file.pending = file.data[:torn], file.data[:torn], []
        plane.world.restart("b1")
        await plane.world.sleep_ms(20)
        await plane.cluster.wait_ready(30_000)
        found = await plane.fetch("orders", 0, client=await plane.another_client())
        assert (error(found), values(found.records)) == (NONE, [b"0", b"1", b"0"])

    run(test, **LAYOUT)


def test_a_directory_whose_checkpoint_cannot_be_lowered_goes_offline_and_its_log_is_not_used() -> None:
    async def test(plane: Plane) -> None:
        partition = await truncated_and_killed(plane)
        plane.world.fail_directory("b1", "/more")
        release(partition)
        await plane.until(lambda: partition.is_offline)
        assert [one.path for one in replicas(plane).directories.online] == ["/data"]
        await plane.world.sleep_ms(2_000)
        assert partition.log is None
        assert plane.is_up(1)

    run(test, **LAYOUT)


def test_a_replica_removed_while_its_checkpoint_is_lowered_leaves_no_line_in_it() -> None:
    async def test(plane: Plane) -> None:
        partition = await truncated_and_killed(plane)
        manager, directory = replicas(plane), partition.directory
        assert directory is not None
        manager.roles.removal.remove(partition)
        release(partition)
        await manager.logs.retirement.wait_for(*KEY)
        assert partition.log is None
        await manager.checkpoints.write_recovery_points_of(directory)
        assert on_disk(plane) is None

    run(test, **LAYOUT)


def test_a_log_truncated_below_its_log_start_keeps_the_new_log_start_after_a_crash() -> None:
    """If the checkpoint kept the old log start offset, the log would lack records at and above that offset."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await produce_numbers(plane, 5)
        await settled(plane)
        node: Any = plane.cluster.node(2)
        manager: ReplicaManager = node.broker.broker.replicas
        partition = plane.partition("orders", 2)
        opened, directory = partition.log, partition.directory
        assert opened is not None
        assert directory is not None
        opened.advance_log_start(3)
        await manager.checkpoints.write_log_starts_of(directory)
        (followed,) = [one.followed(partition) for one in manager.fetchers if len(one)]
        assert followed is not None
        followed._truncate(1, fully=False)
        await plane.until(lambda: opened.truncations == 1)
        await settled(plane)
        assert opened.log_start_offset == 1
        plane.world.kill("b2")
        await restart(plane, 2)
        await plane.until(lambda: plane.partition("orders", 2).log is not None)
        assert plane.partition("orders", 2).log.log_start_offset == 1

    three(test)
