"""Fault plans, handwritten and by seed, on simulated clusters and on real ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest
import trio

from kraft.deploy.launch.fault_client import FaultClient
from kraft.sim.nemesis import on_clusters, plan
from kraft.sim.nemesis.faults import FaultSettings
from kraft.sim.nemesis.on_clusters import BETWEEN_NODES, FaultRun, faults_of_seed
from kraft.sim.nemesis.plan import HANG, Fault
from kraft.sim.nemesis.swarm import draw_plan
from kraft.sim.run.plan_file import RecordedPlan, read_plan, write_plan
from kraft.sim.shapes import ClusterError
from kraft.sim.simulated_cluster import SimulatedCluster
from kraft.testing import KafkaCluster
from tests.testing.stage import SHAPE, Stage

BY_HAND = (
    Fault(at_ms=0, kind=plan.KILL, role=plan.A_LEADER, back_ms=300),
    Fault(at_ms=100, kind=plan.KILL, lane=3, role=plan.SHRUNK_LEADER, pick=1, back_ms=200),
    Fault(at_ms=0, kind="pause", lane=1, node=101, duration_ms=200),
    Fault(at_ms=1_200, kind="cut", lane=1, node=2, other=3, duration_ms=700),
    Fault(at_ms=1_300, kind=plan.CLEAN_STOP, lane=2, role=plan.ACTIVE_CONTROLLER, back_ms=50),
    Fault(at_ms=2_500, kind="isolate", lane=2, node=1, duration_ms=300),
    Fault(at_ms=2_800, kind="stumble", lane=3, node=3, amount=2, back_ms=50, duration_ms=50),
)
OF_THIS_SHAPE = 26
"""A seed for which `kraft sim` draws a cluster of the shape that these tests use."""
LONG_TIMEOUT_MS = 60_000
WRITTEN_MIN = 50


@pytest.fixture
def longer_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the timeouts for nodes to stop, to start and to get a role, for slow machines."""
    for name in ("MOMENT_MS_MAX", "STOP_MS_MAX", "READY_MS_MAX", "WHOLE_MS_MAX"):
        monkeypatch.setattr(on_clusters, name, LONG_TIMEOUT_MS)


@pytest.mark.usefixtures("longer_timeouts")
def test_a_handwritten_fault_plan_runs_in_both_worlds_and_a_producer_loses_nothing(stage: Stage) -> None:
    written: list[bytes] = []

    async def write(is_over: trio.Event) -> None:
        async with stage.producer(delivery_timeout_ms=60_000) as producer:
            while not is_over.is_set() or len(written) < WRITTEN_MIN:  # on a slow machine, mostly afterwards
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


def test_a_plan_with_an_impossible_fault_is_refused_before_it_starts(stage: Stage) -> None:
    async def refused(**wrong: object) -> str:
        good = Fault(at_ms=0, kind=plan.KILL, node=1)
        with pytest.raises(ClusterError) as problem:
            await stage.carry_out([good, Fault(**{"at_ms": 1, "kind": "cut", "node": 1, "other": 2, **wrong})])
        return str(problem.value)

    async def story(stage: Stage) -> None:
        assert "this cluster cannot have 'flap': it can have kill, clean stop" in await refused(kind="flap")
        assert "this cluster cannot find the node with role 'hero': known roles are" in await refused(role="hero")
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


def test_faults_of_simulated_clusters_only_are_refused_on_real_clusters(real_cluster: KafkaCluster) -> None:
    with pytest.raises(ClusterError, match="cannot have 'power loss'"):
        real_cluster.carry_out([Fault(at_ms=0, kind=plan.POWER_LOSS, node=1)])
    with pytest.raises(ClusterError, match="cannot find the node with role 'uncommitted controller'"):
        real_cluster.carry_out([Fault(at_ms=0, kind=plan.KILL, role=plan.UNCOMMITTED_CONTROLLER)])


