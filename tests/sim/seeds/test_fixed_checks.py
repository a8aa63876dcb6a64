"""Tests of correct behaviour in runs of the simulator that a check reported wrongly. Each is a short schedule that
failed until the check was fixed. tests/sim/check shows that the fixed check still finds what it should.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import trio

from kraft.client import Producer
from kraft.client.admin import Admin, NewTopic
from kraft.control import BrokerHeartbeat
from kraft.control.brokers import fencing
from kraft.control.partitions import plans
from kraft.controller.command_queue import NO_WAITER, CommandWaiter
from kraft.image.partitions import NO_LEADER
from kraft.node.peers import PeerRequestFailed
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.disk_observer import METADATA_DIRECTORY
from kraft.sim.cluster.fold import FenceRecorded
from kraft.sim.cluster.node_observer import FenceDecided
from kraft.sim.cluster.shape import host_name
from kraft.sim.cluster.watch import ClusterWatch
from kraft.sim.nemesis.disturbances import SLOW_DISK_MS
from kraft.sim.workload.admin_work import AdminWorker
from kraft.sim.world import WorldOptions
from kraft.sim.world.filesystem import Directory, Inode
from kraft.sim.world.options import MILLISECOND_NS
from kraft.storage.snapshots import SnapshotId
from kraft.wire.rpc.controller_messages import HeartbeatRequest
from tests.sim.seeds.test_fixed_bugs import BUSY_SNAPSHOTS, folder_of, make_metadata
from tests.stages.checked_cluster import kill_and_settle, play, produce, state_of, wait_whole

DURABLE = {"log.flush.interval.messages": "1"}


def test_checks_accept_an_elr_member_with_an_empty_disk_even_if_every_record_was_synced() -> None:
    """The member stays eligible while it is down, because the loss is unknown. Its new registration ends the
    eligibility (seed 126)."""

    async def story(cluster: SimCluster) -> None:
        await produce(cluster, 5)
        leader, (first, second) = (
            state_of(cluster).leader,
            [one for one in (1, 2, 3) if one != state_of(cluster).leader],
        )
        await kill_and_settle(cluster, first)
        cluster.crash(second, lose_power=False, is_noticed=False)
        cluster.wipe(second)
        await cluster.world.sleep_ms(500)
        assert (state_of(cluster).isr, state_of(cluster).elr) == ((leader,), (second,))
        before = cluster.image.brokers[second]
        cluster.start(second, wiped=True)
        while cluster.image.brokers[second].broker_epoch == before.broker_epoch:
            await cluster.world.sleep_ms(0.2)
        assert second not in (*state_of(cluster).isr, *state_of(cluster).elr)
        cluster.start(first)
        await wait_whole(cluster)

    assert not play(story, overrides=DURABLE)


def test_checks_accept_a_metadata_log_restarted_after_a_gap_left_by_a_power_loss() -> None:
    """After the power loss the name of a deleted segment returns without its bytes, because the broker had not synced
    the directory, and the segment after it is intact. The newest snapshot has the missing records, and the later ones
    are fetched again (seed 78)."""

    async def story(cluster: SimCluster) -> None:
        folder = folder_of(cluster, f"{cluster.shape.log_dirs_of(3)[0]}/{METADATA_DIRECTORY}")
        shadow = cluster.watch.suite.shadows.log(3, None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(make_metadata, cluster, 100)
            assert await cluster.wait_until(lambda: was_just_trimmed(folder, shadow.end_offset), 20_000, poll_ms=1)
            nursery.cancel_scope.cancel()
        keep_the_last_segment_alone(folder)
        await kill_and_settle(cluster, 3, lose_power=True)
        empty, whole = segments_of(folder)
        assert not empty.data
        assert whole.data
        cluster.start(3)
        await wait_whole(cluster)
        assert empty not in folder.entries.values()

    assert not play(story, overrides=BUSY_SNAPSHOTS)


def test_the_checks_metadata_replay_applies_records_committed_and_trimmed_between_observations() -> None:
    """Commit and trim happen before the next observation, and the brokers fetch the snapshot instead of the records.
    The checks continued with stale metadata, and considered the removed log of a deleted topic an error (seed 557)."""

    async def story(cluster: SimCluster) -> None:
        admin = AdminWorker(cluster)

        async def create(client: int) -> None:
            for number in range(5):
                await admin.create(f"made-{client}-{number}", 6)

        async with trio.open_nursery() as nursery:
            for client in range(4):
                nursery.start_soon(create, client)
        await cluster.world.sleep_ms(2_000)
        admin.close()
        (controller,) = cluster.shape.controller_ids
        assert cluster.image.offset == cluster.watch.nodes[controller].node.quorum.high_watermark
        assert len(cluster.image.topics.names) == 4 * 5 + 1

    options = WorldOptions(pass_delay_ns=10 * MILLISECOND_NS)
    assert not play(story, controllers=1, overrides=BUSY_SNAPSHOTS, options=options)


def was_just_trimmed(folder: Directory, end_offset: int) -> bool:
    """Return whether one segment was deleted and nothing of it is on the device. The name of the next segment is
    durable, and it has records that the newest snapshot does not have."""
    gone = [change.source for change in folder.pending if change.source is not None and change.source.endswith(".log")]
    lost = [file for name in gone if isinstance(file := folder.durable.get(name), Inode) and not file.durable]
    left = [name for name in folder.entries if name.endswith(".log")]
    snapshots = [found.end_offset for name in folder.durable if (found := SnapshotId.parse(name)) is not None]
    return len(gone) == len(lost) == len(left) == 1 and left[0] in folder.durable and max(snapshots) < end_offset


def keep_the_last_segment_alone(folder: Directory) -> None:
    """Drop what was not synced: every change of the directory, and every byte of the deleted file. All other files keep
    everything."""
    folder.pending.clear()
    for name, file in folder.entries.items():
        assert isinstance(file, Inode)
        if name.endswith(".deleted"):
            file.pending.clear()
        else:
            file.settle(file.mark)


def segments_of(folder: Directory) -> list[Inode]:
    files = [folder.entries[name] for name in sorted(folder.entries) if name.endswith(".log")]
    return [file for file in files if isinstance(file, Inode)]


def test_checks_use_epoch_and_isr_at_the_time_of_the_commit_for_a_delayed_produce_response() -> None:
    """One request for two partitions: the first is acknowledged, its ISR shrinks while the second one waits, and then
    the response is sent (seed 78)."""

    async def story(cluster: SimCluster) -> None:
        seam = cluster.world.node("client")
        servers = cluster.shape.bootstrap_servers
        async with Admin(bootstrap_servers=servers, seam=seam) as admin:
            await admin.topics.create(NewTopic("soon", assignment={0: (1, 2)}))
            await admin.topics.create(NewTopic("late", assignment={0: (1, 3)}))
        await wait_whole(cluster)
        async with Producer(bootstrap_servers=servers, linger_ms=20, delivery_timeout_ms=60_000, seam=seam) as producer:
            await producer.send("soon", b"warm")
            await producer.send("late", b"warm")
            cluster.crash(3, lose_power=False, is_noticed=False)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(producer.send, "soon", b"value")
                nursery.start_soon(producer.send, "late", b"value")
                await cluster.world.sleep_ms(500)
                await kill_and_settle(cluster, 2)
                assert isr_of(cluster, "soon") == isr_of(cluster, "late") == (1,)
                cluster.start(3)
                await cluster.wait_until(lambda: isr_of(cluster, "late") == (1, 3), 10_000)
                await cluster.world.sleep_ms(500)
                assert isr_of(cluster, "soon") == (1,)
                cluster.start(2)
        await wait_whole(cluster)

    assert not play(story)


def isr_of(cluster: SimCluster, name: str) -> tuple[int, ...]:
    topic = cluster.image.topics.get(name)
    assert topic is not None
    return tuple(sorted(topic.partition(0).isr))


class LateHeartbeat:
    """Schedule with a late heartbeat. Broker 3's report that it is not ready arrives after its report that it is ready,
    while slow disks delay the commit of its unfencing. It is fenced, and returns."""

    def __init__(self) -> None:
        self.was_uncommitted = False
        """Whether, when the late heartbeat arrived, the controller had unfenced the broker while the committed metadata
        still had it fenced."""

    async def story(self, cluster: SimCluster) -> None:
        await kill_and_settle(cluster, 3)
        assert await cluster.wait_until(lambda: not cluster.image.is_alive(3), 10_000)
        active = cluster.watch.active_controller
        assert active is not None
        controller = cluster.watch.nodes[active].node.controller
        assert controller is not None
        queue, submit = controller.queue, controller.queue.submit
        unfenced = trio.Event()

        def listen(command: Any, waiter: CommandWaiter = NO_WAITER) -> None:
            is_unfenced = queue.image is not None and queue.image.is_alive(3) and not cluster.image.is_alive(3)
            if isinstance(command, BrokerHeartbeat) and command.broker_id == 3 and command.want_fence:
                self.was_uncommitted = self.was_uncommitted or is_unfenced
            submit(command, waiter)
            if queue.image is not None and queue.image.is_alive(3):
                unfenced.set()

        queue.submit = listen  # type: ignore[method-assign]
        for node in cluster.shape.controller_ids:
            cluster.world.slow_disk(host_name(node), SLOW_DISK_MS)
        cluster.start(3)
        await unfenced.wait()
        node_three = cluster.watch.nodes[3].node.broker
        assert node_three is not None
        broker = node_three.broker
        late = replace(broker.lifecycle.heartbeat(), want_fence=True)
        with suppress(PeerRequestFailed):
            await broker.controller.request(late, timeout_ms=2_000)
        for node in cluster.shape.controller_ids:
            cluster.world.slow_disk(host_name(node), 0)
        await wait_whole(cluster)


def test_checks_accept_a_fence_that_a_broker_requested_before_its_unfencing_was_committed() -> None:
    """The broker's unfencing is appended and not committed, because disks are slow, when a heartbeat arrives that
    requests its fencing (seed 15)."""
    late = LateHeartbeat()
    assert not play(late.story)
    assert late.was_uncommitted


def test_a_check_that_uses_only_committed_unfencings_reports_a_requested_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ClusterWatch.heartbeat_handled

    def twin(watch: ClusterWatch, controller: int, request: HeartbeatRequest, connection: int) -> None:
        is_known = watch.fold.image.is_alive(request.broker_id)
        original(watch, controller, request if is_known else replace(request, want_fence=False), connection)

    monkeypatch.setattr(ClusterWatch, "heartbeat_handled", twin)
    assert {finding.check for finding in play(LateHeartbeat().story)} == {"K1"}


def test_checks_ignore_heartbeats_of_a_later_epoch_than_the_one_that_decided_a_fence() -> None:
    """The controller dies before the fence is committed, and is elected again. Its sessions restart, and heartbeats
    that it receives from then on are no evidence against the fence (seed 203)."""

    async def story(cluster: SimCluster) -> None:
        (active,) = cluster.shape.controller_ids
        name = host_name(active)
        cluster.world.partition(host_name(2), name)
        await cluster.world.sleep_ms(6_000)
        cluster.world.slow_disk(name, SLOW_DISK_MS)
        controller = cluster.watch.nodes[active].node.controller
        assert controller is not None

        def is_decided() -> bool:
            return controller.queue.image is not None and not controller.queue.image.is_alive(2)

        assert await cluster.wait_until(is_decided, 10_000)
        assert cluster.image.is_alive(2), "its fence is appended, and not committed"
        cluster.crash(active, lose_power=False, is_noticed=False)
        cluster.world.slow_disk(name, 0)
        cluster.start(active)
        assert await cluster.wait_until(lambda: not cluster.image.is_alive(2), 1_000)
        cluster.world.heal_all()
        await wait_whole(cluster)

    assert not play(story, controllers=1)


def test_a_heartbeat_between_the_slices_of_a_fence_does_not_revoke_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session had expired when the decision to fence began; the last slice of the decision, which records the
    fence, comes later (seed 105)."""
    monkeypatch.setattr(fencing, "FENCE_CHANGES_PER_SLICE_MAX", 1)

    async def story(cluster: SimCluster) -> None:
        await AdminWorker(cluster).create("wide", 8)
        await wait_whole(cluster)
        (active,) = cluster.shape.controller_ids
        name = host_name(active)
        cluster.world.partition(host_name(2), name)
        cluster.world.slow_disk(name, SLOW_DISK_MS)

        def is_begun() -> bool:
            return any(2 not in state.isr for topic in cluster.image.topics for _, state in topic.partitions())

        assert await cluster.wait_until(is_begun, 20_000, poll_ms=1)
        assert cluster.image.is_alive(2), "its last slice is to come"
        cluster.world.heal_all()
        assert await cluster.wait_until(lambda: not cluster.image.is_alive(2), 10_000)
        cluster.world.slow_disk(name, 0)
        await wait_whole(cluster)

    assert not play(story, controllers=1)


