"""A real cluster of one controller and one broker, with fault control, for the tests of the pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraft.deploy.launch.control import LocalCluster
from tests.deploy.console.consoles import cluster_running


@pytest.fixture(scope="package")
def small_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with cluster_running(tmp_path_factory.mktemp("console"), brokers=1) as cluster:
        yield cluster
