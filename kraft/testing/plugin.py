"""The pytest plugin: the fixtures `kafka_cluster` and `session_kafka_cluster` (real processes) and `simulated_cluster`,
their marker and options.

pytest loads this in every run of an environment that has pykraft, so it imports nothing until a fixture is used.
Source: docs/testing-with-pykraft.md.
"""

from __future__ import annotations

import os
import random
import re
import shlex
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

try:
    import pytest
except ImportError as missing:
    raise ImportError(
        "kraft.testing.plugin is for pytest, which is not installed: pip install 'pykraft[pytest]'"
    ) from missing

if TYPE_CHECKING:
    from kraft.sim.breakable_cluster import BreakableCluster
    from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster
    from kraft.sim.simulated_cluster import SimulatedCluster
    from kraft.testing.cluster_pool import ClusterPool

MARKER = "kraft"
MARKER_HELP = (
    f"{MARKER}(controllers=…, brokers=…, combined=…, settings={{…}}): the cluster that kafka_cluster and "
    "simulated_cluster give to this test."
)
SHAPE = re.compile(r"[1-9]\d*(\+[1-9]\d*)?")
SHAPE_HELP = "1 is one node of both roles, 3+3 are controllers + brokers"
SEEDS = 2**31
RUN = "run{}"
"""Format of the part of a test's id that holds the number of the repetition."""

_BASE_SEED = pytest.StashKey[int]()
_CLUSTERS = pytest.StashKey[dict[str, "BreakableCluster"]]()
"""Stash key of the clusters that a test uses, by fixture name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kraft", "clusters for tests (pykraft)")
    group.addoption("--kraft-seed", type=int, metavar="SEED", help="Seed of simulated clusters; default: a new one.")
    group.addoption(
        "--kraft-seeds",
        type=int,
        default=1,
        metavar="N",
        help="Run each test that has a simulated cluster N times, with SEED, SEED + 1, …",
    )
    group.addoption(
        "--kraft-shape",
        metavar="SHAPE",
        help=f"Shape of the clusters of tests that choose none: {SHAPE_HELP}.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER_HELP)
    given = config.getoption("--kraft-seed")
    config.stash[_BASE_SEED] = random.SystemRandom().randrange(SEEDS) if given is None else given
    if config.getoption("--kraft-seeds") < 1:
        raise pytest.UsageError("--kraft-seeds is 1 or more")
    shape = config.getoption("--kraft-shape")
    if shape is not None and not SHAPE.fullmatch(shape):
        raise pytest.UsageError(f"{shape!r} is no shape of a cluster: {SHAPE_HELP}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat simulated tests. Ids contain the number of the run and not the seed, as they must be the same in every
    worker."""
    count = metafunc.config.getoption("--kraft-seeds")
    if count > 1 and "simulated_cluster" in metafunc.fixturenames:
        runs = [RUN.format(number) for number in range(count)]
        metafunc.parametrize("simulated_cluster", range(count), indirect=True, ids=runs)


@pytest.fixture
def simulated_cluster(request: pytest.FixtureRequest) -> Iterator[SimulatedCluster]:
    """A cluster in this process under virtual time: `simulated_cluster.run(main)` runs your trio code against it."""
    from kraft.sim.simulated_cluster import SimulatedCluster

    seed = request.config.stash[_BASE_SEED] + getattr(request, "param", 0)
    with SimulatedCluster(seed=seed, **_requested_shape(request)) as cluster:
        _remember(request, cluster)
        yield cluster


@pytest.fixture(scope="session")
def _kraft_clusters() -> Iterator[ClusterPool]:
    from kraft.testing.cluster_pool import ClusterPool

    pool = ClusterPool()
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def session_kafka_cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One cluster of real processes for the whole test run, not reset between tests: for fixtures of a wider scope than
    a function. Its shape is that of --kraft-shape."""
    from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster

    with KafkaCluster(**_shape_of_option(request.config)) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest, _kraft_clusters: ClusterPool) -> KafkaCluster:
    """A cluster of real processes for one test and any client. It has no topics and no groups, even if an earlier test
    used the same processes. Its address is `kafka_cluster.bootstrap_servers`."""
    from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster

    cluster = _kraft_clusters.take(KafkaCluster(**_requested_shape(request)))
    _remember(request, cluster)
    return cluster


def _remember(request: pytest.FixtureRequest, cluster: BreakableCluster) -> None:
    assert request.fixturename is not None
    request.node.stash.setdefault(_CLUSTERS, {})[request.fixturename] = cluster


def _requested_shape(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the shape from the test's marker, else from the option, else None."""
    from kraft.sim.shapes import ClusterError

    marker = request.node.get_closest_marker(MARKER)
    if marker is not None:
        known = {"controllers", "brokers", "combined", "settings"}
        unknown = [*map(repr, marker.args), *sorted(marker.kwargs.keys() - known)]
        if unknown:
            raise ClusterError(f"the marker has no {', '.join(unknown)}; it is {MARKER_HELP}")
        return dict(marker.kwargs)
    return _shape_of_option(request.config)


def _shape_of_option(config: pytest.Config) -> dict[str, Any]:
    text = config.getoption("--kraft-shape")
    if text is None:
        return {}
    counts = [int(count) for count in text.split("+")]
    return {"combined": counts[0]} if len(counts) == 1 else {"controllers": counts[0], "brokers": counts[1]}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Report, where a test failed, the state of its clusters and how to repeat it."""
    report = yield
    if report.failed:
        for cluster in item.stash.get(_CLUSTERS, {}).values():
            report.sections.append((type(cluster).__name__, _described(cluster) + _repeat_command(item, cluster)))
    return report


def _described(cluster: BreakableCluster) -> str:
    try:
        return cluster.describe()
    except Exception as problem:  # noqa: BLE001 - the failure of the test is reported in any case
        return f"it could not be described: {problem!r}"


def _repeat_command(item: pytest.Item, cluster: BreakableCluster) -> str:
    """Return the command that repeats a simulated test."""
    seed = getattr(cluster, "seed", None)
    if seed is None:
        return ""
    words = ["pytest", "--kraft-seed", str(seed)]
    shape = item.config.getoption("--kraft-shape")
    if shape is not None:
        words += ["--kraft-shape", shape]
    return f"\nto see this again: {shlex.join([*words, _id_in_one_run(item)])}"


def _id_in_one_run(item: pytest.Item) -> str:
    """Return the test's id without the number of the repetition."""
    callspec = getattr(item, "callspec", None)
    is_repeated = item.config.getoption("--kraft-seeds") > 1
    test_id = _id_in_current_folder(item)
    if not is_repeated or callspec is None or "simulated_cluster" not in callspec.params:
        return test_id
    parts = callspec.id.split("-")
    parts.remove(RUN.format(callspec.params["simulated_cluster"]))
    test = test_id.removesuffix(f"[{callspec.id}]")
    return f"{test}[{'-'.join(parts)}]" if parts else test


def _id_in_current_folder(item: pytest.Item) -> str:
    """Return the test's id relative to the current folder, for a command line. pytest's ids are relative to its root
    folder."""
    _, *names = item.nodeid.split("::")
    return "::".join([os.path.relpath(item.path, item.config.invocation_params.dir), *names])
