"""The end of a fault plan, whether it succeeds, fails or is cancelled: the faults that it started are ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.fault_client import FaultClient
from kraft.deploy.launch.layout import FAULT_SOCKET
from kraft.sim.breakable_cluster import BreakableCluster
from kraft.sim.cluster.shape import host_name
from kraft.sim.nemesis import on_clusters, plan
from kraft.sim.nemesis.plan import HANG, Fault
from kraft.sim.shapes import ClusterError
from kraft.sim.simulated_cluster import SimulatedCluster
from kraft.testing import KafkaCluster
from tests.testing.stage import SHAPE, Stage

LASTING = (
    Fault(at_ms=0, kind=plan.KILL, node=1, back_ms=20_000),
    Fault(at_ms=0, kind="pause", lane=1, node=2, duration_ms=20_000),
    Fault(at_ms=0, kind="cut", lane=2, node=3, other=101, duration_ms=20_000),
)


def assert_nothing_is_left(cluster: BreakableCluster) -> None:
    nodes = cluster.node_ids
    assert all(cluster.is_running(node) and not cluster.is_paused(node) for node in nodes)
    assert not any(cluster.is_cut(one, other) for one in nodes for other in nodes)


def test_started_faults_are_ended_when_another_fault_fails(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_started_faults_are_ended_when_the_plan_is_cancelled() -> None:
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
            assert not cluster._world.host(host_name(3)).disk_extra_ns
            await cluster.wait_ready()

        Stage(cluster).play(story)


def applied_cuts(cluster: KafkaCluster) -> list[object]:
    """Return the links that the nodes' processes currently do not use."""
    return [link for node in cluster.node_ids for link in cluster._faults_of(node).listed()["links"]]


def fail_link_commands(
    monkeypatch: pytest.MonkeyPatch, is_unlucky: Callable[[int, int, str], bool], *, is_heard: bool = False
) -> None:
    """Make a link command (node, peer, policy) to a node fail. With `is_heard`, the node applies the command, and only
    its response is lost."""
    honest = FaultClient.link

    def link(self: FaultClient, node_id: int, policy: str, **more: Any) -> None:
        fails = is_unlucky(int(self._path.parent.name), node_id, policy)
        if is_heard or not fails:
            honest(self, node_id, policy, **more)
        if fails:
            raise LaunchError("request", "planted")

    monkeypatch.setattr(FaultClient, "link", link)


def test_link_cut_that_failed_on_one_node_is_ended_on_the_other_node(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    with monkeypatch.context() as patched, pytest.raises(ClusterError, match="planted"):
        fail_link_commands(patched, lambda _node, peer, _policy: peer == 1)
        real_cluster.carry_out([Fault(at_ms=0, kind="cut", node=1, other=3, duration_ms=100)])
    assert_nothing_is_left(real_cluster)
    assert not applied_cuts(real_cluster)


def test_a_failed_link_cut_on_a_ready_node_is_an_error(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    real_cluster.kill(1)
    real_cluster.start(1, until_ready=False)
    real_cluster.wait_until(lambda: real_cluster._status(1).state == "ready")
    with monkeypatch.context() as patched:
        fail_link_commands(patched, lambda _node, peer, _policy: peer == 3)
        real_cluster.partition(1, 3)
        with pytest.raises(ClusterError, match="planted"):
            real_cluster.follow_start(1)
    assert real_cluster.follow_start(1)
    assert len(applied_cuts(real_cluster)) == 2
    real_cluster.heal()


def test_a_partly_applied_link_cut_of_a_node_is_ended(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    with monkeypatch.context() as patched, pytest.raises(ClusterError, match="planted"):
        fail_link_commands(patched, lambda _node, peer, _policy: peer == 3)
        real_cluster.partition(1, {2, 3})
    assert applied_cuts(real_cluster)
    real_cluster.heal()
    assert not applied_cuts(real_cluster)


def test_a_link_cut_that_a_node_applied_without_confirming_it_is_ended(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    with monkeypatch.context() as patched, pytest.raises(ClusterError, match="planted"):
        fail_link_commands(patched, lambda _node, _peer, policy: policy == HANG, is_heard=True)
        real_cluster.carry_out([Fault(at_ms=0, kind="cut", node=1, other=3, duration_ms=100)])
    assert not applied_cuts(real_cluster)


def test_an_unreachable_node_does_not_prevent_healing_of_the_others(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    real_cluster.partition(1, {2, 3})
    fault = real_cluster.drop("Produce")
    with monkeypatch.context() as patched, pytest.raises(ClusterError, match="planted"):
        fail_link_commands(patched, lambda node, _peer, _policy: node == 1)
        real_cluster.heal()
    assert len(applied_cuts(real_cluster)) == 2, "those of node 1"
    assert fault.is_ended
    real_cluster.heal()
    assert not applied_cuts(real_cluster)


def test_a_paused_node_is_resumed_although_the_launcher_failed(
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


def test_a_request_fault_that_failed_on_some_nodes_ends_with_heal(
    real_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_cluster.reset()
    honest = FaultClient.reply
    accepted: list[int] = []

    def reply(self: FaultClient, **rule: Any) -> int:
        if accepted:
            raise LaunchError("request", "planted")
        accepted.append(honest(self, **rule))
        return accepted[0]

    with monkeypatch.context() as patched, pytest.raises(ClusterError, match="planted"):
        patched.setattr(FaultClient, "reply", reply)
        real_cluster.drop("Produce")
    assert accepted
    real_cluster.heal()
    assert not [rule for node in real_cluster.node_ids for rule in real_cluster._faults_of(node).listed()["rules"]]


def test_mend_waits_for_a_node_that_was_started_but_is_not_ready(
    real_cluster: KafkaCluster,
) -> None:
    """The nodes are as after a fault plan that was interrupted. The killed node, started again, cannot become ready
    while the controller is paused."""
    real_cluster.reset()
    real_cluster.pause(101)
    real_cluster.kill(1)
    real_cluster.start(1, until_ready=False)
    assert real_cluster._status(1).state == "starting"
    real_cluster.mend()
    assert real_cluster._status(1).state == "ready"


def test_fault_on_the_active_controller_waits_until_a_node_has_that_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_clusters, "MOMENT_MS_MAX", 60_000)  # as long as a node needs to start
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


def test_a_launcher_error_becomes_a_cluster_error(monkeypatch: pytest.MonkeyPatch) -> None:
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