def test_checks_accept_the_fence_of_a_later_epoch_after_a_power_loss_removed_an_uncommitted_fence() -> None:
    """The controller of the next epoch decides again, and has no connection of that incarnation (seed 3549 of 15 s)."""

    async def story(cluster: SimCluster) -> None:
        (active,) = cluster.shape.controller_ids
        broker, watch = cluster.image.brokers[2], cluster.watch
        (number,) = (number for place, number in watch._connections.items() if place[1] == 2)
        watch._fence_decided(active, FenceDecided(2, broker.broker_epoch, number, 0, is_fast=True, is_first=True))
        cluster.world.partition(host_name(2), host_name(active))
        cluster.crash(active, lose_power=True, is_noticed=False)
        cluster.start(active)
        assert await cluster.wait_until(lambda: watch.active_controller == active, 10_000)
        watch._fence_decided(active, FenceDecided(2, broker.broker_epoch, None, 0, is_fast=True, is_first=True))
        watch._fence_recorded(FenceRecorded(broker, superseded=False, epoch=watch.newest_leadership[0]))
        cluster.world.heal_all()
        await wait_whole(cluster)

    assert {finding.check for finding in play(story, controllers=1)} <= {"K1"}, "nobody has proven that 2 is dead"


def test_a_late_heartbeat_that_requests_a_fence_excuses_only_one_fence() -> None:
    async def story(cluster: SimCluster) -> None:
        await LateHeartbeat().story(cluster)
        fence = FenceRecorded(cluster.image.brokers[3], superseded=False, epoch=cluster.image.epoch)
        cluster.watch._fence_recorded(fence)

    assert {finding.check for finding in play(story)} == {"K1"}


