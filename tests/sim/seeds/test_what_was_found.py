"""Faults of our own that runs of the simulator brought to light, each as a short story that fails without its repair.

A seed stands for another run as soon as anything changes; a story lasts. docs/simulator-findings.md lists them all.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from kraft.client import Producer
from kraft.client.admin import Admin as AdminClient
from kraft.client.admin import NewTopic
from kraft.control import BrokerHeartbeat, RebalanceLeaders
from kraft.control.brokers.probing import CONNECT_GRACE_MS
from kraft.controller.command_queue import NOBODY, Waiter
from kraft.image.partitions import NO_LEADER
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import host_name
from kraft.sim.workload.admin_work import Admin
from kraft.sim.workload.workload import TOPIC
from kraft.sim.world import WorldOptions
from kraft.sim.world.filesystem import Directory
from kraft.sim.world.options import MILLISECOND_NS
from kraft.storage.log import Log
from tests.stages.checked_cluster import die_together, kill_and_settle, play, produce, state_of, wait_whole

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
            cluster.start(1)
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


async def keep_busy(cluster: SimCluster, topic: str, partition: int, number: int) -> None:
    """Write one batch after the other, and wait for no replica but the leader."""
    async with Producer(
        bootstrap_servers=cluster.shape.bootstrap_servers,
        acks=1,
        enable_idempotence=False,
        seam=cluster.world.node(f"writer-{number}"),
    ) as producer:
        while True:
            await producer.send(topic, b"more", partition=partition)


def test_a_partition_that_is_written_all_the_time_leaves_room_for_the_others() -> None:
    """With room for one batch in an answer, whoever had it was first again in the next: the records of another
    partition in the same fetch waited for ever, and its replicas were in sync all the while."""

    async def story(cluster: SimCluster) -> None:
        await Admin(cluster).create("busy", 3)
        await wait_whole(cluster)
        busy = cluster.image.topics.get("busy")
        assert busy is not None
        near = next(index for index, state in busy.partitions() if state.leader == state_of(cluster).leader)
        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(partial(keep_busy, cluster, "busy", near, number))
            await cluster.world.sleep_ms(20)
            assert await produce(cluster, 5, timeout_ms=200) == 5
            nursery.cancel_scope.cancel()

    assert not play(story, overrides={"replica.fetch.response.max.bytes": "1"})


def test_leaders_that_are_balanced_while_a_broker_begins_to_stop_keep_no_inactive_one_in_sync() -> None:
    """That it stops was recorded before the partitions were that it leaves: what changed them in between, in the same
    pass, left it among the in-sync replicas."""

    async def story(cluster: SimCluster) -> None:
        await Admin(cluster).create("many", 6)
        await kill_and_settle(cluster, 1)
        cluster.start(1)
        await wait_whole(cluster)
        active = cluster.watch.active_controller
        assert active is not None
        controller = cluster.watch.nodes[active].node.controller
        assert controller is not None
        line, submit = controller.line, controller.line.submit

        def submit_with_balance(command: Any, waiter: Waiter = NOBODY) -> None:
            submit(command, waiter)
            if isinstance(command, BrokerHeartbeat) and command.want_shut_down:
                submit(RebalanceLeaders())

        line.submit = submit_with_balance  # type: ignore[method-assign]
        assert await cluster.stop(3, timeout_ms=5_000)
        cluster.start(3)
        await wait_whole(cluster)

    assert not play(story)


def test_a_fence_names_the_connection_also_if_it_ended_before_the_controller_knew_the_broker() -> None:
    """Two controllers that have just started know no broker yet, but hear heartbeats of one, which dies and comes back.
    Whichever leads then forgot that it had ever heard it, and the fence named no connection."""

    async def story(cluster: SimCluster) -> None:
        first, second, _ = cluster.shape.controller_ids
        for controller in cluster.shape.controller_ids:
            cluster.crash(controller, lose_power=False, is_noticed=False)
        cluster.world.partition(host_name(first), host_name(second))
        cluster.start(first)
        cluster.start(second)
        await cluster.world.sleep_ms(3_000)
        cluster.crash(3, lose_power=False, is_noticed=False)
        await cluster.world.sleep_ms(500)
        cluster.world.heal_all()
        assert await cluster.wait_until(lambda: cluster.watch.active_controller is not None, 10_000)
        await cluster.world.sleep_ms(CONNECT_GRACE_MS - 15)
        cluster.start(3)
        await cluster.world.sleep_ms(1_000)

    far = WorldOptions(delay_min_ns=10 * MILLISECOND_NS)  # so that who comes back is asked before it has registered
    lines: list[str] = []
    assert not play(story, options=far, log_lines=lines)
    assert [line for line in lines if "brokers are gone" in line]


def test_a_partition_that_was_done_keeps_its_success_while_the_rest_of_its_request_waits() -> None:
    """No fault of ours but one of D11, which asked for epoch and ISR when the answer left: one of two partitions of a
    request is done, and loses its follower before the other is."""

    async def story(cluster: SimCluster) -> None:
        servers = cluster.shape.bootstrap_servers
        async with AdminClient(bootstrap_servers=servers, seam=cluster.world.node("admin")) as admin:
            pair = NewTopic("pair", assignment={0: (1, 2), 1: (1, 3)}, configs={"min.insync.replicas": "2"})
            await admin.topics.create(pair)
        producer = cluster.world.node("producer")
        async with Producer(bootstrap_servers=servers, enable_idempotence=False, linger_ms=50, seam=producer) as client:
            cluster.world.partition(host_name(1), host_name(3))
            async with trio.open_nursery() as nursery:
                for partition in range(2):
                    nursery.start_soon(partial(client.send, "pair", b"x", partition=partition))
                await cluster.world.sleep_ms(300)
                await kill_and_settle(cluster, 2)
                assert not cluster.image.is_alive(2)
                cluster.world.heal_all()

    assert not play(story)


def test_of_brokers_that_died_together_one_that_lost_nothing_leads() -> None:
    """All in sync had stopped uncleanly before anybody noticed (seed 131). The last known leader was taken back though
    its power loss had cost it what the others still held, and acknowledged records were gone."""

    async def story(cluster: SimCluster) -> None:
        assert await produce(cluster, 20) == 20
        leader = await die_together(cluster, lose_power=True)
        assert state_of(cluster).leader not in (NO_LEADER, leader)
        await wait_whole(cluster)
        assert {cluster.marks(broker, TOPIC, 0) for broker in cluster.shape.broker_ids} == {(20, 20)}

    assert not play(story)


def test_brokers_that_died_together_and_lost_nothing_go_on_where_they_were() -> None:
    """The last known leader was taken back without a look at its log, which nobody can tell from a loss (seed 123)."""

    async def story(cluster: SimCluster) -> None:
        assert await produce(cluster, 20) == 20
        leader = await die_together(cluster, lose_power=False)
        assert state_of(cluster).leader == leader


def test_a_topic_that_is_created_again_does_not_take_its_predecessors_high_watermark() -> None:
    """It stood in the checkpoint up to its next writing: a leader that was killed before that came back with a record
    that nobody else had, and took it for committed."""

    async def story(cluster: SimCluster) -> None:
        await produce(cluster, 10)
        await cluster.world.sleep_ms(6_000)  # the high watermark is in the checkpoint
        servers = cluster.shape.bootstrap_servers
        async with AdminClient(bootstrap_servers=servers, seam=cluster.world.node("deleter")) as client:
            await client.topics.delete(TOPIC)
        admin = Admin(cluster)
        await admin.create(TOPIC, 1)
        admin.close()
        await wait_whole(cluster)
        leader = state_of(cluster).leader
        for other in cluster.shape.broker_ids:
            cluster.world.partition(host_name(leader), host_name(other))
        await produce(cluster, 1, acks="1")
        await kill_and_settle(cluster, leader)
        cluster.world.heal_all()
        assert await cluster.wait_until(lambda: state_of(cluster).leader not in (leader, -1), 10_000)
        await produce(cluster, 2)
        cluster.start(leader)
        await wait_whole(cluster)

    assert not play(story)


async def write_as_one(cluster: SimCluster, count: int, *, acks: str = "all") -> None:
    """So many records as one batch."""
    servers, seam = cluster.shape.bootstrap_servers, cluster.world.node("producer")
    client = Producer(bootstrap_servers=servers, acks=acks, enable_idempotence=False, linger_ms=50, seam=seam)
    async with client as producer, trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(partial(producer.send, TOPIC, b"x", partition=0))


async def come_back_behind_what_was_deleted(cluster: SimCluster, *, alone: int, after: int, start: int) -> None:
    """A leader with so many records of its own behind 5 of all replicas dies. The next one commits so many others, the
    log is made to begin at `start`, and the first one comes back."""
    assert await produce(cluster, 5) == 5
    leader = state_of(cluster).leader
    for other in cluster.shape.broker_ids:
        cluster.world.partition(host_name(leader), host_name(other))
    await write_as_one(cluster, alone, acks="1")
    await kill_and_settle(cluster, leader)
    cluster.world.heal_all()
    assert await cluster.wait_until(lambda: state_of(cluster).leader not in (leader, NO_LEADER), 10_000)
    await write_as_one(cluster, after)
    servers = cluster.shape.bootstrap_servers
    async with AdminClient(bootstrap_servers=servers, seam=cluster.world.node("trimmer")) as client:
        await client.partitions.delete_records({(TOPIC, 0): start})
    cluster.start(leader)
    await wait_whole(cluster)
    assert {cluster.begin_of(broker, TOPIC, 0) for broker in cluster.shape.broker_ids} == {start}


def test_a_replica_that_ends_where_its_leaders_log_begins_now_does_not_keep_what_was_never_committed() -> None:
    """Its last epoch had been deleted with the records, so the leader took all that it had for its own past: a record
    that no other had stood where a committed one did, and a crash, which may take a log's begin back, laid it open."""

    async def story(cluster: SimCluster) -> None:
        await come_back_behind_what_was_deleted(cluster, alone=2, after=2, start=7)

    assert not play(story)


