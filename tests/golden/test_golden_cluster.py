"""Nodes of this release start on data folders of the previous release and keep working."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout
from tests.golden.files import CLUSTER_ID, GOLDEN, NODES
from tests.golden.workload import CODECS, COMMITTED_OFFSET, GROUP, LOG_START, RECORDS, codec_records, records_of
from tests.stages.kraft_command import Command, free_port


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A controller and a broker of this release, with the data of the previous release."""
    shape = ClusterLayout(controllers=1, brokers=1)
    layout = ClusterLayout(controllers=1, brokers=1, port=free_port(shape))
    folder = ClusterFolder(tmp_path / "cluster")

    def put_data() -> None:
        for node in NODES:
            shutil.copytree(GOLDEN / str(node), folder.node(node) / "data", dirs_exist_ok=True)
            (folder.node(node) / "node.log").touch()  # it was started before, so it must not be formatted

    cluster = LocalCluster.up(folder, layout, CLUSTER_ID, is_remembered=False, before_start=put_data)
    try:
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.down()


def test_nodes_serve_and_extend_the_data_of_the_previous_release(cluster: LocalCluster, tmp_path: Path) -> None:
    kraft, there = Command(tmp_path / "state"), ("-b", cluster.bootstrap_servers)
    lines = [f"{key.decode()}\t{value.decode()}" for key, value in (records_of(0) + records_of(1))[LOG_START:]]
    assert kraft.run("consume", RECORDS, *there).splitlines() == lines
    for codec in CODECS:
        expected = [f"key\t{value.decode()}" for value in codec_records(codec)]
        assert kraft.run("consume", f"codec-{codec}", *there).splitlines() == expected
    (lag,) = kraft.json("groups", "describe", GROUP, *there)["partitions"]
    assert (lag["topic"], lag["committed"]) == (RECORDS, COMMITTED_OFFSET)

    kraft.run("produce", RECORDS, *there, text="one more\n")
    assert kraft.run("consume", RECORDS, *there).splitlines() == [*lines, "one more"]
