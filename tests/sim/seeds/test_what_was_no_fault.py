"""What runs of the simulator showed and a check called a fault, wrongly: each as a short story that failed until the
check was mended. That the mended check still finds what it is for is shown in tests/sim/check.
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
from kraft.controller.command_queue import NOBODY, Waiter
from kraft.image.partitions import NO_LEADER
from kraft.node.peers import RequestFailed
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.disk_eye import METADATA_DIRECTORY
from kraft.sim.cluster.fold import FenceRecorded
from kraft.sim.cluster.node_eye import FenceDecided
from kraft.sim.cluster.shape import host_name
from kraft.sim.cluster.watch import ClusterWatch
from kraft.sim.nemesis.disturbances import SLOW_DISK_MS
from kraft.sim.workload.admin_work import Admin as AdminWork
from kraft.sim.world import WorldOptions
from kraft.sim.world.filesystem import Directory, Inode
from kraft.sim.world.options import MILLISECOND_NS
from kraft.storage.snapshots import SnapshotId
from kraft.wire.rpc.controller_messages import HeartbeatRequest
from tests.sim.seeds.test_what_was_found import BUSY_SNAPSHOTS, folder_of, make_metadata
from tests.stages.checked_cluster import kill_and_settle, play, produce, state_of, wait_whole

DURABLE = {"log.flush.interval.messages": "1"}


def test_an_empty_disk_excuses_an_eligible_replica_also_where_each_record_is_synced() -> None:
    """It stays eligible while it is down, for nobody can know; its new registration ends that (seed 126)."""

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


def test_a_brokers_metadata_log_is_begun_anew_behind_a_hole_that_a_power_loss_has_left() -> None:
    """The name of a trimmed segment comes back without its bytes, which a broker does not sync, and the segment behind
    it is whole. The newest snapshot has what is missing, and the rest is fetched again (seed 78)."""

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


def test_what_the_only_controller_commits_and_trims_in_one_pass_is_folded_nevertheless() -> None:
    """Before the next look at it, and the brokers fetch the snapshot in place of the records: the checks went on with
    metadata that stood still, and took a deleted topic's log for one that nobody deleted (seed 557)."""

    async def story(cluster: SimCluster) -> None:
        admin = AdminWork(cluster)

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
    """One segment was deleted and nothing of it is on the device; the next one is there by name, and has something that
    the newest snapshot has not."""
    gone = [change.source for change in folder.pending if change.source is not None and change.source.endswith(".log")]
    lost = [file for name in gone if isinstance(file := folder.durable.get(name), Inode) and not file.durable]
    left = [name for name in folder.entries if name.endswith(".log")]
    snapshots = [found.end_offset for name in folder.durable if (found := SnapshotId.parse(name)) is not None]
    return len(gone) == len(lost) == len(left) == 1 and left[0] in folder.durable and max(snapshots) < end_offset


def keep_the_last_segment_alone(folder: Directory) -> None:
    """What the device does with what was not synced: no change of the directory reaches it, no byte of a file that was
    deleted, and all of the others."""
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


def test_an_answer_that_waited_for_another_partition_is_judged_by_when_its_batch_was_committed() -> None:
    """One request for two partitions: the first is acknowledged, its in-sync set shrinks while the second one waits,
    and then the answer leaves (seed 78)."""

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


class LateWord:
    """That broker 3 is not ready yet is heard after that it is, while slow disks keep its unfencing from being
    committed: it is fenced, and comes back."""

    def __init__(self) -> None:
        self.was_uncommitted = False
        """The controller had unfenced it, and committed metadata said that it was fenced, when the late word came."""

    async def story(self, cluster: SimCluster) -> None:
        await kill_and_settle(cluster, 3)
        assert await cluster.wait_until(lambda: not cluster.image.is_alive(3), 10_000)
        active = cluster.watch.active_controller
        assert active is not None
        controller = cluster.watch.nodes[active].node.controller
        assert controller is not None
        line, submit = controller.line, controller.line.submit
        unfenced = trio.Event()

        def listen(command: Any, waiter: Waiter = NOBODY) -> None:
            is_unfenced = line.image is not None and line.image.is_alive(3) and not cluster.image.is_alive(3)
            if isinstance(command, BrokerHeartbeat) and command.broker_id == 3 and command.want_fence:
                self.was_uncommitted = self.was_uncommitted or is_unfenced
            submit(command, waiter)
            if line.image is not None and line.image.is_alive(3):
                unfenced.set()

        line.submit = listen  # type: ignore[method-assign]
        for node in cluster.shape.controller_ids:
            cluster.world.slow_disk(host_name(node), SLOW_DISK_MS)
        cluster.start(3)
        await unfenced.wait()
        node_three = cluster.watch.nodes[3].node.broker
        assert node_three is not None
        broker = node_three.broker
        late = replace(broker.lifecycle.heartbeat(), want_fence=True)
        with suppress(RequestFailed):
            await broker.controller.request(late, timeout_ms=2_000)
        for node in cluster.shape.controller_ids:
            cluster.world.slow_disk(host_name(node), 0)
        await wait_whole(cluster)