def test_a_replica_that_ends_inside_the_batch_with_which_its_leaders_log_begins_now_comes_back() -> None:
    """The same, but its end was no end of a batch there: it refused what it was sent for ever."""

    async def story(cluster: SimCluster) -> None:
        await come_back_behind_what_was_deleted(cluster, alone=2, after=4, start=7)

    assert not play(story)


def test_replicas_that_have_deleted_the_same_keep_their_logs_when_another_leads() -> None:
    """The other side of it: what they have is known to be the same, though its epochs are gone."""

    async def story(cluster: SimCluster) -> None:
        assert await produce(cluster, 5) == 5
        servers = cluster.shape.bootstrap_servers
        async with AdminClient(bootstrap_servers=servers, seam=cluster.world.node("trimmer")) as client:
            await client.partitions.delete_records({(TOPIC, 0): 5})
        leader = state_of(cluster).leader
        await kill_and_settle(cluster, leader)
        assert await produce(cluster, 1) == 1
        cluster.start(leader)
        await wait_whole(cluster)

    lines: list[str] = []
    assert not play(story, log_lines=lines)
    assert not [line for line in lines if "out of the leader's range" in line]


def log_of(cluster: SimCluster, broker: int) -> Log:
    """Of partition 0 of the orders on this broker."""
    node = cluster.watch.nodes[broker].node.broker
    partition = None if node is None else node.broker.replicas.find(TOPIC, 0)
    assert partition is not None
    assert partition.log is not None
    return partition.log


