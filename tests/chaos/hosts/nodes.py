"""Runs nodes as processes. A test can change their folders before they start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.fault_client import FaultClient
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout, new_cluster_id
from kraft.sim.chaos.clusters.held_ports import hold_ports

ONE_NODE = ClusterLayout(combined=1, fault_control=True)


@contextmanager
def running_nodes(
    path: Path, layout: ClusterLayout = ONE_NODE, *, before_start: Callable[[ClusterFolder], None] = lambda _: None
) -> Iterator[LocalCluster]:
    """Run a cluster below `path` and wait until it is ready. It is stopped when the `with` block ends."""
    first, ports = hold_ports(port - layout.port for node in layout.nodes() for port in node.ports)
    folder = ClusterFolder(path)
    try:
        cluster = LocalCluster.up(
            folder,
            replace(layout, port=first),
            new_cluster_id(),
            is_temporary=True,
            is_remembered=False,
            before_start=lambda: before_start(folder),
        )
        try:
            cluster.wait_ready()
            yield cluster
        finally:
            cluster.down()
    finally:
        ports.release()


def faults_of(cluster: LocalCluster, node: int = 1) -> FaultClient:
    return FaultClient.of_node(cluster.folder, node)
