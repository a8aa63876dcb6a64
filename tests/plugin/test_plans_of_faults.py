"""One list of faults, as a plan has them, on a simulated cluster and on one of real processes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import psutil
import pytest
import trio

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.fault_client import FaultClient
from kraft.deploy.launch.layout import FAULT_SOCKET
from kraft.seam import LinkQuality
from kraft.sim.breakable_cluster import BreakableCluster
from kraft.sim.cluster.shape import host_name
from kraft.sim.nemesis import on_clusters, plan
from kraft.sim.nemesis.on_clusters import BETWEEN_NODES, READY_MS_MAX, STOP_MS_MAX, FaultRun, faults_of_seed
from kraft.sim.nemesis.partition_shapes import bridge, clients_from, pairs_of
from kraft.sim.nemesis.plan import Fault
from kraft.sim.shapes import ClusterError
from kraft.sim.simulated_cluster import APPLICATION, SimulatedCluster
from kraft.sim.world.endpoint import Endpoint
from kraft.sim.world.host import Host
from kraft.testing import KafkaCluster
from kraft.testing.kafka_cluster import CUT
from tests.plugin.stage import SHAPE, Stage

BY_HAND = (
    Fault(at_ms=0, kind=plan.KILL, role=plan.A_LEADER, back_ms=300),
    Fault(at_ms=100, kind=plan.KILL, role=plan.SHRUNK_LEADER, pick=1, back_ms=200),
    Fault(at_ms=0, kind="pause", lane=1, node=101, duration_ms=200),
    Fault(at_ms=1_200, kind="cut", lane=1, node=2, other=3, duration_ms=700),
    Fault(at_ms=1_300, kind=plan.CLEAN_STOP, lane=2, role=plan.ACTIVE_CONTROLLER, back_ms=50),
    Fault(at_ms=2_500, kind="isolate", lane=2, node=1, duration_ms=300),
    Fault(at_ms=2_800, kind="stumble", lane=2, node=3, amount=2, back_ms=50, duration_ms=50),
)


def test_a_schedule_by_hand_happens_in_both_worlds_and_a_producer_loses_nothing(stage: Stage) -> None:
    written: list[bytes] = []

    async def write(is_over: trio.Event) -> None:
        async with stage.producer(delivery_timeout_ms=60_000) as producer:
            while not is_over.is_set():
                written.append(b"%d" % len(written))
                await producer.send("orders", written[-1], partition=0)
                await trio.sleep(0.01)

    async def story(stage: Stage) -> None:
        cluster, is_over = stage.cluster, trio.Event()
        await stage.write(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, is_over)
            history = await stage.carry_out(BY_HAND)
            is_over.set()
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])
        assert all(cluster.is_running(node) and not cluster.is_paused(node) for node in cluster.node_ids)
        done = " ".join(history)
        assert done.count("kill of node") == 4, history
        assert "node 101 is frozen for 200 ms" in done
        assert "node 2 is cut off from [3] for 700 ms" in done
        assert "node 101 is asked to stop" in done
        assert "node 1 is cut off from [2, 3, 101] for 300 ms" in done
        assert await stage.values() == [b"0", *written]

    stage.play(story)
    assert len(written) > 50


def test_what_a_cluster_cannot_have_is_refused_before_anything_happens(stage: Stage) -> None:
    async def refused(**wrong: object) -> str:
        good = Fault(at_ms=0, kind=plan.KILL, node=1)
        with pytest.raises(ClusterError) as problem:
            await stage.carry_out([good, Fault(**{"at_ms": 1, "kind": "cut", "node": 1, "other": 2, **wrong})])
        return str(problem.value)

    async def story(stage: Stage) -> None:
        assert "this cluster cannot have 'empty disk': it can have kill, clean stop" in await refused(kind="empty disk")
        assert "nobody can tell here who is 'hero': roles are" in await refused(role="hero")
        assert "there is no node 9: this cluster has 1, 2, 3, 101" in await refused(node=9)
        assert "times are 0 ms or more" in await refused(at_ms=-1)
        for wrong in ([1], Fault(at_ms=0, kind=plan.KILL, node=1)):
            with pytest.raises(ClusterError, match=r"is a list of kraft\.sim\.nemesis\.plan\.Fault"):
                await stage.carry_out(wrong)  # type: ignore[arg-type]
        assert "names two nodes" in await refused(other=1)
        assert "names two nodes" in await refused(node=0, role=plan.A_LEADER)
        assert "has an amount" in await refused(kind=plan.SLOW_LINK)
        assert "names the node that it hits, or a role" in await refused(kind=plan.KILL, node=0)
        assert stage.cluster.is_running(1)

    stage.play(story)


def test_what_needs_another_world_is_refused_on_processes(real_cluster: KafkaCluster) -> None:
    with pytest.raises(ClusterError, match="cannot have 'power loss'"):
        real_cluster.carry_out([Fault(at_ms=0, kind=plan.POWER_LOSS, node=1)])
    with pytest.raises(ClusterError, match="nobody can tell here who is 'uncommitted controller'"):
        real_cluster.carry_out([Fault(at_ms=0, kind=plan.KILL, role=plan.UNCOMMITTED_CONTROLLER)])


def test_a_seed_draws_what_each_cluster_can_have(real_cluster: KafkaCluster) -> None:
    with SimulatedCluster(seed=1, **SHAPE) as simulated:
        for cluster in (simulated, real_cluster):
            found = [fault for seed in range(1, 60) for fault in faults_of_seed(cluster, seed, 10_000)]
            assert {fault.kind for fault in found} == set(cluster.fault_kinds)
            assert {fault.role for fault in found} == {"", *cluster.fault_roles}


def dialled(cluster: KafkaCluster, source: int, target: int) -> set[int]:
    """The ports from which one node's process has connections to another's."""
    tcp = {node: psutil.Process(cluster.pid(node)).net_connections("tcp") for node in (source, target)}
    listens = {one.laddr.port for one in tcp[target] if one.status == psutil.CONN_LISTEN}
    return {one.laddr.port for one in tcp[source] if one.raddr and one.raddr.port in listens}


def wait_dialled_anew(cluster: KafkaCluster, old: set[int]) -> None:
    """Until node 2 has connections to node 101 again, and none from these ports."""
    cluster.wait_until(lambda: (now := dialled(cluster, 2, 101)) and not old & now)


def test_a_reset_ends_the_connections_of_two_processes_which_dial_anew(real_cluster: KafkaCluster) -> None:
    real_cluster.reset()
    seen: set[int] = set()
    for _ in range(2):
        seen |= dialled(real_cluster, 2, 101)
        assert seen
        history = real_cluster.carry_out([Fault(at_ms=0, kind="reset", node=2, other=101)])
        assert [text.partition(": ")[2] for text in history] == ["reset of node 2"]
        wait_dialled_anew(real_cluster, seen)
    assert all(not FaultClient.of_node(real_cluster._open_cluster.folder, node).listed()["links"] for node in (2, 101))


def test_a_reset_opens_no_link_that_is_cut(real_cluster: KafkaCluster) -> None:
    real_cluster.reset()
    real_cluster.partition({2}, {101})
    real_cluster.carry_out([Fault(at_ms=0, kind="reset", node=101, other=2)])
    for node in (2, 101):
        (link,) = FaultClient.of_node(real_cluster._open_cluster.folder, node).listed()["links"]
        assert link["policy"] == CUT
    real_cluster.heal()


SHAPES = [
    Fault(at_ms=0, kind=plan.HALVES, pick=2, duration_ms=300),
    Fault(at_ms=0, kind=plan.BRIDGE, node=2, duration_ms=300),
    Fault(at_ms=0, kind=plan.RING, pick=1, duration_ms=300),
    Fault(at_ms=0, kind=plan.CONTROLLERS_CUT, duration_ms=300),
]


def cut_links(cluster: BreakableCluster) -> set[tuple[int, int]]:
    """The links that the world holds, or that processes were told of."""
    if isinstance(cluster, SimulatedCluster):
        nodes = cluster.node_ids
        return {(one, other) for one in nodes for other in nodes if is_cut(cluster, one, other)}
    assert isinstance(cluster, KafkaCluster)
    listed = {node: cluster._faults_of(node).listed()["links"] for node in cluster.node_ids}
    return {(node, link["node"]) for node, links in listed.items() for link in links if link["policy"] == CUT}


@pytest.mark.parametrize("fault", SHAPES, ids=lambda fault: fault.kind)
def test_a_partition_of_a_shape_cuts_its_pairs_in_both_worlds_and_no_more(stage: Stage, fault: Fault) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        pairs = pairs_of(fault, cluster.shape)

        async def break_things() -> None:
            (done,) = await stage.carry_out([fault])
            assert done.endswith("for 300 ms")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(break_things)
            await stage.wait_until(lambda: cut_links(cluster) == {*pairs, *((other, one) for one, other in pairs)})
        assert not cut_links(cluster)
        await stage.write(1)

    stage.play(story)


def test_a_bridge_keeps_a_half_of_the_brokers_in_sync(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        leader = await stage.write(1)
        pick = next(pick for pick in range(6) if bridge(cluster.node_ids, 101, pick)[0][0] != leader)
        pairs = bridge(cluster.node_ids, 101, pick)
        cluster.cut(pairs)
        async with stage.producer() as producer:
            await producer.send("orders", b"what one half has", partition=0)
        await stage.wait_until(lambda: cluster.isr("orders") == sorted(other for _, other in pairs))
        cluster.join(pairs)
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])

    stage.play(story)


def test_clients_that_are_cut_off_wait_while_nodes_see_each_other() -> None:
    with SimulatedCluster(seed=3, **SHAPE) as cluster:

        async def story(stage: Stage) -> None:
            await stage.write(1)
            cluster.cut(clients_from(cluster.node_ids))
            assert cluster.is_cut(0, 2)
            with trio.move_on_after(5) as waiting:
                await stage.write(1)
            assert waiting.cancelled_caught
            assert cluster.isr("orders") == [1, 2, 3]
            cluster.heal()
            await stage.write(1)

        Stage(cluster).play(story)


def test_clients_of_processes_cannot_be_cut_off(real_cluster: KafkaCluster) -> None:
    with pytest.raises(ClusterError, match="clients cannot be cut off here"):
        real_cluster.cut(clients_from([1]))
    with pytest.raises(ClusterError, match="this cluster cannot have 'clients cut off'"):
        real_cluster.carry_out([Fault(at_ms=0, kind=plan.CLIENTS_CUT)])


BAD_LINKS = [
    Fault(at_ms=0, kind=plan.CUT_ONE_WAY, duration_ms=2_000),
    Fault(at_ms=0, kind=plan.LATENCY, amount=20_000, jitter_ms=10, duration_ms=2_000),
    Fault(at_ms=0, kind=plan.SLOW_LINK, amount=20, duration_ms=2_000),
    Fault(at_ms=0, kind=plan.BYTE_LIMIT, amount=20, duration_ms=2_000),
]


@pytest.mark.parametrize("to_leader", [True, False], ids=["from a follower", "to a follower"])
@pytest.mark.parametrize("bad", BAD_LINKS, ids=lambda fault: fault.kind)
def test_a_follower_falls_out_of_sync_while_its_link_is_bad(stage: Stage, bad: Fault, to_leader: bool) -> None:
    """Fetches do not get to the leader, or what is fetched does not get to the follower."""

    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        leader, follower = await stage.write(1), stage.follower()
        source, target = (follower, leader) if to_leader else (leader, follower)
        others = sorted({1, 2, 3} - {follower})

        async def break_things() -> None:
            (done,) = await stage.carry_out([replace(bad, node=source, other=target)])
            assert done == f"{done.partition(':')[0]}: {bad.kind} of node {source}"

        async with trio.open_nursery() as nursery, stage.producer() as producer:
            nursery.start_soon(break_things)
            while cluster.isr("orders") != others:
                await producer.send("orders", b"what it misses", partition=0)
                await trio.sleep(0.1)
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])
        assert not cluster._qualities
        assert cluster.leader("orders") == leader

    stage.play(story)


def test_a_seed_draws_plans_in_which_links_fare_badly(real_cluster: KafkaCluster) -> None:
    found = [fault for seed in range(60) for fault in faults_of_seed(real_cluster, seed, 10_000)]
    late = [fault for fault in found if fault.kind == plan.LATENCY]
    assert any(fault.jitter_ms for fault in late)
    assert all(fault.amount > 0 and fault.node != fault.other for fault in found if fault.kind in plan.QUALITY_KINDS)


def test_every_seed_draws_some_faults(real_cluster: KafkaCluster) -> None:
    assert all(faults_of_seed(real_cluster, seed, 5_000) for seed in range(1, 41))


def test_a_node_that_is_alone_has_no_faults_of_links() -> None:
    for cluster in (KafkaCluster(), SimulatedCluster(seed=1, combined=1)):
        found = {fault.kind for seed in range(1, 61) for fault in faults_of_seed(cluster, seed, 5_000)}
        large = {plan.HALVES, plan.BRIDGE, plan.RING, plan.CONTROLLERS_CUT}
        assert found == set(cluster.fault_kinds) - set(BETWEEN_NODES) - large
        for kind in ("isolate", "cut"):
            with pytest.raises(ClusterError, match=f"cannot have '{kind}': it can have kill"):
                FaultRun(cluster, [Fault(at_ms=0, kind=kind, node=1, other=2)], lambda: 0)


@pytest.mark.slow
def test_what_a_seed_draws_happens_to_real_nodes_and_all_of_them_come_back() -> None:
    with KafkaCluster(combined=3) as cluster:

        async def story(stage: Stage) -> None:
            await stage.write(10)
            drawn = faults_of_seed(cluster, 3, 2_000)
            assert {fault.kind for fault in drawn} >= {plan.KILL, plan.CLEAN_STOP}
            history = await stage.carry_out(drawn)
            assert len(history) >= len(drawn) - 1, history
            assert all(cluster.is_running(node) and not cluster.is_paused(node) for node in cluster.node_ids)
            await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])
            assert len(await stage.values()) == 10

        Stage(cluster).play(story)


def test_a_rolling_restart_takes_one_node_after_the_other_and_keeps_what_is_written(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        cluster, is_over, written = stage.cluster, trio.Event(), [b"0"]
        await stage.write(1)
        down: list[list[int]] = []

        def watch(stop: Callable[[int], None], node: int) -> None:
            down.append([other for other in cluster.node_ids if not cluster.is_running(other)])
            assert cluster.isr("orders") == [1, 2, 3], node
            stop(node)

        monkeypatch.setattr(cluster, "_stop", partial(watch, cluster._stop))

        async def roll() -> None:
            history = await stage.carry_out([Fault(at_ms=0, kind=plan.ROLLING, back_ms=100)])
            expected = [f"node {node} is asked to stop, and starts again" for node in cluster.node_ids]
            assert [line.partition(": ")[2] for line in history] == expected
            is_over.set()

        async with trio.open_nursery() as nursery, stage.producer(delivery_timeout_ms=60_000) as producer:
            nursery.start_soon(roll)
            while not is_over.is_set():
                written.append(b"%d" % len(written))
                await producer.send("orders", written[-1], partition=0)
                await trio.sleep(0.01)
        assert down == [[]] * len(cluster.node_ids)
        await stage.wait_until(cluster.is_whole)
        assert await stage.values() == written

    stage.play(story)


def test_a_rolling_restart_waits_for_a_cluster_that_is_not_whole_and_gives_up_in_the_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_clusters, "WHOLE_MS_MAX", 500)

    async def story(stage: Stage) -> None:
        await stage.write(1)
        stage.cluster.kill(2)
        (line,) = await stage.carry_out([Fault(at_ms=0, kind=plan.ROLLING)])
        assert "the rolling restart is given up at node 101" in line
        assert not stage.cluster.is_whole()
        stage.cluster.start(2)
        await stage.wait_until(stage.cluster.is_whole)

    stage.play(story)


def test_a_cluster_is_rolled_by_a_verb(real_cluster: KafkaCluster) -> None:
    real_cluster.reset()
    pids = {node: real_cluster.pid(node) for node in real_cluster.node_ids}
    assert len(real_cluster.rolling_restart()) == len(pids)
    assert all(real_cluster.pid(node) not in (pid, None) for node, pid in pids.items())
    with SimulatedCluster(seed=3, **SHAPE) as simulated:
        assert len(simulated.run(simulated.rolling_restart)) == len(pids)


# lanes side by side


def test_a_node_comes_back_while_the_only_controller_is_frozen_in_another_lane(real_cluster: KafkaCluster) -> None:
    real_cluster.reset()
    faults = [
        Fault(at_ms=0, kind=plan.KILL, node=1, back_ms=100),
        Fault(at_ms=0, kind="pause", lane=1, node=101, duration_ms=1_000),
    ]
    before = time.monotonic()
    real_cluster.carry_out(faults)
    assert time.monotonic() - before < READY_MS_MAX / 1000
    assert all(real_cluster.is_running(node) and not real_cluster.is_paused(node) for node in real_cluster.node_ids)


def test_a_stop_that_hangs_holds_up_nobody(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        faults = [
            Fault(at_ms=0, kind="pause", node=101, duration_ms=1_000),
            Fault(at_ms=100, kind=plan.CLEAN_STOP, lane=1, node=1),
        ]
        before = trio.current_time()
        history = await stage.carry_out(faults)
        assert trio.current_time() - before < STOP_MS_MAX / 1000
        assert not any("is killed" in line for line in history), history
        assert all(cluster.is_running(node) and not cluster.is_paused(node) for node in cluster.node_ids)

    stage.play(story)


def test_a_node_that_does_not_stop_is_killed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_clusters, "STOP_MS_MAX", 300)

    async def story(stage: Stage) -> None:
        await stage.write(1)
        faults = [
            Fault(at_ms=0, kind="pause", node=101, duration_ms=1_500),
            Fault(at_ms=100, kind=plan.CLEAN_STOP, lane=1, node=1),
        ]
        history = await stage.carry_out(faults)
        assert "node 1 has not stopped and is killed" in history[-1]
        assert stage.cluster.is_running(1)

    stage.play(story)


def test_a_node_that_stumbles_is_killed_while_it_starts(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    kill, found = real_cluster._kill, []

    def look_and_kill(node: int) -> None:
        found.append(real_cluster._status(node).state)
        kill(node)

    monkeypatch.setattr(real_cluster, "_kill", look_and_kill)
    real_cluster.carry_out([Fault(at_ms=0, kind="stumble", node=1, amount=3)])
    assert found == ["ready", "starting", "starting"]
    assert real_cluster._status(1).state == "ready"


def test_a_node_that_is_cut_off_while_it_starts_does_not_reach_the_others(real_cluster: KafkaCluster) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        await stage.write(1)
        follower = stage.follower()
        others = set(cluster.broker_ids) - {follower}
        cluster.kill(follower)
        async with stage.producer() as producer:
            await producer.send("orders", b"what it misses", partition=0)
            await stage.wait_until(lambda: cluster.isr("orders") == sorted(others))
        cluster.start(follower, until_ready=False)
        assert not cluster.follow_start(follower)
        cluster.partition({follower}, others)
        await stage.wait_until(lambda: cluster.follow_start(follower))
        await trio.sleep(1)
        assert cluster.isr("orders") == sorted(others)
        cluster.heal()
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])

    real_cluster.reset()
    Stage(real_cluster).play(story)


def test_nodes_that_need_each_other_are_mended_together() -> None:
    with KafkaCluster(combined=2) as cluster:
        for node in cluster.node_ids:
            cluster.kill(node)
        cluster.mend()
        assert all(cluster.follow_start(node) for node in cluster.node_ids)


# ends

LASTING = (
    Fault(at_ms=0, kind=plan.KILL, node=1, back_ms=20_000),
    Fault(at_ms=0, kind="pause", lane=1, node=2, duration_ms=20_000),
    Fault(at_ms=0, kind="cut", lane=2, node=3, other=101, duration_ms=20_000),
)


def assert_nothing_is_left(cluster: BreakableCluster) -> None:
    nodes = cluster.node_ids
    assert all(cluster.is_running(node) and not cluster.is_paused(node) for node in nodes)
    assert not any(cluster.is_cut(one, other) for one in nodes for other in nodes)


def test_what_faults_have_begun_is_ended_when_another_fails(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(node: int) -> None:
        assert stage.cluster.is_paused(2)
        assert stage.cluster.is_cut(3, 101)
        raise ClusterError("planted")

    monkeypatch.setattr(stage.cluster, "_stop", fail)

    async def story(stage: Stage) -> None:
        with pytest.raises(ClusterError, match="planted"):
            await stage.carry_out([*LASTING, Fault(at_ms=300, kind=plan.CLEAN_STOP, lane=3, node=3)])
        assert_nothing_is_left(stage.cluster)

    stage.play(story)


def test_what_faults_have_begun_is_ended_when_they_are_cancelled() -> None:
    only_here = (
        Fault(at_ms=0, kind="slow disk", lane=3, node=3, duration_ms=20_000),
        Fault(at_ms=0, kind="cut one way", lane=4, node=101, other=1, duration_ms=20_000),
        Fault(at_ms=0, kind=plan.POWER_LOSS, lane=5, node=101, back_ms=20_000),
    )
    with SimulatedCluster(seed=3, **SHAPE) as cluster:

        async def story(stage: Stage) -> None:
            with trio.move_on_after(0.5):
                await cluster.carry_out([*LASTING, *only_here])
            assert_nothing_is_left(cluster)
            assert not host(cluster, 3).disk_extra_ns
            await cluster.wait_ready()

        Stage(cluster).play(story)


def cuts_told_of(cluster: KafkaCluster) -> list[object]:
    """The links that the nodes' processes do not use now."""
    return [link for node in cluster.node_ids for link in cluster._faults_of(node).listed()["links"]]