def test_a_broker_that_is_told_to_be_fenced_before_it_is_known_to_be_in_has_asked_for_it() -> None:
    """Its unfencing is appended and not committed, for disks are slow, when a heartbeat comes that wants it fenced
    (seed 15)."""
    late = LateWord()
    assert not play(late.story)
    assert late.was_uncommitted


def test_that_would_be_found_if_only_those_counted_who_are_known_to_be_in(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ClusterWatch.heartbeat_handled

    def twin(watch: ClusterWatch, controller: int, request: HeartbeatRequest, connection: int) -> None:
        is_known = watch.fold.image.is_alive(request.broker_id)
        original(watch, controller, request if is_known else replace(request, want_fence=False), connection)

    monkeypatch.setattr(ClusterWatch, "heartbeat_handled", twin)
    assert {finding.check for finding in play(LateWord().story)} == {"K1"}


def test_a_fence_that_is_committed_by_its_controllers_next_term_is_judged_by_the_term_that_decided_it() -> None:
    """The controller dies before the fence is committed, and is elected again: sessions begin anew for it, and what it
    hears from then on is no word against the fence (seed 203)."""

    async def story(cluster: SimCluster) -> None:
        (active,) = cluster.shape.controller_ids
        name = host_name(active)
        cluster.world.partition(host_name(2), name)
        await cluster.world.sleep_ms(6_000)
        cluster.world.slow_disk(name, SLOW_DISK_MS)
        controller = cluster.watch.nodes[active].node.controller
        assert controller is not None

        def is_decided() -> bool:
            return controller.line.image is not None and not controller.line.image.is_alive(2)

        assert await cluster.wait_until(is_decided, 10_000)
        assert cluster.image.is_alive(2), "its fence is appended, and not committed"
        cluster.crash(active, lose_power=False, is_noticed=False)
        cluster.world.slow_disk(name, 0)
        cluster.start(active)
        assert await cluster.wait_until(lambda: not cluster.image.is_alive(2), 1_000)
        cluster.world.heal_all()
        await wait_whole(cluster)

    assert not play(story, controllers=1)


def test_a_word_between_the_slices_of_a_fence_does_not_take_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session had expired when the plan began; the last slice, which records it, comes later (seed 105)."""
    monkeypatch.setattr(fencing, "FENCE_CHANGES_PER_SLICE_MAX", 1)

    async def story(cluster: SimCluster) -> None:
        await AdminWork(cluster).create("wide", 8)
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


def test_a_fence_that_a_power_loss_took_back_says_nothing_of_the_next_terms_fence() -> None:
    """The next term decides anew, and knows of no connection of that incarnation (seed 3549 of 15 s)."""

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


def test_one_late_word_excuses_one_fence() -> None:
    async def story(cluster: SimCluster) -> None:
        await LateWord().story(cluster)
        fence = FenceRecorded(cluster.image.brokers[3], superseded=False, epoch=cluster.image.epoch)
        cluster.watch._fence_recorded(fence)

    assert {finding.check for finding in play(story)} == {"K1"}


async def stop_before_anybody_hears(cluster: SimCluster, *, lose_power: bool) -> int:
    """Everybody dies in one moment, the leader by a power loss if wanted. It comes back while no controller runs, is
    stopped in order, and comes back again when no other is in sync or eligible. Gives who led before."""
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


def test_who_is_stopped_in_order_before_it_could_tell_of_its_unclean_stop_tells_of_it_the_next_time() -> None:
    """Its clean stop leaves no mark that it was one, for its logs were not looked at yet. Nobody is left in ISR and ELR
    then, and the one that is taken lacks nothing (seed 1726)."""

    async def story(cluster: SimCluster) -> None:
        leader = await stop_before_anybody_hears(cluster, lose_power=False)
        assert state_of(cluster).leader == leader

    async def story_of_a_loss(cluster: SimCluster) -> None:
        leader = await stop_before_anybody_hears(cluster, lose_power=True)
        assert state_of(cluster).leader not in (NO_LEADER, leader)

    assert not play(story)
    assert not play(story_of_a_loss)


def test_that_excuses_nobody_who_lacks_something(monkeypatch: pytest.MonkeyPatch) -> None:
    def take_back(_image: Any, _context: Any, _topic_id: Any, _index: Any, state: Any, may_lead: Any) -> int:
        last = state.last_known_elr[0] if len(state.last_known_elr) == 1 else NO_LEADER
        return last if not state.elr and may_lead(last, None) else NO_LEADER

    async def story(cluster: SimCluster) -> None:
        leader = await stop_before_anybody_hears(cluster, lose_power=True)
        assert state_of(cluster).leader == leader

    monkeypatch.setattr(plans, "choose_furthest", take_back)
    assert "M5" in {finding.check for finding in play(story)}
