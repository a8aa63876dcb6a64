"""TLS over the real driver: encrypted connections, file ranges, principals and refusals."""

from __future__ import annotations

import base64
import math
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio
import trustme

from kraft.config import NodeConfig, TlsConfig
from kraft.runtime import ClientAuth, TlsConfigError, TlsSettings, open_seam
from kraft.runtime.certificate import expiry_s
from kraft.runtime.tls import distinguished_name
from kraft.seam import (
    Address,
    Binding,
    BoundListener,
    CloseReason,
    DialFailed,
    DialOutcome,
    FileRange,
    Peer,
    Seam,
    Transport,
)
from tests.seam.test_network import pattern
from tests.stages.recorder import Recorder, echo

SSL = "SSL"


class Certificates:
    """An authority, a server's certificate and a client's, as PEM files."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.authorities = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.authorities)
        self.server = str(folder / "server.pem")
        authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(self.server)
        self.client = str(folder / "client.pem")
        client = authority.issue_cert("client@example.org", common_name="orders", organization_name="Shop, Inc")
        client.private_key_and_cert_chain_pem.write_to_path(self.client)
        self.stranger = str(folder / "stranger.pem")
        trustme.CA().cert_pem.write_to_path(self.stranger)

    def serving(self, client_auth: ClientAuth = ClientAuth.NONE) -> TlsSettings:
        return TlsSettings(certificate_path=self.server, authorities_path=self.authorities, client_auth=client_auth)

    def serve_as(self, other: Certificates) -> None:
        """Replace the server's certificate and key by those of another server."""
        Path(self.server).write_bytes(Path(other.server).read_bytes())

    def dialling(self, certificate: str | None = None) -> TlsSettings:
        return TlsSettings(authorities_path=self.authorities, certificate_path=certificate)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Serving:
    """A node that serves a TLS listener and dials itself."""

    def __init__(self, seam: Seam, settings: TlsSettings | TlsConfig) -> None:
        self.seam = seam
        self.accepted: list[Recorder] = []
        binding = Binding(SSL, Address("0.0.0.0", 0), settings)
        self.bound: BoundListener = seam.network.serve(binding, self._make)

    def _make(self, transport: Transport) -> Recorder:
        connection = Recorder(transport)
        connection.on_heard = echo
        self.accepted.append(connection)
        return connection

    async def dial(self, settings: TlsSettings | TlsConfig, host: str = "127.0.0.1") -> Recorder:
        peer = Peer(None, SSL, Address(host, self.bound.address.port), settings)
        return await self.seam.network.dial(peer, Recorder, timeout_ms=10_000)


def run(settings: TlsSettings | TlsConfig, body: Callable[[Serving], Awaitable[None]]) -> None:
    async def main() -> None:
        async with open_seam(node_name="tls") as seam:
            await body(Serving(seam, settings))

    trio.run(main)


def test_tls_connection_passes_bytes_in_both_directions(certificates: Certificates) -> None:
    async def body(serving: Serving) -> None:
        near = await serving.dial(certificates.dialling())
        data = pattern(3_000_000)
        near.say(*(data[at : at + 70_000] for at in range(0, len(data), 70_000)))
        assert await near.wait_heard(len(data)) == data
        near.transport.close(flush=True)
        assert await serving.accepted[0].wait_closed() is CloseReason.PEER

    run(certificates.serving(), body)


def test_tls_handshakes_are_counted_by_listener_and_a_port_scan_is_not(certificates: Certificates) -> None:
    async def body(serving: Serving) -> None:
        stats = serving.seam.network.stats.listeners[SSL]
        await serving.dial(certificates.dialling(certificates.client))
        assert (stats.authenticated, stats.authentications_failed) == (1, 0)
        with pytest.raises(DialFailed):
            await serving.dial(TlsSettings(authorities_path=certificates.stranger))
        with suppress(DialFailed):  # in TLS 1.3 its side may be finished before it is refused
            nameless = await serving.dial(certificates.dialling())
            await nameless.wait_closed()
        async with await trio.open_tcp_stream("127.0.0.1", serving.bound.address.port) as scan:
            await scan.send_all(b"")
        async with await trio.open_tcp_stream("127.0.0.1", serving.bound.address.port) as plain:
            await plain.send_all(b"GET / HTTP/1.1\r\n\r\n")
            while await plain.receive_some():
                pass
        assert (stats.authenticated, stats.authentications_failed) == (1, 3)

    run(certificates.serving(ClientAuth.REQUIRED), body)


def test_the_expiry_of_a_listeners_certificate_follows_its_present_file(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)

    def write(text: bytes) -> None:
        Path(certificates.server).write_bytes(text)

    def replace_server(*days: int) -> float:
        """Install certificates that expire after this many days; return the earliest expiry."""
        ends = [datetime.now(UTC).replace(microsecond=0) + timedelta(days=one) for one in days]
        issued = [trustme.CA().issue_cert("localhost", not_after=end) for end in ends]
        texts = [issued[0].private_key_pem.bytes(), *(one.cert_chain_pems[0].bytes() for one in issued)]
        write(b"".join(texts))
        return min(ends).timestamp()

    async def body(serving: Serving) -> None:
        read = serving.seam.network.stats.listeners[SSL].certificate_expiry_s
        assert read is not None
        assert read() == first
        assert read() != replace_server(40, 3)
        os.utime(certificates.server, ns=(1, 1))  # a different modification time, however quick this test is
        assert 2 < (read() - time.time()) / 86_400 < 3
        write(b"being written")
        assert 2 < (read() - time.time()) / 86_400 < 3

    first = replace_server(30)
    run(certificates.serving(), body)


