"""The admin listener of a node that is a process, over real sockets."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout, new_cluster_id
from tests.deploy.clusters import free_port

SHAPE = ClusterLayout(combined=1)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    layout = ClusterLayout(combined=1, port=free_port(SHAPE))
    started = LocalCluster.up(ClusterFolder(tmp_path / "data"), layout, new_cluster_id())
    try:
        started.wait_ready()
        yield started
    finally:
        started.down()


def test_a_node_of_kraft_up_serves_metrics_at_the_address_in_its_folder(cluster: LocalCluster) -> None:
    noted = cluster.folder.node(1) / "admin.address"
    address = noted.read_text().strip()
    assert [node.admin for node in cluster.status()] == [address]
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request("GET", "/ready")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b'{"ready": true}\n')
    connection.request("GET", "/metrics")  # on the same connection
    text = connection.getresponse().read().decode()
    connection.close()
    for name in ("process_open_fds", "process_resident_memory_bytes", "kafka_server_kafkaserver_brokerstate"):
        assert f"\n{name} " in text
    cluster.stop(1)
    assert not noted.exists()
