"""Tests of bugs of pykraft that runs of the simulator found, each as a short schedule that fails without its fix.

A seed gives another run as soon as anything changes; a schedule stays the same. docs/simulator-findings.md lists all of
these bugs.
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
from kraft.controller.command_queue import NO_WAITER, CommandWaiter
from kraft.image.partitions import NO_LEADER
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import host_name
from kraft.sim.workload.admin_work import AdminWorker
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
"""Settings with which the metadata log is frequently deleted up to a snapshot."""


async def make_metadata(cluster: SimCluster, topics: int) -> None:
    admin = AdminWorker(cluster)
    for number in range(topics):
        await admin.create(f"made-{number}", 1)
    admin.close()


def test_followers_without_a_fetch_session_slot_keep_fetching() -> None:
    """Bug: the session epoch of the full fetch request kept counting, so every second request was rejected, at once and
    permanently."""

    async def story(cluster: SimCluster) -> None:
        await produce(cluster, 20)
        await cluster.world.sleep_ms(500)

    lines: list[str] = []
    assert not play(story, overrides={"max.incremental.fetch.session.cache.slots": "0"}, log_lines=lines)
    assert not [line for line in lines if "fetch was refused by the leader" in line]


def test_trimming_records_during_a_followers_read_does_not_stop_the_controller() -> None:
    """Bug: a cold read was in progress when the log was deleted below a snapshot, and the read's error stopped the
    active controller."""

    async def story(cluster: SimCluster) -> None:
        await make_metadata(cluster, 15)

    options = WorldOptions(cold_read_one_in=2, offload_delay_jitter_ns=5 * MILLISECOND_NS)
    assert not play(story, overrides=BUSY_SNAPSHOTS, options=options)


def test_a_node_stops_cleanly_while_its_metadata_log_is_trimmed() -> None:
    """Bug: the Raft core was no longer notified of deletions, and its next query for the size of a snapshot failed."""

    async def story(cluster: SimCluster) -> None:
        for number in range(3):
            admin = AdminWorker(cluster)
            for topic in range(3):
                await admin.create(f"made-{number}-{topic}", 1)
            admin.close()
            assert await cluster.stop(1, timeout_ms=5_000)
            cluster.start(1)
            await cluster.wait_until(lambda: not cluster.loss(), 10_000)

    options = WorldOptions(offload_delay_jitter_ns=40 * MILLISECOND_NS)
    assert not play(story, overrides=BUSY_SNAPSHOTS, options=options)


def test_stray_partition_folders_of_the_same_name_in_two_log_directories_are_both_renamed() -> None:
    """Bug: the folder in the first log directory was renamed twice, and at the second rename its healthy log directory
    went offline."""

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


def test_a_broker_starts_with_a_failed_log_directory() -> None:
    """Bug: the broker stopped, because the directory could not be read; a directory that fails later was always
    tolerated."""

    async def story(cluster: SimCluster) -> None:
        await kill_and_settle(cluster, 3)
        cluster.missing_directory.add(3)
        cluster.world.fail_directory("node-3", cluster.shape.log_dirs_of(3)[-1])
        cluster.start(3)
        assert await cluster.wait_until(lambda: cluster.image.is_alive(3), 10_000)

    assert not play(story, log_dirs=2)


def test_an_active_controller_with_a_full_disk_is_replaced() -> None:
    """Bug: the request that could not be appended was rejected, and the node continued with a core whose records were
    not on its disk. It tried to sync endlessly, and no other controller was elected."""

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
    """Write batches one at a time, and wait only for the leader's acknowledgement."""
    async with Producer(
        bootstrap_servers=cluster.shape.bootstrap_servers,
        acks=1,
        enable_idempotence=False,
        seam=cluster.world.node(f"writer-{number}"),
    ) as producer:
        while True:
            await producer.send(topic, b"more", partition=partition)


def test_a_busy_partition_leaves_room_for_other_partitions_in_fetch_responses() -> None:
    """Bug: with room for one batch in a response, the partition that used it came first again in the next response. The
    records of another partition in the same fetch waited endlessly, while its replicas stayed in sync."""

    async def story(cluster: SimCluster) -> None:
        await AdminWorker(cluster).create("busy", 3)
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


def test_leader_balancing_during_a_controlled_shutdown_leaves_no_inactive_broker_in_the_isr() -> None:
    """Bug: the broker's shutdown was recorded before its removal from the partitions. A change of these partitions in
    between, in the same pass of the event loop, left the broker in the ISR."""

    async def story(cluster: SimCluster) -> None:
        await AdminWorker(cluster).create("many", 6)
        await kill_and_settle(cluster, 1)
        cluster.start(1)
        await wait_whole(cluster)
        active = cluster.watch.active_controller
        assert active is not None
        controller = cluster.watch.nodes[active].node.controller
        assert controller is not None
        queue, submit = controller.queue, controller.queue.submit

        def submit_with_balance(command: Any, waiter: CommandWaiter = NO_WAITER) -> None:
            submit(command, waiter)
            if isinstance(command, BrokerHeartbeat) and command.want_shut_down:
                submit(RebalanceLeaders())

        queue.submit = submit_with_balance  # type: ignore[method-assign]
        assert await cluster.stop(3, timeout_ms=5_000)
        cluster.start(3)
        await wait_whole(cluster)

    assert not play(story)


