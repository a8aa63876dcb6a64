"""A real cluster of one controller and one broker, with fault control, for the tests of the pages."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout, new_cluster_id
from tests.deploy.clusters import free_port


@pytest.fixture(scope="package")
def small_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    shape = ClusterLayout(controllers=1, brokers=1)
    layout = ClusterLayout(controllers=1, brokers=1, port=free_port(shape), fault_control=True)
    folder = ClusterFolder(tmp_path_factory.mktemp("console") / f"data{os.getpid()}")
    cluster = LocalCluster.up(folder, layout, new_cluster_id(), is_remembered=False)
    try:
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.down()
