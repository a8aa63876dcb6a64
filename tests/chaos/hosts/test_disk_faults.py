"""Tests of running nodes with slow or failing syncs: no acknowledged record is lost, and a failed sync stops the
node."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.layout import ClusterLayout
from tests.chaos.hosts.nodes import faults_of, running_nodes
from tests.chaos.hosts.records import read, send

SYNCED = ClusterLayout(combined=1, fault_control=True, settings={"log.flush.interval.messages": "1"})
THREE = ClusterLayout(controllers=3, brokers=1, fault_control=True)
VALUES = [b"%d" % number for number in range(5)]


def test_a_node_with_slow_syncs_keeps_serving_and_counts_them(tmp_path: Path) -> None:
    with running_nodes(tmp_path / "cluster", SYNCED) as cluster:
        assert send(cluster.bootstrap_servers, "orders", VALUES) == VALUES
        node = faults_of(cluster)
        assert node.syncs_broken() == (0, 0)
        node.slow_syncs(50)
        assert send(cluster.bootstrap_servers, "orders", VALUES) == VALUES
        delayed, failed = node.syncs_broken()
        assert delayed >= len(VALUES)  # each record is synced before it is acknowledged
        assert failed == 0
        node.slow_syncs(0)
        assert send(cluster.bootstrap_servers, "orders", VALUES) == VALUES
        assert node.syncs_broken() == (delayed, 0)


def test_a_broker_whose_sync_fails_stops_and_keeps_acknowledged_records_after_a_restart(tmp_path: Path) -> None:
    with running_nodes(tmp_path / "cluster", SYNCED) as cluster:
        acked = send(cluster.bootstrap_servers, "orders", VALUES)
        faults_of(cluster).fail_syncs(True)
        acked += send(cluster.bootstrap_servers, "orders", [b"more"], timeout_ms=2_000)
        assert acked == VALUES
        require_stopped(cluster, 1)
        cluster.start(1)
        assert faults_of(cluster).syncs_broken() == (0, 0)
        assert read(cluster.bootstrap_servers, "orders", len(acked))[: len(acked)] == acked


def test_a_controller_whose_sync_fails_stops_and_the_other_controllers_continue(tmp_path: Path) -> None:
    with running_nodes(tmp_path / "cluster", THREE) as cluster:
        faults_of(cluster, 102).fail_syncs(True)
        assert send(cluster.bootstrap_servers, "orders", VALUES) == VALUES  # creating the topic needs a sync
        require_stopped(cluster, 102)
        cluster.start(102)
        assert {status.state for status in cluster.status()} == {"ready"}


def require_stopped(cluster: LocalCluster, node: int) -> None:
    cluster.wait_ended([node])
    assert next(status.ended for status in cluster.status() if status.node_id == node) == "exit code 1"
    assert "it fails on purpose" in (cluster.folder.node(node) / "node.log").read_text()
    with pytest.raises(LaunchError):
        faults_of(cluster, node).syncs_broken()