def test_a_seed_draws_only_faults_that_the_cluster_supports(real_cluster: KafkaCluster) -> None:
    with SimulatedCluster(seed=1, **SHAPE) as simulated:
        for cluster in (simulated, real_cluster):
            found = [fault for seed in range(1, 60) for fault in faults_of_seed(cluster, seed, 10_000)]
            assert {fault.kind for fault in found} == set(cluster.fault_kinds)
            assert {fault.role for fault in found} == {"", *cluster.fault_roles}


def test_supported_faults_from_a_kraft_sim_replay_file_are_carried_out(stage: Stage, tmp_path: Path) -> None:
    cluster = stage.cluster
    left = draw_plan(OF_THIS_SHAPE, FaultSettings(duration_ms=3_000))
    assert left.shape.node_ids == cluster.node_ids
    write_plan(tmp_path / "plan.json", RecordedPlan(left, trace_hash=""))
    given = read_plan(tmp_path / "plan.json").plan.faults
    roles = ("", *cluster.fault_roles)
    kept = [fault for fault in given if fault.kind in cluster.fault_kinds and fault.role in roles]

    async def story(stage: Stage) -> None:
        with pytest.raises(ClusterError, match=r"cannot have|cannot find"):
            await stage.carry_out(given)
        assert await stage.carry_out(kept)

    stage.play(story)


def dialled(cluster: KafkaCluster, source: int, target: int) -> set[int]:
    """Return the local ports of the connections that one node's process has opened to the other node."""
    tcp = {node: psutil.Process(cluster.pid(node)).net_connections("tcp") for node in (source, target)}
    listens = {one.laddr.port for one in tcp[target] if one.status == psutil.CONN_LISTEN}
    return {one.laddr.port for one in tcp[source] if one.raddr and one.raddr.port in listens}


def wait_redialled(cluster: KafkaCluster, old: set[int]) -> None:
    """Wait until node 2 has connections to node 101 again, and none from the old ports."""
    cluster.wait_until(lambda: (now := dialled(cluster, 2, 101)) and not old & now)


def test_a_link_reset_ends_connections_and_the_nodes_redial(real_cluster: KafkaCluster) -> None:
    real_cluster.reset()
    seen: set[int] = set()
    for _ in range(2):
        real_cluster.wait_until(lambda: dialled(real_cluster, 2, 101))
        seen |= dialled(real_cluster, 2, 101)
        history = real_cluster.carry_out([Fault(at_ms=0, kind="reset", node=2, other=101)])
        assert [text.partition(": ")[2] for text in history] == ["reset of node 2 to node 101"]
        wait_redialled(real_cluster, seen)
    assert all(not FaultClient.of_node(real_cluster._open_cluster.folder, node).listed()["links"] for node in (2, 101))


def test_a_link_reset_does_not_reopen_a_cut_link(real_cluster: KafkaCluster) -> None:
    real_cluster.reset()
    real_cluster.partition({2}, {101})
    real_cluster.carry_out([Fault(at_ms=0, kind="reset", node=101, other=2)])
    for node in (2, 101):
        (link,) = FaultClient.of_node(real_cluster._open_cluster.folder, node).listed()["links"]
        assert link["policy"] == HANG
    real_cluster.heal()


def test_fault_plan_of_every_seed_has_at_least_one_fault(real_cluster: KafkaCluster) -> None:
    assert all(faults_of_seed(real_cluster, seed, 5_000) for seed in range(1, 41))


def test_a_single_node_cluster_gets_no_link_faults() -> None:
    for cluster in (KafkaCluster(), SimulatedCluster(seed=1, combined=1)):
        found = {fault.kind for seed in range(1, 61) for fault in faults_of_seed(cluster, seed, 5_000)}
        large = {plan.HALVES, plan.BRIDGE, plan.RING, plan.CONTROLLERS_CUT}
        assert found == set(cluster.fault_kinds) - set(BETWEEN_NODES) - large
        for kind in ("isolate", "cut"):
            with pytest.raises(ClusterError, match=f"cannot have '{kind}': it can have kill"):
                FaultRun(cluster, [Fault(at_ms=0, kind=kind, node=1, other=2)], lambda: 0)


@pytest.mark.slow
def test_faults_drawn_by_seed_run_on_real_nodes_which_all_recover() -> None:
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


