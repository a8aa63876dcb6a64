"""Fixture that runs each test twice: on a simulated cluster and on a cluster of real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kraft.sim.simulated_cluster import SimulatedCluster
from kraft.testing import KafkaCluster
from tests.testing.stage import SHAPE, Stage


@pytest.fixture(scope="module")
def real_cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(**SHAPE) as cluster:
        yield cluster


@pytest.fixture(params=["simulated", "real"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    if request.param == "simulated":
        with SimulatedCluster(seed=5, **SHAPE) as simulated:
            yield Stage(simulated)
    else:
        real: KafkaCluster = request.getfixturevalue("real_cluster")
        real.reset()
        yield Stage(real)