async def stop_before_the_controller_notices(cluster: SimCluster, *, lose_power: bool) -> int:
    """End all brokers at one moment, the leader by a power loss if requested. The leader restarts while no controller
    runs, is stopped cleanly, and restarts again when no other broker is in sync or eligible. Return the earlier leader.
    """
    assert await produce(cluster, 20) == 20
    leader = state_of(cluster).leader
    for node in cluster.shape.node_ids:
        cluster.crash(node, lose_power=lose_power and node == leader, is_noticed=False)
    cluster.start(leader)
    await cluster.world.sleep_ms(50)
    assert await cluster.stop(leader, timeout_ms=5_000)
    for node in cluster.shape.node_ids:
        if node != leader:
            cluster.start(node)

    def is_alone() -> bool:
        return (state_of(cluster).isr, state_of(cluster).elr) == ((leader,), ())

    assert await cluster.wait_until(is_alone, 10_000)
    cluster.start(leader)
    assert await cluster.wait_until(lambda: state_of(cluster).isr != (leader,), 10_000)
    await wait_whole(cluster)
    return leader


def test_an_unclean_stop_that_no_registration_reported_is_reported_after_a_later_clean_stop() -> None:
    """The clean stop leaves no clean shutdown file, because the broker's logs were not recovered yet. Then ISR and ELR
    are empty, and the replica that is elected lacks nothing (seed 1726)."""

    async def story(cluster: SimCluster) -> None:
        leader = await stop_before_the_controller_notices(cluster, lose_power=False)
        assert state_of(cluster).leader == leader

    async def story_of_a_loss(cluster: SimCluster) -> None:
        leader = await stop_before_the_controller_notices(cluster, lose_power=True)
        assert state_of(cluster).leader not in (NO_LEADER, leader)

    assert not play(story)
    assert not play(story_of_a_loss)


def test_an_unclean_stop_that_no_registration_reported_allows_no_election_of_an_incomplete_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def take_back(_image: Any, _context: Any, _topic_id: Any, _index: Any, state: Any, may_lead: Any) -> int:
        last = state.last_known_elr[0] if len(state.last_known_elr) == 1 else NO_LEADER
        return last if not state.elr and may_lead(last, None) else NO_LEADER

    async def story(cluster: SimCluster) -> None:
        leader = await stop_before_the_controller_notices(cluster, lose_power=True)
        assert state_of(cluster).leader == leader

    monkeypatch.setattr(plans, "choose_furthest", take_back)
    assert "M5" in {finding.check for finding in play(story)}