# faults that run at the same time as other faults


@pytest.mark.usefixtures("longer_timeouts")
def test_node_restarts_in_a_fault_plan_while_a_concurrent_fault_pauses_the_only_controller(
    real_cluster: KafkaCluster,
) -> None:
    real_cluster.reset()
    faults = [
        Fault(at_ms=0, kind=plan.KILL, node=1, back_ms=100),
        Fault(at_ms=0, kind="pause", lane=1, node=101, duration_ms=1_000),
    ]
    before = time.monotonic()
    real_cluster.carry_out(faults)
    assert time.monotonic() - before < LONG_TIMEOUT_MS / 1000
    assert all(real_cluster.is_running(node) and not real_cluster.is_paused(node) for node in real_cluster.node_ids)


@pytest.mark.usefixtures("longer_timeouts")
def test_node_stop_that_hangs_does_not_delay_the_fault_plan(stage: Stage) -> None:
    async def story(stage: Stage) -> None:
        cluster = stage.cluster
        faults = [
            Fault(at_ms=0, kind="pause", node=101, duration_ms=1_000),
            Fault(at_ms=100, kind=plan.CLEAN_STOP, lane=1, node=1),
        ]
        before = trio.current_time()
        history = await stage.carry_out(faults)
        assert trio.current_time() - before < LONG_TIMEOUT_MS / 1000
        assert not any("is killed" in line for line in history), history
        assert all(cluster.is_running(node) and not cluster.is_paused(node) for node in cluster.node_ids)

    stage.play(story)


def test_a_node_that_does_not_stop_in_time_is_killed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_stumble_fault_kills_a_node_repeatedly_while_it_starts(
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


@pytest.mark.parametrize("is_followed", [True, False])
def test_a_node_cut_off_during_its_start_does_not_reach_the_others(
    real_cluster: KafkaCluster, is_followed: bool
) -> None:
    """The cut also takes effect if no task waits for the node's start at that time."""

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
        if is_followed:
            assert not cluster.follow_start(follower)
        cluster.partition({follower}, others)
        if is_followed:
            await stage.wait_until(lambda: cluster.follow_start(follower))
        await trio.sleep(2)  # without the cut it would be back in sync long before this
        assert follower not in cluster.isr("orders")
        cluster.heal()
        await stage.wait_until(lambda: cluster.follow_start(follower))
        await stage.wait_until(lambda: cluster.isr("orders") == [1, 2, 3])

    real_cluster.reset()
    Stage(real_cluster).play(story)


def test_mend_starts_killed_nodes_together_if_none_can_become_ready_alone() -> None:
    with KafkaCluster(combined=2) as cluster:
        for node in cluster.node_ids:
            cluster.kill(node)
        cluster.mend()
        assert all(cluster.follow_start(node) for node in cluster.node_ids)


@pytest.mark.usefixtures("longer_timeouts")
def test_a_rolling_restart_restarts_nodes_one_by_one_and_keeps_acknowledged_records(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        cluster, is_over, written = stage.cluster, trio.Event(), [b"0"]
        await stage.write(1)
        down: list[list[int]] = []

        def watch(stop: Callable[[int], None], node: int) -> None:
            down.append([other for other in cluster.node_ids if not cluster.is_running(other)])
            if isinstance(cluster, SimulatedCluster):  # on a slow machine a replica may fall behind meanwhile
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


def test_a_rolling_restart_waits_for_a_healthy_cluster_until_its_timeout(
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


@pytest.mark.usefixtures("longer_timeouts")
def test_the_cluster_method_for_a_rolling_restart_restarts_every_node(real_cluster: KafkaCluster) -> None:
    real_cluster.reset()
    pids = {node: real_cluster.pid(node) for node in real_cluster.node_ids}
    assert len(real_cluster.rolling_restart()) == len(pids)
    assert all(real_cluster.pid(node) not in (pid, None) for node, pid in pids.items())
    with SimulatedCluster(seed=3, **SHAPE) as simulated:
        assert len(simulated.run(simulated.rolling_restart)) == len(pids)
