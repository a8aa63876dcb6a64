"""Faults of our own that runs of the simulator brought to light, each as a short story that fails without its repair.

A seed stands for another run as soon as anything changes; a story lasts. docs/simulator-findings.md lists them all.
"""

from __future__ import annotations

from kraft.sim.cluster.admin_work import Admin
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import host_name
from kraft.sim.world import WorldOptions
from kraft.sim.world.filesystem import Directory
from kraft.sim.world.options import MILLISECOND_NS
from tests.cluster.stage import kill_and_settle, play, produce, wait_whole

BUSY_SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": "500",
    "internal.metadata.log.segment.bytes": "500",
    "metadata.max.retention.bytes": "1000",
}
"""A metadata log that is cut behind its snapshots all the time."""


async def make_metadata(cluster: SimCluster, topics: int) -> None:
    admin = Admin(cluster)
    for number in range(topics):
        await admin.create(f"made-{number}", 1)
    admin.close()


def test_followers_for_whom_the_leader_has_no_session_slot_fetch_in_peace() -> None:
    """The epoch of the full request went on counting: every second request was refused, at once and for ever."""

    async def story(cluster: SimCluster) -> None:
        await produce(cluster, 20)
        await cluster.world.sleep_ms(500)

    lines: list[str] = []
    assert not play(story, overrides={"max.incremental.fetch.session.cache.slots": "0"}, log_lines=lines)
    assert not [line for line in lines if "fetch is refused" in line]


def test_records_that_are_trimmed_while_they_are_read_for_a_follower_stop_nobody() -> None:
    """A cold read was begun, the log was cut behind a snapshot, and the read stopped the active controller."""

    async def story(cluster: SimCluster) -> None:
        await make_metadata(cluster, 15)

    options = WorldOptions(cold_read_one_in=2, offload_delay_jitter_ns=5 * MILLISECOND_NS)
    assert not play(story, overrides=BUSY_SNAPSHOTS, options=options)


def test_a_node_that_stops_while_its_metadata_log_is_trimmed_stops_in_order() -> None:
    """What was trimmed was not told to the core any more, and the next look for a snapshot's size did not find it."""

    async def story(cluster: SimCluster) -> None:
        for number in range(3):
            admin = Admin(cluster)
            for topic in range(3):
                await admin.create(f"made-{number}-{topic}", 1)
            admin.close()
            assert await cluster.stop(1, timeout_ms=5_000)
            cluster.start(1, clean=True)
            await cluster.wait_until(lambda: not cluster.loss(), 10_000)

    options = WorldOptions(offload_delay_jitter_ns=40 * MILLISECOND_NS)
    assert not play(story, overrides=BUSY_SNAPSHOTS, options=options)


def test_folders_of_one_name_in_two_directories_are_both_set_aside() -> None:
    """The first was renamed twice, and the second time its directory, which was well, went offline."""

    async def story(cluster: SimCluster) -> None:
        await kill_and_settle(cluster, 3)
        for path in cluster.shape.log_dirs_of(3):
            folder_of(cluster, path).add_directory("ghost-0")
        cluster.start(3)
        await wait_whole(cluster)
        await cluster.world.sleep_ms(1_000)
        for path in cluster.shape.log_dirs_of(3):
            names = folder_of(cluster, path).entries
            assert "ghost-0" not in names
            assert any(name.startswith("ghost-0.") for name in names)

    assert not play(story, log_dirs=2)


def folder_of(cluster: SimCluster, path: str) -> Directory:
    folder = cluster.world.host("node-3").root
    for name in path.strip("/").split("/"):
        entry = folder.entries[name]
        assert isinstance(entry, Directory)
        folder = entry
    return folder


def test_a_broker_starts_although_the_device_of_a_directory_fails() -> None:
    """It stopped, because the directory could not be looked at; a directory that fails later was always put up with."""

    async def story(cluster: SimCluster) -> None:
        await kill_and_settle(cluster, 3)
        cluster.hampered.add(3)
        cluster.world.fail_directory("node-3", cluster.shape.log_dirs_of(3)[-1])
        cluster.start(3)
        assert await cluster.wait_until(lambda: cluster.image.is_alive(3), 10_000)

    assert not play(story, log_dirs=2)


def test_an_active_controller_whose_disk_is_full_makes_way() -> None:
    """The request that could not be appended was refused, and the node went on with a core that held what its disk did
    not: it looked for something to sync for ever, and no other controller took over."""

    async def story(cluster: SimCluster) -> None:
        active = cluster.watch.active_controller
        assert active is not None
        name = host_name(active)
        cluster.excused.add(active)
        cluster.world.disk_full(name, True)
        await make_metadata(cluster, 1)
        assert not cluster.is_running(active)
        cluster.world.disk_full(name, False)
        cluster.start(active)
        await wait_whole(cluster)

    assert not play(story)
