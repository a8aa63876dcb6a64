"""Plans of operations: the order of a rolling restart, and the brokers that get the replicas of a drained broker."""

from __future__ import annotations

import pytest

from kraft.client.admin import Reassignment
from kraft.client.admin.values import PartitionDescription
from kraft.client.core.replica_plan import plan_without
from kraft.deploy.cli.brokers import _show_plan
from kraft.deploy.cli.local.rolling import restart_order
from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.partitions.draining import decide_drain
from kraft.deploy.launch.layout import ClusterLayout

NODES = ClusterLayout(controllers=3, brokers=2).nodes()


def partition(index: int, *replicas: int) -> PartitionDescription:
    return PartitionDescription("t", index, replicas[0], 0, replicas, replicas, ())


def test_a_rolling_restart_orders_controllers_before_brokers_with_the_active_controller_as_last_controller() -> None:
    assert [plan.node_id for plan in restart_order(NODES, 101)] == [102, 103, 101, 1, 2]
    assert [plan.node_id for plan in restart_order(NODES, 101, "brokers")] == [1, 2]
    assert [plan.node_id for plan in restart_order(NODES, 101, None, [1, 101])] == [101, 1]


def test_a_rolling_restart_of_combined_nodes_restarts_the_active_controller_last() -> None:
    assert [plan.node_id for plan in restart_order(ClusterLayout(combined=3).nodes(), 1)] == [2, 3, 1]


def test_a_rolling_restart_of_an_unknown_node_is_refused() -> None:
    with pytest.raises(CommandFailed, match="there is no node 7; there are 101, 102, 103, 1, 2"):
        restart_order(NODES, 101, None, [7])


def test_a_drained_brokers_replica_goes_to_another_rack_and_no_other_replica_moves() -> None:
    racks = {2: "a", 3: "b", 4: "a"}
    assert plan_without(1, {("t", 0): (1, 2), ("t", 1): (2, 4)}, racks) == {("t", 0): (3, 2)}


def test_the_replicas_of_a_drained_broker_go_to_the_brokers_with_the_fewest_replicas() -> None:
    current = {("t", index): (1,) for index in range(4)}
    plan = plan_without(1, current, {2: None, 3: None})
    assert sorted(plan.values()) == [(2,), (2,), (3,), (3,)]


def test_a_drain_without_another_broker_for_a_replica_is_refused() -> None:
    with pytest.raises(ValueError, match="t-0 has 2 replicas"):
        plan_without(1, {("t", 0): (1, 2)}, {2: None})


def test_draining_a_broker_without_replicas_prints_that_there_is_nothing_to_move(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _show_plan(decide_drain(4, [partition(0, 1, 2)], {}, {1: None, 2: None}), as_json=False)
    assert capsys.readouterr().out == "broker 4 has no replicas: nothing to move\n"


def test_a_drain_plan_keeps_the_targets_of_moves_that_are_in_progress() -> None:
    running = {("t", 0): Reassignment((1, 2, 3), (3,), (1,))}
    plan = decide_drain(1, [partition(0, 1, 2, 3), partition(1, 1, 2), partition(2, 2, 3)], running, {2: None, 3: None})
    assert plan.running == {("t", 0)}
    assert plan.targets.keys() == {("t", 0), ("t", 1)}
    assert set(plan.targets["t", 0]) == {2, 3}
    assert plan.targets["t", 1] == (3, 2)
