"""Tests of the blocking connection, against peers on real sockets that respond in pieces, late, wrongly or not
at all."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trustme

from kraft.client.core.records import KafkaError
from kraft.client.spark.blocking.link import LinkClosed, LinkTimedOut, SyncLink, VersionMismatch, build_request
from kraft.client.spark.settings import ConnectionSettings, TlsFiles
from kraft.runtime.tls import TlsConfigError
from kraft.seam import Address, WireError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey, response_header_version
from kraft.wire.error_codes import ErrorCode
from tests.client.spark.scripted_peers import RANGES, Conversation, api_versions, frame, scripted_peer

TIMEOUT_MS = 10_000
NO_TAGS = b"\0"


def settings(address: Address, tls: TlsFiles | None = None) -> ConnectionSettings:
    return ConnectionSettings(bootstrap=(address,), client_id="test", request_timeout_ms=TIMEOUT_MS, tls=tls)


def link_to(address: Address, tls: TlsFiles | None = None, *, timeout_ms: float | None = None) -> SyncLink:
    return SyncLink(address, settings(address, tls), timeout_ms=timeout_ms)


def answer_metadata(conversation: Conversation, cluster_id: str) -> None:
    key, version, correlation_id, _ = conversation.read_request()
    assert key is ApiKey.METADATA
    conversation.answer(correlation_id, NO_TAGS + metadata_body(version, cluster_id))


def metadata_body(version: int, cluster_id: str) -> bytes:
    assert response_header_version(ApiKey.METADATA, version) == 1
    message = messages.build(messages.response_class(ApiKey.METADATA), cluster_id=cluster_id)
    return messages.encode_response(ApiKey.METADATA, version, message)


def ask_metadata(link: SyncLink) -> str:
    answer = link.request(ApiKey.METADATA, build_request(ApiKey.METADATA, topics=None), timeout_ms=TIMEOUT_MS)
    return str(answer.cluster_id)


def test_sync_link_request_returns_the_response_in_its_newest_class() -> None:
    def script(conversation: Conversation) -> None:
        conversation.negotiate()
        answer_metadata(conversation, "here")

    with scripted_peer(script) as address, link_to(address) as link:
        assert ask_metadata(link) == "here"
        assert link.in_flight == 0


def test_sync_link_sends_the_newest_version_that_both_sides_know() -> None:
    def script(conversation: Conversation) -> None:
        conversation.negotiate({**RANGES, ApiKey.METADATA: (0, 9)})
        key, version, correlation_id, header = conversation.read_request()
        assert (key, version) == (ApiKey.METADATA, 9)
        assert header.startswith(b"\0\4test\0")  # client id, no tagged fields
        conversation.answer(correlation_id, NO_TAGS + metadata_body(9, "old"))

    with scripted_peer(script) as address, link_to(address) as link:
        assert link.version(ApiKey.METADATA) == 9
        assert ask_metadata(link) == "old"


def test_sync_link_without_a_common_version_raises_version_mismatch_with_both_ranges() -> None:
    def script(conversation: Conversation) -> None:
        conversation.negotiate({ApiKey.METADATA: (100, 101)})

    with scripted_peer(script) as address, link_to(address) as link:
        with pytest.raises(VersionMismatch, match=rf"{address} does not know LIST_OFFSETS"):
            link.version(ApiKey.LIST_OFFSETS)
        with pytest.raises(VersionMismatch, match=rf"METADATA: .* the broker at {address} 100 to 101"):
            link.version(ApiKey.METADATA)


def test_sync_link_reassembles_a_response_that_arrives_byte_by_byte() -> None:
    def script(conversation: Conversation) -> None:
        conversation.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        conversation.negotiate()
        _, version, correlation_id, _ = conversation.read_request()
        for byte in frame(correlation_id, NO_TAGS + metadata_body(version, "in pieces")):
            conversation.send(bytes((byte,)))

    with scripted_peer(script) as address, link_to(address) as link:
        assert ask_metadata(link) == "in pieces"


def test_sync_link_matches_two_responses_that_arrive_in_one_segment_to_their_requests() -> None:
    def script(conversation: Conversation) -> None:
        conversation.negotiate()
        first, second = conversation.read_request(), conversation.read_request()
        conversation.send(frame(first[2], b"\0first") + frame(second[2], b"\0second"))

    with scripted_peer(script) as address, link_to(address) as link:
        version = link.version(ApiKey.FETCH)
        first = link.send(ApiKey.FETCH, version, [b"a"], timeout_ms=TIMEOUT_MS)
        second = link.send(ApiKey.FETCH, version, [b"b"], timeout_ms=TIMEOUT_MS)
        assert link.in_flight == 2
        assert bytes(link.receive(second)) == b"second"
        assert bytes(link.receive(first)) == b"first"


def test_sync_link_response_buffer_is_unchanged_by_later_responses() -> None:
    large = bytes(range(256)) * 40_000

    def script(conversation: Conversation) -> None:
        conversation.negotiate()
        for body in (large, b"later"):
            conversation.answer(conversation.read_request()[2], NO_TAGS + body)

    with scripted_peer(script) as address, link_to(address) as link:
        version = link.version(ApiKey.FETCH)
        kept = link.receive(link.send(ApiKey.FETCH, version, [], timeout_ms=TIMEOUT_MS))
        later = link.receive(link.send(ApiKey.FETCH, version, [], timeout_ms=TIMEOUT_MS))
        assert (bytes(kept), bytes(later)) == (large, b"later")
        assert kept.readonly


def test_sync_link_sends_all_bytes_of_a_large_request_in_several_pieces() -> None:
    pieces = [b"head", b"\1" * 500_000, b"between", b"\2" * 500_000]
    heard: list[bytes] = []

    def script(conversation: Conversation) -> None:
        conversation.negotiate()
        _, _, correlation_id, body = conversation.read_request()
        heard.append(body)
        conversation.answer(correlation_id, NO_TAGS)

    with scripted_peer(script) as address, link_to(address) as link:
        ticket = link.send(ApiKey.PRODUCE, link.version(ApiKey.PRODUCE), pieces, timeout_ms=TIMEOUT_MS)
        link.receive(ticket)
    assert heard == [b"\0\4test\0" + b"".join(pieces)]


def test_sync_link_receive_of_the_same_response_twice_is_an_error() -> None:
    def script(conversation: Conversation) -> None:
        conversation.negotiate()
        conversation.answer(conversation.read_request()[2], NO_TAGS)
        conversation.wait_closed()

    with scripted_peer(script) as address, link_to(address) as link:
        ticket = link.send(ApiKey.FETCH, link.version(ApiKey.FETCH), [], timeout_ms=TIMEOUT_MS)
        link.receive(ticket)
        with pytest.raises(ValueError, match="FETCH has been received already"):
            link.receive(ticket)


# failures


def test_sync_link_error_for_a_refused_connection_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])
    with pytest.raises(LinkClosed, match=rf"no connection to {address} \(Connection refused\)") as caught:
        link_to(address)
    assert caught.value.address == address
    assert isinstance(caught.value, OSError)


def test_sync_link_error_for_an_unresolvable_host_names_the_host() -> None:
    with pytest.raises(LinkClosed, match=r"no connection to no-such-host\.invalid:9092"):
        link_to(Address("no-such-host.invalid", 9092))


def test_sync_link_timeout_error_for_a_peer_that_never_answers_names_the_request() -> None:
    with (
        scripted_peer(lambda conversation: conversation.wait_closed()) as address,
        pytest.raises(LinkTimedOut, match=rf"{address} did not answer API_VERSIONS within"),
    ):
        link_to(address, timeout_ms=50)


def test_sync_link_times_out_on_an_incomplete_response() -> None:
    def script(conversation: Conversation) -> None:
        conversation.negotiate()
        conversation.send(frame(conversation.read_request()[2], b"\0" * 100)[:50])
        conversation.wait_closed()

    with scripted_peer(script) as address, link_to(address) as link:
        ticket = link.send(ApiKey.FETCH, link.version(ApiKey.FETCH), [], timeout_ms=50)
        with pytest.raises(LinkTimedOut, match=rf"{address} did not answer FETCH within 50 ms"):
            link.receive(ticket)
        assert link.is_closed


def test_sync_link_receives_a_response_that_arrived_while_the_caller_was_busy() -> None:
    is_sent = threading.Event()

    def script(conversation: Conversation) -> None:
        conversation.negotiate()
        conversation.answer(conversation.read_request()[2], NO_TAGS + b"early")
        is_sent.set()
        conversation.wait_closed()

    with scripted_peer(script) as address, link_to(address) as link:
        ticket = link.send(ApiKey.FETCH, link.version(ApiKey.FETCH), [], timeout_ms=100)
        assert is_sent.wait(10)
        threading.Event().wait(0.12)  # longer than the timeout of the request, which this test requires
        assert bytes(link.receive(ticket)) == b"early"


@pytest.mark.parametrize("sent", [b"", b"\0\0\0\x09\0\0"])
def test_sync_link_closed_by_the_peer_fails_all_pending_requests(sent: bytes) -> None:
    def script(conversation: Conversation) -> None:
        conversation.negotiate()
        conversation.read_request()
        conversation.read_request()
        conversation.send(sent)

    with scripted_peer(script) as address, link_to(address) as link:
        tickets = [link.send(ApiKey.FETCH, link.version(ApiKey.FETCH), [], timeout_ms=TIMEOUT_MS) for _ in range(2)]
        with pytest.raises(LinkClosed, match=rf"the connection to {address} ended before the answer to FETCH"):
            link.receive(tickets[0])
        assert link.is_closed
        with pytest.raises(LinkClosed, match=rf"{address}, asked for FETCH: the connection is over"):
            link.receive(tickets[1])
        with pytest.raises(LinkClosed, match=rf"{address}, asked for METADATA: the connection is over"):
            ask_metadata(link)


def test_sync_link_response_with_a_wrong_correlation_id_closes_the_connection() -> None:
    def script(conversation: Conversation) -> None:
        conversation.negotiate()
        conversation.answer(conversation.read_request()[2] + 1, NO_TAGS)
        conversation.wait_closed()

    with scripted_peer(script) as address, link_to(address) as link:
        ticket = link.send(ApiKey.FETCH, link.version(ApiKey.FETCH), [], timeout_ms=TIMEOUT_MS)
        with pytest.raises(WireError, match=rf"{address}, asked for FETCH: an answer to request 2 came, expected .* 1"):
            link.receive(ticket)
        assert link.is_closed


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP answer came on a Kafka connection"),
        (b"\x15\x03\x03\0\2\2\x46\0\0\0\0", "a TLS alert came on a connection without TLS"),
        (b"SSH-2.0-OpenSSH", "an SSH client came to a Kafka port"),
        (b"\xff\xff\xff\xff\0\0\0\0", "a frame announces -1 bytes"),
        (b"\0\0\0\3\0\0\0\0", "a frame announces 3 bytes"),
    ],
)
def test_sync_link_error_for_bytes_of_another_protocol_names_that_protocol(sent: bytes, text: str) -> None:
    def script(conversation: Conversation) -> None:
        conversation.read_request()
        conversation.send(sent)
        conversation.wait_closed()

    with (
        scripted_peer(script) as address,
        pytest.raises(WireError, match=rf"{address}, asked for API_VERSIONS: {text}"),
    ):
        link_to(address)


def test_sync_link_error_for_an_unparsable_response_names_the_broker_address() -> None:
    def script(conversation: Conversation) -> None:
        conversation.negotiate()
        conversation.answer(conversation.read_request()[2], NO_TAGS + b"\0\0")
        conversation.wait_closed()

    with scripted_peer(script) as address, link_to(address) as link:
        with pytest.raises(WireError, match=rf"the answer of {address}: METADATA version"):
            ask_metadata(link)
        assert link.is_closed


def test_sync_link_raises_kafka_error_if_the_broker_rejects_api_versions() -> None:
    def script(conversation: Conversation) -> None:
        _, version, correlation_id, _ = conversation.read_request()
        conversation.answer(correlation_id, api_versions(version, {}, int(ErrorCode.UNSUPPORTED_VERSION)))
        conversation.wait_closed()

    with scripted_peer(script) as address, pytest.raises(KafkaError, match=rf"the broker at {address} rejected"):
        link_to(address)


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA, name: str, *, asks_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    if asks_client:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    return context


def trusting(authority: trustme.CA, **more: object) -> TlsFiles:
    return TlsFiles(truststore_certificates=authority.cert_pem.bytes().decode(), **more)  # type: ignore[arg-type]


def hello(conversation: Conversation) -> None:
    conversation.negotiate()
    answer_metadata(conversation, "secret")


def test_sync_link_receives_a_response_over_tls(authority: trustme.CA) -> None:
    with (
        scripted_peer(hello, tls=server_context(authority, "127.0.0.1")) as address,
        link_to(address, trusting(authority)) as link,
    ):
        assert ask_metadata(link) == "secret"


def test_sync_link_presents_its_client_certificate_to_a_server_that_requires_one(
    authority: trustme.CA, tmp_path: Path
) -> None:
    store, trusted = tmp_path / "client.pem", tmp_path / "ca.pem"
    authority.issue_cert("client@example.org").private_key_and_cert_chain_pem.write_to_path(store)
    authority.cert_pem.write_to_path(trusted)
    files = TlsFiles(keystore_location=str(store), truststore_location=str(trusted))
    with (
        scripted_peer(hello, tls=server_context(authority, "127.0.0.1", asks_client=True)) as address,
        link_to(address, files) as link,
    ):
        assert ask_metadata(link) == "secret"


def test_sync_link_rejects_a_certificate_of_an_unknown_authority(authority: trustme.CA) -> None:
    with (
        scripted_peer(hello, tls=server_context(authority, "127.0.0.1")) as address,
        pytest.raises(LinkClosed, match=rf"TLS handshake with {address} failed"),
    ):
        link_to(address, trusting(trustme.CA()))


def test_sync_link_rejects_a_certificate_for_another_host_unless_host_names_are_not_checked(
    authority: trustme.CA,
) -> None:
    context = server_context(authority, "elsewhere.example.org")
    with scripted_peer(hello, tls=context) as address:
        with pytest.raises(LinkClosed, match=rf"TLS handshake with {address} failed"):
            link_to(address, trusting(authority))
        with link_to(address, trusting(authority, verify_hostname=False)) as link:
            assert ask_metadata(link) == "secret"


def test_sync_link_with_tls_to_a_plaintext_port_reports_a_failed_handshake(authority: trustme.CA) -> None:
    def script(conversation: Conversation) -> None:
        conversation.connection.recv(1)
        conversation.send(b"\0\0\0\4no TLS here")
        conversation.wait_closed()

    with scripted_peer(script) as address, pytest.raises(LinkClosed, match=rf"TLS handshake with {address} failed"):
        link_to(address, trusting(authority))


def test_sync_link_error_for_a_java_key_store_explains_how_to_convert_it(tmp_path: Path) -> None:
    store = tmp_path / "client.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(16))
    with (
        scripted_peer(hello) as address,
        pytest.raises(TlsConfigError, match="JKS store: convert it with `keytool"),
    ):
        link_to(address, TlsFiles(keystore_location=str(store)))


# imports


def test_importing_sync_link_loads_neither_trio_nor_pandas() -> None:
    def script(conversation: Conversation) -> None:
        conversation.negotiate()
        answer_metadata(conversation, "light")

    with scripted_peer(script) as address:
        code = (
            "import sys\n"
            "from kraft.client.spark.settings import ConnectionSettings\n"
            "from kraft.client.spark.blocking.cluster import SyncCluster\n"
            "from kraft.seam import Address\n"
            f"here = Address('127.0.0.1', {address.port})\n"
            "with SyncCluster(ConnectionSettings(bootstrap=(here,))) as cluster:\n"
            "    cluster.refresh(None)\n"
            "    print(cluster.cluster_id, sorted({'trio', 'pandas', 'hypothesis', 'pyspark'} & set(sys.modules)))\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("light []\n", "")