def test_replicas_in_sync_keep_what_they_know_of_producers_when_all_is_deleted_after_another_leads() -> None:
    """The other side of it: they end where the leader's log begins, and the epoch of what they have is gone there; but
    they have all that was committed. A log that is begun anew takes a producer's retry for new."""

    async def story(cluster: SimCluster) -> None:
        servers = cluster.shape.bootstrap_servers
        async with Producer(bootstrap_servers=servers, seam=cluster.world.node("producer")) as producer:
            for _ in range(5):
                await producer.send(TOPIC, b"x", partition=0)
        leader = state_of(cluster).leader
        await kill_and_settle(cluster, leader)
        cluster.start(leader)
        await wait_whole(cluster)
        async with AdminClient(bootstrap_servers=servers, seam=cluster.world.node("trimmer")) as client:
            await client.partitions.delete_records({(TOPIC, 0): 5})
        brokers = cluster.shape.broker_ids
        assert await cluster.wait_until(lambda: all(cluster.begin_of(each, TOPIC, 0) == 5 for each in brokers), 5_000)
        await cluster.world.sleep_ms(500)
        known = [log_of(cluster, each).producers.snapshot() for each in brokers]
        assert len(known[0]) == 1
        assert known[0] == known[1] == known[2]

    lines: list[str] = []
    assert not play(story, log_lines=lines)
    assert not [line for line in lines if "out of the leader's range" in line]


def test_a_broker_that_is_stopped_before_it_could_register_is_as_cleanly_stopped_as_it_was_before() -> None:
    """It had taken the mark of the life before, and left none: the next life had to leave ISR and ELR."""

    async def story(cluster: SimCluster) -> None:
        assert await produce(cluster, 5) == 5
        brokers, (controller,) = cluster.shape.broker_ids, cluster.shape.controller_ids
        for broker in brokers:
            assert await cluster.stop(broker, timeout_ms=10_000)
        cluster.crash(controller, lose_power=False, is_noticed=False)
        for broker in brokers:
            cluster.start(broker)
        await cluster.world.sleep_ms(50)
        for broker in brokers:
            assert await cluster.stop(broker, timeout_ms=10_000)
        cluster.start(controller)
        last = {*state_of(cluster).isr, *state_of(cluster).elr}
        for broker in brokers:
            cluster.start(broker)
        await wait_whole(cluster)
        assert state_of(cluster).leader in last

    assert not play(story, controllers=1)
