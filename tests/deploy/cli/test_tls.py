"""Network commands connect with TLS, with their own options or with Kafka's properties file."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.deploy.cli.local.test_foreground import END_SECONDS_MAX, spawn
from tests.stages.kraft_command import Command
from tests.stages.ports import hold_block


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    """A certificate authority, whose certificate is also in a file."""
    path = tmp_path_factory.mktemp("authority") / "ca.pem"
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(path))
    return ca, path


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, authority: tuple[trustme.CA, Path]) -> Iterator[str]:
    """Address of a node with a TLS listener. The authority has signed its certificate, and clients need a certificate
    as well."""
    ca, ca_path = authority
    folder = tmp_path_factory.mktemp("node")
    key_and_chain = folder / "node.pem"
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(key_and_chain))
    port = hold_block([0, 1, 100])
    config = folder / "server.properties"
    config.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={folder}/data\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{port + 1},CONTROLLER://127.0.0.1:{port + 100}\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:{port + 100}\n"
        "inter.broker.listener.name=PLAINTEXT\nssl.client.auth=required\nssl.keystore.type=PEM\n"
        f"ssl.keystore.location={key_and_chain}\nssl.truststore.type=PEM\nssl.truststore.location={ca_path}\n"
    )
    Command(folder / "state").run("storage", "format", "--config", config)
    with spawn(folder, "node", "--config", str(config)) as node:
        assert node.stderr is not None
        while "broker is unfenced" not in node.stderr.readline():
            assert node.poll() is None
        yield f"127.0.0.1:{port + 1}"
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=END_SECONDS_MAX)


@pytest.fixture
def own_certificate(tmp_path: Path, authority: tuple[trustme.CA, Path]) -> Path:
    path = tmp_path / "me.pem"
    authority[0].issue_cert("me.example.org").private_key_and_cert_chain_pem.write_to_path(str(path))
    return path


def test_each_kind_of_command_can_connect_with_tls(
    kraft: Command, servers: str, authority: tuple[trustme.CA, Path], own_certificate: Path
) -> None:
    tls = ("--bootstrap-server", servers, "--tls-ca", authority[1], "--tls-cert", own_certificate)
    kraft.run("topics", "create", "t", "--partitions", "1", *tls)
    kraft.run("produce", "t", *tls, text="one\ntwo\n")
    assert kraft.run("consume", "t", *tls) == "one\ntwo\n"
    assert kraft.json("perf", "produce", "t", "--records", "5", *tls)["records"] == 5


def test_tls_settings_from_kafkas_properties_file_work(
    kraft: Command, servers: str, authority: tuple[trustme.CA, Path], own_certificate: Path, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        f"bootstrap.servers={servers}\nsecurity.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority[1]}\nssl.keystore.type=PEM\nssl.keystore.location={own_certificate}\n"
    )
    assert kraft.json("brokers", "--command-config", config)[0]["state"] == "active"


def test_an_untrusted_server_certificate_is_refused(kraft: Command, servers: str, own_certificate: Path) -> None:
    said = kraft.run("brokers", "-b", servers, "--tls", "--tls-cert", own_certificate, "--timeout", "2", code=3)
    assert "CERTIFICATE_VERIFY_FAILED: " in said
    assert "is its certificate one that --tls-ca trusts?" in said
    assert len(said.splitlines()) == 1


def test_unusable_ca_certificates_are_reported_in_one_line(kraft: Command, servers: str, tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing.pem", tmp_path / "empty.pem"
    empty.write_text("no certificate")
    for path, why in ((missing, "No such file"), (empty, "no authorities in it")):
        said = kraft.run("brokers", "-b", servers, "--tls-ca", path, code=2)
        assert (str(path) in said, why in said, len(said.splitlines())) == (True, True, 1)


def test_a_plaintext_connection_to_a_tls_listener_gives_advice_to_use_tls(kraft: Command, servers: str) -> None:
    assert "does it want --tls?" in kraft.run("brokers", "-b", servers, "--timeout", "2", code=3)