def test_a_certificates_expiry_is_read_in_both_time_formats() -> None:
    for year in (2031, 2049, 2050, 9999):
        end = datetime(year, 5, 6, 7, 8, 9, tzinfo=UTC)
        issued = trustme.CA().issue_cert("localhost", not_after=end)
        assert expiry_s(issued.cert_chain_pems[0].bytes().decode()) == end.timestamp()
    assert expiry_s("no certificate") == math.inf


def test_tls_file_ranges_are_read_and_encrypted(certificates: Certificates, tmp_path: Path) -> None:
    async def body(serving: Serving) -> None:
        data = pattern(3_000_000)
        file = serving.seam.disk.create(str(tmp_path / "segment"))
        file.append(data)
        near = await serving.dial(certificates.dialling())
        near.say(b"hello")
        await near.wait_heard(5)
        serving.accepted[0].say(b"head", FileRange(file, 4, 2_900_000), FileRange(file, 100, 7), b"tail")
        expected = b"hellohead" + data[4:2_900_004] + data[100:107] + b"tail"
        assert await near.wait_heard(len(expected)) == expected

    run(certificates.serving(), body)


def test_a_tls_file_range_beyond_its_files_end_closes_the_connection(
    certificates: Certificates, tmp_path: Path
) -> None:
    async def body(serving: Serving) -> None:
        file = serving.seam.disk.create(str(tmp_path / "segment"))
        file.append(b"short")
        near = await serving.dial(certificates.dialling())
        near.say(b"x")
        await near.wait_heard(1)
        serving.accepted[0].say(FileRange(file, 0, 50))
        assert await serving.accepted[0].wait_closed() is CloseReason.RESET

    run(certificates.serving(), body)


def test_decrypted_tls_bytes_wait_until_the_connection_has_space_and_wakes_the_driver(
    certificates: Certificates,
) -> None:
    async def body(serving: Serving) -> None:
        near = await serving.dial(certificates.dialling())
        near.say(b"x")
        await near.wait_heard(1)
        far = serving.accepted[0]
        far.on_heard = None
        far.muted = True
        near.say(b"0123456789")
        await serving.seam.clock.sleep_ms(30)
        assert len(far.heard) == 1
        far.muted = False
        far.transport.wake()
        assert await far.wait_heard(11) == b"x0123456789"

    run(certificates.serving(), body)


def test_a_tls_close_with_flush_sends_all_queued_output(certificates: Certificates) -> None:
    async def body(serving: Serving) -> None:
        near = await serving.dial(certificates.dialling())
        near.say(b"x")
        await near.wait_heard(1)
        data = pattern(6_000_000)
        serving.accepted[0].say(data)
        serving.accepted[0].transport.close(flush=True)
        assert await near.wait_heard(1 + len(data)) == b"x" + data
        assert await near.wait_closed() is CloseReason.PEER

    run(certificates.serving(), body)


def test_the_principal_is_the_subject_of_the_peers_certificate(certificates: Certificates) -> None:
    async def body(serving: Serving) -> None:
        near = await serving.dial(certificates.dialling(certificates.client))
        near.say(b"x")
        await near.wait_heard(1)
        principal = serving.accepted[0].transport.peer_principal
        assert principal is not None
        assert principal.startswith("CN=orders,")
        assert r"O=Shop\, Inc" in principal

    run(certificates.serving(ClientAuth.REQUIRED), body)


def test_a_client_without_the_required_certificate_is_refused(certificates: Certificates) -> None:
    async def body(serving: Serving) -> None:
        with pytest.raises(DialFailed):
            near = await serving.dial(certificates.dialling())
            # TLS 1.3: the client's part of the handshake ends before the server has checked the certificate.
            await near.wait_closed()
            raise DialFailed(Peer(None, SSL, serving.bound.address), DialOutcome.RESET)
        assert not serving.accepted

    run(certificates.serving(ClientAuth.REQUIRED), body)


def test_a_client_without_the_requested_certificate_has_no_principal(certificates: Certificates) -> None:
    async def body(serving: Serving) -> None:
        near = await serving.dial(certificates.dialling())
        near.say(b"x")
        await near.wait_heard(1)
        assert serving.accepted[0].transport.peer_principal is None

    run(certificates.serving(ClientAuth.REQUESTED), body)