def test_a_fence_names_a_connection_that_ended_before_the_controller_knew_the_broker() -> None:
    """Two controllers that have just started have no broker in their metadata yet, but receive heartbeats of a broker,
    which dies and restarts. Bug: the new leader did not use these heartbeats, and the fence named no connection."""

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

    # so that a returning broker is probed before it has registered
    far = WorldOptions(delay_min_ns=10 * MILLISECOND_NS)
    lines: list[str] = []
    assert not play(story, options=far, log_lines=lines)
    assert [line for line in lines if "brokers are gone" in line]


def test_a_replicated_partition_keeps_its_success_while_its_produce_request_waits_for_other_partitions() -> None:
    """Bug of the check D11: it used epoch and ISR at the time of the response. One of two partitions of a request is
    complete, and loses its follower before the other partition is complete."""

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


def test_after_a_crash_of_all_brokers_a_replica_that_lost_no_records_is_elected() -> None:
    """All in-sync replicas had stopped uncleanly before the controller noticed (seed 131). Bug: the last known leader
    was elected although a power loss had removed records from it that the other replicas still had, so acknowledged
    records were lost."""

    async def story(cluster: SimCluster) -> None:
        assert await produce(cluster, 20) == 20
        leader = await die_together(cluster, lose_power=True)
        assert state_of(cluster).leader not in (NO_LEADER, leader)
        await wait_whole(cluster)
        assert {cluster.marks(broker, TOPIC, 0) for broker in cluster.shape.broker_ids} == {(20, 20)}

    assert not play(story)


def test_the_last_leader_leads_again_after_all_brokers_crashed_together_without_losing_records() -> None:
    """Bug: the last known leader was elected without a check of its log, which cannot be distinguished from an election
    that loses records (seed 123)."""

    async def story(cluster: SimCluster) -> None:
        assert await produce(cluster, 20) == 20
        leader = await die_together(cluster, lose_power=False)
        assert state_of(cluster).leader == leader


def test_a_recreated_topic_does_not_inherit_the_high_watermark_of_the_deleted_topic() -> None:
    """Bug: the deleted topic's high watermark stayed in the checkpoint until its next write. A leader that was killed
    before that restarted with a record that no other replica had, and treated it as committed."""

    async def story(cluster: SimCluster) -> None:
        await produce(cluster, 10)
        await cluster.world.sleep_ms(6_000)  # the high watermark is in the checkpoint
        servers = cluster.shape.bootstrap_servers
        async with AdminClient(bootstrap_servers=servers, seam=cluster.world.node("deleter")) as client:
            await client.topics.delete(TOPIC)
        admin = AdminWorker(cluster)
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
    """Write this many records as one batch."""
    servers, seam = cluster.shape.bootstrap_servers, cluster.world.node("producer")
    client = Producer(bootstrap_servers=servers, acks=acks, enable_idempotence=False, linger_ms=50, seam=seam)
    async with client as producer, trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(partial(producer.send, TOPIC, b"x", partition=0))


async def come_back_behind_what_was_deleted(cluster: SimCluster, *, alone: int, after: int, start: int) -> None:
    """Run a schedule in which a leader dies that has `alone` records that no other replica has, after 5 that all have.
    The next leader commits `after` other records, its log is made to begin at `start`, and the dead broker returns."""
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


def test_a_replica_ending_at_its_leaders_log_start_drops_uncommitted_records() -> None:
    """Bug: the replica's last epoch had been deleted with the leader's records, so the leader treated all of the
    replica's log as its own history. A record that no other replica had took the place of a committed one. A crash,
    which may move the log start back, exposed it."""

    async def story(cluster: SimCluster) -> None:
        await come_back_behind_what_was_deleted(cluster, alone=2, after=2, start=7)

    assert not play(story)


def test_a_replica_ending_within_its_leaders_first_batch_catches_up() -> None:
    """Bug: a replica whose log ended in the middle of a batch of its leader endlessly rejected what it was sent."""

    async def story(cluster: SimCluster) -> None:
        await come_back_behind_what_was_deleted(cluster, alone=2, after=4, start=7)

    assert not play(story)


def test_replicas_with_equal_deleted_prefixes_keep_their_logs_under_a_new_leader() -> None:
    """The epochs of the deleted records are deleted too, but the replicas are known to have the same records. So they
    must not restart their logs at the new leader's log start."""

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
    """Return the log of partition 0 of the orders topic on this broker."""
    node = cluster.watch.nodes[broker].node.broker
    partition = None if node is None else node.broker.replicas.find(TOPIC, 0)
    assert partition is not None
    assert partition.log is not None
    return partition.log


def test_in_sync_replicas_keep_producer_states_when_all_records_are_deleted() -> None:
    """The replicas end where the leader's log begins, and the epoch of their records is deleted there, but they have
    all committed records. So they must not restart their logs: a restarted log would accept a producer's retry as new.
    """

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


def test_a_broker_stopped_before_registering_keeps_its_clean_shutdown_state() -> None:
    """Bug: the broker had removed the clean shutdown file of its last incarnation, and left none. So the next
    incarnation had to leave ISR and ELR."""

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
