"""Nodes of the previous release and of this one in one cluster: upgrade, downgrade, and upgrade again under load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout
from tests.deploy.load import TOPIC, under_load
from tests.deploy.previous_release import runs_previous, unpack_previous, use_previous, use_this
from tests.stages.kraft_command import Command, free_port


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    return unpack_previous(tmp_path / "previous")


@pytest.fixture
def old_cluster(tmp_path: Path, previous: Path) -> Iterator[LocalCluster]:
    """Three controllers and three brokers whose files were all written by the previous release."""
    shape = ClusterLayout()
    layout = ClusterLayout(port=free_port(shape))
    folder = ClusterFolder(tmp_path / "cluster")
    nodes = [plan.node_id for plan in layout.nodes()]
    cluster = LocalCluster.up(
        folder,
        layout,
        "4L6g3nShT-eMCtK--X86sw",
        is_remembered=False,
        before_start=lambda: use_previous(folder, nodes, previous),
    )
    try:
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.down()


def releases(cluster: LocalCluster, previous: Path) -> dict[int, str]:
    """Return the release that each node runs."""
    found = {}
    for status in cluster.status():
        assert status.pid is not None
        is_previous = runs_previous(cluster.folder, status.node_id, status.pid, previous)
        found[status.node_id] = "previous" if is_previous else "this"
    return found


@pytest.mark.slow
def test_a_rolling_upgrade_and_downgrade_under_load_loses_no_records(
    old_cluster: LocalCluster, previous: Path, kraft: Command
) -> None:
    folder, bootstrap, nodes = old_cluster.folder, old_cluster.bootstrap_servers, old_cluster.node_ids
    everywhere = ("--data", folder.path)
    assert set(releases(old_cluster, previous).values()) == {"previous"}
    kraft.run("topics", "create", TOPIC, "--partitions", "6", "--replication-factor", "3", "-b", bootstrap)
    before = kraft.json("features", "describe", "-b", bootstrap)
    with under_load(bootstrap) as load:
        use_this(folder, nodes)
        kraft.run("rolling-restart", *everywhere)
        assert set(releases(old_cluster, previous).values()) == {"this"}

        use_previous(folder, nodes, previous)
        kraft.run("rolling-restart", *everywhere)
        assert set(releases(old_cluster, previous).values()) == {"previous"}

        use_this(folder, nodes)
        kraft.run("rolling-restart", *everywhere, "--only", "brokers")
        assert releases(old_cluster, previous) == {
            plan.node_id: "this" if "broker" in plan.roles else "previous" for plan in old_cluster.layout.nodes()
        }
        kraft.run("rolling-restart", *everywhere, "--only", "controllers")
    load.require_each_once(kraft, bootstrap)

    after = {row["feature"]: row for row in kraft.json("features", "describe", "-b", bootstrap)}
    assert {row["feature"]: row["level"] for row in before}.items() <= {n: r["level"] for n, r in after.items()}.items()
    newest = after["metadata.version"]["max_level"]
    kraft.run("features", "upgrade", f"metadata.version={newest}", "-b", bootstrap)
    (finalized,) = [
        r for r in kraft.json("features", "describe", "-b", bootstrap) if r["feature"] == "metadata.version"
    ]
    assert finalized["level"] == newest