def fail_to_tell(
    monkeypatch: pytest.MonkeyPatch, is_unlucky: Callable[[int, int, str], bool], *, is_heard: bool = False
) -> None:
    """A node cannot be told of a link (node, peer, policy). `is_heard`: it is told, and its answer is lost."""
    honest = FaultClient.link

    def link(self: FaultClient, node_id: int, policy: str, **more: Any) -> None:
        fails = is_unlucky(int(self._path.parent.name), node_id, policy)
        if is_heard or not fails:
            honest(self, node_id, policy, **more)
        if fails:
            raise LaunchError("request", "planted")

    monkeypatch.setattr(FaultClient, "link", link)


def test_a_cut_that_one_side_could_not_be_told_of_is_ended_on_the_other(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    with monkeypatch.context() as patched, pytest.raises(ClusterError, match="planted"):
        fail_to_tell(patched, lambda _node, peer, _policy: peer == 1)
        real_cluster.carry_out([Fault(at_ms=0, kind="cut", node=1, other=3, duration_ms=100)])
    assert_nothing_is_left(real_cluster)
    assert not cuts_told_of(real_cluster)


def test_a_node_that_is_ready_and_cannot_be_told_of_its_cuts_is_an_error(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    real_cluster.kill(1)
    real_cluster.start(1, until_ready=False)
    real_cluster.wait_until(lambda: real_cluster._status(1).state == "ready")
    with monkeypatch.context() as patched:
        fail_to_tell(patched, lambda _node, peer, _policy: peer == 3)
        real_cluster.partition(1, 3)
        with pytest.raises(ClusterError, match="planted"):
            real_cluster.follow_start(1)
    assert real_cluster.follow_start(1)
    assert len(cuts_told_of(real_cluster)) == 2
    real_cluster.heal()


def test_a_node_that_was_told_of_a_part_of_its_cuts_is_told_of_their_end(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    with monkeypatch.context() as patched, pytest.raises(ClusterError, match="planted"):
        fail_to_tell(patched, lambda _node, peer, _policy: peer == 3)
        real_cluster.partition(1, {2, 3})
    assert cuts_told_of(real_cluster)
    real_cluster.heal()
    assert not cuts_told_of(real_cluster)


def test_a_cut_that_was_made_and_not_answered_is_ended(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    with monkeypatch.context() as patched, pytest.raises(ClusterError, match="planted"):
        fail_to_tell(patched, lambda _node, _peer, policy: policy == CUT, is_heard=True)
        real_cluster.carry_out([Fault(at_ms=0, kind="cut", node=1, other=3, duration_ms=100)])
    assert not cuts_told_of(real_cluster)


def test_a_node_that_cannot_be_told_keeps_nothing_else_from_being_healed(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    real_cluster.partition(1, {2, 3})
    fault = real_cluster.drop("Produce")
    with monkeypatch.context() as patched, pytest.raises(ClusterError, match="planted"):
        fail_to_tell(patched, lambda node, _peer, _policy: node == 1)
        real_cluster.heal()
    assert len(cuts_told_of(real_cluster)) == 2, "those of node 1"
    assert fault.is_ended
    real_cluster.heal()
    assert not cuts_told_of(real_cluster)


def test_a_node_that_was_frozen_goes_on_though_the_launcher_failed(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    honest = LocalCluster.pause

    def pause(self: LocalCluster, node_id: int) -> int:
        honest(self, node_id)
        raise LaunchError("late", "planted")

    with monkeypatch.context() as patched, pytest.raises(ClusterError, match="planted"):
        patched.setattr(LocalCluster, "pause", pause)
        real_cluster.carry_out([Fault(at_ms=0, kind="pause", node=2, duration_ms=100)])
    assert_nothing_is_left(real_cluster)


def test_a_fault_of_requests_of_which_not_every_node_could_be_told_ends_when_all_is_healed(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    honest = FaultClient.reply
    told: list[int] = []

    def reply(self: FaultClient, **rule: Any) -> int:
        if told:
            raise LaunchError("request", "planted")
        told.append(honest(self, **rule))
        return told[0]

    with monkeypatch.context() as patched, pytest.raises(ClusterError, match="planted"):
        patched.setattr(FaultClient, "reply", reply)
        real_cluster.drop("Produce")
    assert told
    real_cluster.heal()
    assert not [rule for node in real_cluster.node_ids for rule in real_cluster._faults_of(node).listed()["rules"]]


def test_what_is_mended_serves_also_where_a_node_had_been_started_and_not_waited_for(
    real_cluster: KafkaCluster,
) -> None:
    """As nodes are that faults have taken down, where their run is broken off. It cannot get ready before the end."""
    real_cluster.reset()
    real_cluster.pause(101)
    real_cluster.kill(1)
    real_cluster.start(1, until_ready=False)
    assert real_cluster._status(1).state == "starting"
    real_cluster.mend()
    assert real_cluster._status(1).state == "ready"


def test_a_role_is_waited_for_also_while_no_node_runs() -> None:
    faults = [
        Fault(at_ms=0, kind=plan.KILL, node=1, back_ms=300),
        Fault(at_ms=100, kind=plan.KILL, lane=1, role=plan.ACTIVE_CONTROLLER),
    ]
    with KafkaCluster() as cluster:
        history = cluster.carry_out(faults)
        assert ["kill of node 1" in line for line in history] == [True, True], history
        cluster.kill(1)
        assert cluster.active_controller() is None
        assert cluster.holders(plan.A_LEADER) == []


def test_what_the_launcher_cannot_do_is_an_error_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise LaunchError("zygote", "planted")

    verbs: dict[str, Callable[[KafkaCluster], object]] = {
        "kill": lambda cluster: cluster.kill(1),
        "ask_to_stop": lambda cluster: cluster.stop(1),
        "pause": lambda cluster: cluster.pause(1),
        "status": lambda cluster: cluster.is_running(1),
    }
    with KafkaCluster(combined=2) as cluster:
        for name, verb in verbs.items():
            with monkeypatch.context() as patched, pytest.raises(ClusterError, match="planted"):
                patched.setattr(LocalCluster, name, fail)
                verb(cluster)
        cluster.pause(2)
        with monkeypatch.context() as patched, pytest.raises(ClusterError, match="planted"):
            patched.setattr(LocalCluster, "resume", fail)
            cluster.resume(2)
        (cluster.folder / "1" / FAULT_SOCKET).unlink()
        for tell in (lambda: cluster.partition(1, 2), lambda: cluster.drop(node=1)):
            with pytest.raises(ClusterError, match="no node listens"):
                tell()


# what only a simulated cluster can have


Look = Callable[[], object]


def host(cluster: SimulatedCluster, node: int) -> Host:
    return cluster._world.host(host_name(node))


def is_cut(cluster: SimulatedCluster, source: int, target: int) -> bool:
    return cluster._world.is_cut(host_name(source), host_name(target))


def quality(cluster: SimulatedCluster, source: int, target: int) -> LinkQuality | None:
    return cluster._world.link_quality(host_name(source), host_name(target))


def streams(cluster: SimulatedCluster) -> list[Endpoint]:
    """The ends of connections on which node 2 sends to node 3."""
    found = list(cluster._world._fabric.endpoints)
    names = host_name(2), host_name(3)
    return [end for end in found if (end.outgoing.source.name, end.outgoing.target.name) == names and not end.ended]


def reset_links(cluster: SimulatedCluster) -> Look:
    before = streams(cluster)
    assert before
    return lambda: all(end.ended for end in before)


def stepped_clock(cluster: SimulatedCluster) -> Look:
    clock = host(cluster, 2).clock
    before = clock.wall_offset_ms
    return lambda: clock.wall_offset_ms == before + 5_000


def stalled_streams(cluster: SimulatedCluster) -> Look:
    """Somewhere nothing that is sent arrives before the fault is over."""
    return lambda: [end for end in streams(cluster) if end.outgoing._last_ns > cluster._world.now_ns + 100_000_000]


LOOKS: dict[str, Callable[[SimulatedCluster], Look]] = {
    plan.KILL: lambda cluster: lambda: not cluster.is_running(2),
    plan.CLEAN_STOP: lambda cluster: lambda: not cluster.is_running(2),
    "pause": lambda cluster: lambda: cluster.is_paused(2),
    "cut": lambda cluster: lambda: is_cut(cluster, 2, 3) and is_cut(cluster, 3, 2),
    "isolate": lambda cluster: lambda: all(is_cut(cluster, 2, node) for node in (1, 3, 101)),
    "stumble": lambda cluster: lambda: not cluster.is_running(2),
    plan.POWER_LOSS: lambda cluster: lambda: not host(cluster, 2).powered,
    "reset": reset_links,
    "clock": stepped_clock,
    "cut one way": lambda cluster: lambda: is_cut(cluster, 2, 3) and not is_cut(cluster, 3, 2),
    "stall": stalled_streams,
    "slow disk": lambda cluster: lambda: host(cluster, 2).disk_extra_ns,
    plan.ROLLING: lambda cluster: lambda: not cluster.is_running(101),
    plan.LATENCY: lambda cluster: lambda: quality(cluster, 2, 3) == LinkQuality(latency_ms=5_000),
    plan.SLOW_LINK: lambda cluster: lambda: quality(cluster, 2, 3) == LinkQuality(bytes_per_second=5_000),
    plan.BYTE_LIMIT: lambda cluster: lambda: quality(cluster, 2, 3) == LinkQuality(bytes_max=5_000),
    plan.HALVES: lambda cluster: lambda: is_cut(cluster, 101, 2) and not is_cut(cluster, 2, 3),
    plan.BRIDGE: lambda cluster: lambda: is_cut(cluster, 101, 3) and not is_cut(cluster, 2, 3),
    plan.RING: lambda cluster: lambda: is_cut(cluster, 101, 2) and not is_cut(cluster, 2, 3),
    plan.CONTROLLERS_CUT: lambda cluster: lambda: all(is_cut(cluster, 101, node) for node in (1, 2, 3)),
    plan.CLIENTS_CUT: lambda cluster: lambda: cluster._world.is_cut(APPLICATION, host_name(2)),
}
"""What can be seen while node 2 has such a fault."""
FOR_GOOD = ("reset", "clock")


@pytest.mark.parametrize("kind", SimulatedCluster.fault_kinds)
def test_each_kind_of_fault_has_its_effect_and_an_end(kind: str) -> None:
    amount = 1 if kind == "stumble" else 5_000
    fault = Fault(at_ms=0, kind=kind, node=2, other=3, duration_ms=1_000, back_ms=1_000, amount=amount)
    with SimulatedCluster(seed=3, **SHAPE) as cluster:

        async def story(stage: Stage) -> None:
            await stage.write(20)
            history: list[str] = []
            look = LOOKS[kind](cluster)
            assert not look()

            async def break_things() -> None:
                history.extend(await stage.carry_out([fault]))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(break_things)
                await trio.sleep(0.5)
                assert look()
            assert len(history) == (len(cluster.node_ids) if kind == plan.ROLLING else 1), history
            assert bool(look()) is (kind in FOR_GOOD)
            await cluster.wait_ready()
            assert len(await stage.values()) == 20

        Stage(cluster).play(story)


def test_a_controller_is_hit_while_it_has_something_that_is_not_committed() -> None:
    fault = Fault(at_ms=0, kind=plan.KILL, role=plan.UNCOMMITTED_CONTROLLER, back_ms=50)
    with SimulatedCluster(seed=3, **SHAPE) as cluster:

        async def story(stage: Stage) -> None:
            history: list[str] = []

            async def break_things() -> None:
                history.extend(await stage.carry_out([fault]))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(break_things)
                await stage.write(1)
            await cluster.wait_ready()
            assert ["kill of node 101" in line for line in history] == [True], history

        Stage(cluster).play(story)


def play_one_way(faults: Sequence[Fault], watch: Callable[[SimulatedCluster], Awaitable[None]]) -> list[str]:
    """The faults on a simulated cluster, and somebody who watches; what was done."""
    history: list[str] = []
    with SimulatedCluster(seed=3, **SHAPE) as cluster:

        async def break_things() -> None:
            history.extend(await cluster.carry_out(faults))

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(break_things)
                await watch(cluster)

        cluster.run(main)
    return history


@pytest.mark.parametrize(("source", "target"), [(1, 2), (2, 1)])
def test_a_link_that_is_cut_one_way_stays_so_whatever_else_ends(source: int, target: int) -> None:
    faults = [
        Fault(at_ms=0, kind="cut one way", node=source, other=target, duration_ms=2_000),
        Fault(at_ms=0, kind="pause", lane=1, node=3, duration_ms=100),
        Fault(at_ms=200, kind="cut", lane=1, node=3, other=101, duration_ms=100),
    ]

    async def watch(cluster: SimulatedCluster) -> None:
        await trio.sleep(1)
        assert is_cut(cluster, source, target)
        assert not is_cut(cluster, target, source)
        await trio.sleep(1.1)
        assert not is_cut(cluster, source, target)

    assert len(play_one_way(faults, watch)) == 3


@pytest.mark.parametrize(("source", "target"), [(1, 2), (2, 1)])
def test_a_link_that_is_cut_one_way_heals_with_all_others(source: int, target: int) -> None:
    async def watch(cluster: SimulatedCluster) -> None:
        await trio.sleep(0.1)
        assert is_cut(cluster, source, target)
        cluster.heal()
        assert not is_cut(cluster, source, target)

    play_one_way([Fault(at_ms=0, kind="cut one way", node=source, other=target, duration_ms=1_000)], watch)


def test_what_is_cut_already_is_not_cut_again_and_not_told() -> None:
    faults = [
        Fault(at_ms=0, kind="cut one way", node=1, other=2, duration_ms=1_000),
        Fault(at_ms=100, kind="cut one way", lane=1, node=1, other=2, duration_ms=100),
        Fault(at_ms=100, kind="cut", lane=2, node=2, other=1, duration_ms=100),
        Fault(at_ms=100, kind="cut one way", lane=3, node=2, other=1, duration_ms=100),
    ]

    async def watch(cluster: SimulatedCluster) -> None:
        await trio.sleep(0.5)
        assert is_cut(cluster, 1, 2)
        assert not is_cut(cluster, 2, 1)

    assert play_one_way(faults, watch) == ["0 ms: cut one way of node 1", "100 ms: cut one way of node 2"]


def test_a_node_that_somebody_else_has_taken_down_stays_down() -> None:
    async def watch(cluster: SimulatedCluster) -> None:
        await trio.sleep(0.2)
        cluster.kill(2)
        await trio.sleep(1)
        assert not cluster.is_running(2)

    play_one_way([Fault(at_ms=0, kind="slow disk", node=2, duration_ms=500)], watch)


def test_a_disk_that_is_slow_already_is_left_to_the_fault_that_made_it_so() -> None:
    faults = [
        Fault(at_ms=0, kind="slow disk", node=2, duration_ms=1_000),
        Fault(at_ms=100, kind="slow disk", lane=1, node=2, duration_ms=100),
    ]

    async def watch(cluster: SimulatedCluster) -> None:
        await trio.sleep(0.5)
        assert host(cluster, 2).disk_extra_ns

    assert play_one_way(faults, watch) == ["0 ms: slow disk of node 2"]


def test_a_node_that_is_asked_to_stop_is_left_to_that_fault() -> None:
    faults = [
        Fault(at_ms=0, kind="pause", node=101, duration_ms=1_000),
        Fault(at_ms=100, kind=plan.CLEAN_STOP, lane=1, node=1, back_ms=500),
        Fault(at_ms=200, kind=plan.KILL, lane=2, node=1, back_ms=5_000),
    ]

    async def watch(cluster: SimulatedCluster) -> None:
        await cluster.wait_until(lambda: not cluster.is_running(1))

    assert not any("kill of node" in line for line in play_one_way(faults, watch))