def test_a_client_refuses_an_untrusted_server_and_a_wrong_host_name(certificates: Certificates) -> None:
    async def body(serving: Serving) -> None:
        trusting = certificates.dialling()
        with pytest.raises(DialFailed) as failure:
            await serving.dial(replace(trusting, authorities_path=certificates.stranger))
        assert failure.value.outcome is DialOutcome.RESET
        with pytest.raises(DialFailed):
            await serving.dial(trusting, host="127.0.0.2")
        near = await serving.dial(replace(trusting, verify_hostname=False), host="127.0.0.2")
        near.say(b"x")
        await near.wait_heard(1)
        assert len(serving.accepted) == 1

    run(certificates.serving(), body)


def test_plain_bytes_to_a_tls_listener_close_only_that_connection(certificates: Certificates) -> None:
    async def body(serving: Serving) -> None:
        address = ("127.0.0.1", serving.bound.address.port)
        with trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM) as plain:
            await plain.connect(address)
            await plain.send(b"\x00\x00\x00\x0a not a handshake")
            while await plain.recv(100):
                pass
        near = await serving.dial(certificates.dialling())
        near.say(b"x")
        assert await near.wait_heard(1) == b"x"

    run(certificates.serving(), body)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xfe\xed\xfe\xed rest", "JKS"),
        (b"\x30\x82 rest", "PKCS12"),
        (b"nonsense", "do not load"),
    ],
)
def test_an_unusable_tls_store_is_an_error_with_advice(tmp_path: Path, content: bytes, expected: str) -> None:
    async def body(serving: Serving) -> None:
        raise AssertionError("the listener was bound")

    store = tmp_path / "store"
    store.write_bytes(content)
    with pytest.raises(TlsConfigError, match=expected):
        run(TlsSettings(certificate_path=str(store)), body)


def test_tls_settings_of_a_node_configuration_may_be_files_or_text(certificates: Certificates) -> None:
    def body(dialling: TlsConfig) -> Callable[[Serving], Awaitable[None]]:
        async def talk(serving: Serving) -> None:
            near = await serving.dial(dialling)
            near.say(b"x")
            await near.wait_heard(1)
            assert str(serving.accepted[0].transport.peer_principal).startswith("CN=orders,")

        return talk

    def properties(certificate: str, *, in_line: bool) -> dict[str, str]:
        pem = Path(certificate).read_text()
        key, chain = pem[: pem.index("-----BEGIN CERT")], pem[pem.index("-----BEGIN CERT") :]
        authorities = Path(certificates.authorities).read_text()
        if in_line:
            stores = {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain}
            stores["ssl.truststore.certificates"] = authorities
        else:
            stores = {"ssl.keystore.location": certificate, "ssl.truststore.location": certificates.authorities}
        kinds = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM", "ssl.client.auth": "required"}
        return {**stores, **kinds}

    def configured(certificate: str, *, in_line: bool) -> TlsConfig:
        node = {
            "process.roles": "broker",
            "node.id": "1",
            "listeners": "SSL://localhost:9092",
            "inter.broker.listener.name": "SSL",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "101@localhost:9192",
        }
        config = NodeConfig.parse({**node, **properties(certificate, in_line=in_line)})
        tls = config.tls("SSL")
        assert tls is not None
        return tls

    for in_line in (False, True):
        serving, dialling = (configured(path, in_line=in_line) for path in (certificates.server, certificates.client))
        run(serving, body(dialling))


def test_cipher_suites_that_openssl_does_not_know_are_an_error(certificates: Certificates) -> None:
    async def body(serving: Serving) -> None:
        raise AssertionError("the listener was bound")

    with pytest.raises(TlsConfigError, match=r"ssl\.cipher\.suites"):
        run(replace(certificates.serving(), cipher_suites=("NO_SUCH_SUITE",)), body)


def test_only_the_configured_tls_protocols_are_accepted(certificates: Certificates) -> None:
    async def body(serving: Serving) -> None:
        with pytest.raises(DialFailed):
            await serving.dial(replace(certificates.dialling(), protocols=("TLSv1.2",)))
        await serving.dial(certificates.dialling())

    run(replace(certificates.serving(), protocols=("TLSv1.3",)), body)


def test_a_replaced_certificate_serves_new_connections(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    old, new = Certificates(first), Certificates(second)

    async def body(serving: Serving) -> None:
        near = await serving.dial(old.dialling())
        old.serve_as(new)
        later = await serving.dial(new.dialling())
        for connection in (near, later):
            connection.say(b"x")
            await connection.wait_heard(1)

    run(TlsSettings(certificate_path=old.server), body)


def test_a_distinguished_name_is_formatted_as_in_rfc_2253() -> None:
    subject = ((("countryName", "DE"),), (("organizationName", "A+B"),), (("commonName", "#one "),))
    assert distinguished_name({"subject": subject}) == r"CN=\#one\ ,O=A\+B,C=DE"
    assert distinguished_name({}) is None
    assert distinguished_name(None) is None


@pytest.mark.parametrize("der", [b"", b"0", b"\x30\x03\x02\x01\x05", b"\x30\x82\xff\xff", bytes(64)])
def test_a_certificate_in_an_unsupported_form_has_no_known_expiry(der: bytes) -> None:
    text = base64.b64encode(der).decode()
    assert math.isnan(expiry_s(f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"))
