"""The admin listener of a node in a real process, over real sockets."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout, new_cluster_id
from tests.stages.kraft_command import free_port

SHAPE = ClusterLayout(combined=1)


@contextmanager
def running(tmp_path: Path, **settings: str) -> Iterator[LocalCluster]:
    layout = ClusterLayout(combined=1, port=free_port(SHAPE), settings=settings)
    started = LocalCluster.up(ClusterFolder(tmp_path / "data"), layout, new_cluster_id())
    try:
        started.wait_ready()
        yield started
    finally:
        started.down()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with running(tmp_path) as started:
        yield started


def test_an_admin_listener_with_tls_serves_a_client_that_trusts_it_and_has_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    authority, store = trustme.CA(), tmp_path / "admin.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(store)
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    token = "0123456789abcdef"
    settings = {
        "kraft.admin.security.protocol": "SSL",
        "kraft.admin.token": token,
        **{f"listener.name.admin.{key}": value for key, value in own.items()},
    }
    with running(tmp_path, **settings) as cluster:
        (address,) = [node.admin for node in cluster.status()]
        context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        connection = http.client.HTTPSConnection(address, timeout=10, context=context)
        connection.request("GET", "/ready")
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, b'{"ready": true}\n')
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        answer.read()
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        text = connection.getresponse().read().decode()
        connection.close()
        assert 'kraft_network_listener_certificate_expiry_timestamp_seconds{listener="ADMIN"} ' in text
        plain = http.client.HTTPConnection(address, timeout=10)
        with pytest.raises((http.client.HTTPException, OSError)):
            plain.request("GET", "/live")
            plain.getresponse()


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
