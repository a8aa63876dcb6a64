"""The smallest broker that foreign clients accept: one node, one topic, one partition, one thread, with our own
connection core and codecs. It stores what was produced and serves it, or what a test appended.
"""

from __future__ import annotations

import selectors
import socket
import threading
from types import TracebackType
from uuid import UUID

from kraft.seam import CloseReason, FileRange
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import build, decode_request, encode_response, nested_class, response_class
from kraft.wire.messages.fetch import FetchResult, decode_fetch_request
from kraft.wire.messages.fetch_response import encode_fetch_response
from kraft.wire.messages.produce import ProduceResult, decode_produce_request, encode_produce_response
from kraft.wire.records import iter_headers, patch
from kraft.wire.rpc import InternalKey
from kraft.wire.server import ApiTable, Request, ServerConnection, ServerLimits

BROKER_TABLE = ApiTable(BROKER_APIS, (InternalKey.IDENTIFY,))
"""The requests that a broker serves on its inter-broker listener."""

TOPIC = "crossing"
TOPIC_ID = UUID("6f9c0d0e-94b0-4d4b-8f43-7a2c26e8a1b5")
SERVED = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.API_VERSIONS,
    ApiKey.INIT_PRODUCER_ID,
)


class _Socket:
    """A kraft.seam.Transport over a socket without TLS."""

    listener = "PLAINTEXT"
    peer_principal = None
    heard_ns = 0

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.peer_host = stream.getpeername()[0]
        self.is_closing = False
        self.waits_turn = False

    def wake(self) -> None: ...

    def wait_turn(self) -> None:
        self.waits_turn = True

    def close(self, reason: CloseReason = CloseReason.LOCAL, *, flush: bool = False) -> None:
        self.is_closing = True


class FakeBroker:
    """The broker; use it as a context manager. `batches`: the appended batches in order, each patched with its
    offset."""

    def __init__(self, *, shows_groups: bool = False) -> None:
        """`shows_groups`: advertise FindCoordinator, without which librdkafka assumes that the broker does not support
        LZ4."""
        self.shows_groups = shows_groups
        self.batches: list[bytes] = []
        self.next_offset = 0
        self.versions: set[tuple[ApiKey, int]] = set()
        self.closed_because: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._wakeup, self._stop = socket.socketpair()
        self._thread = threading.Thread(target=self._run)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> FakeBroker:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.close()
        self._thread.join()

    def append(self, batch: bytes | bytearray | memoryview) -> int:
        """Append a batch to the log and return its base offset."""
        data = bytearray(batch)
        base_offset = self.next_offset
        patch(data, 0, base_offset=base_offset, partition_leader_epoch=0)
        [(_, header)] = iter_headers(data)
        self.next_offset = header.next_offset
        self.batches.append(bytes(data))
        return base_offset

    # the loop

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, self._listener, self._wakeup:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wakeup, selectors.EVENT_READ)
            connections: dict[socket.socket, ServerConnection] = {}
            while self._turn(selector, connections):
                pass
            for stream in connections:
                stream.close()

    def _turn(self, selector: selectors.BaseSelector, connections: dict[socket.socket, ServerConnection]) -> bool:
        for key, _ in selector.select():
            stream = key.fileobj
            assert isinstance(stream, socket.socket)
            if stream is self._wakeup:
                return False
            if stream is self._listener:
                accepted, _ = stream.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[accepted] = ServerConnection(
                    _Socket(accepted), self._handle, limits=ServerLimits(), budget=None, table=BROKER_TABLE
                )
                selector.register(accepted, selectors.EVENT_READ)
            elif not self._serve(stream, connections[stream]):
                selector.unregister(stream)
                del connections[stream]
                stream.close()
        return True

    def _serve(self, stream: socket.socket, connection: ServerConnection) -> bool:
        try:
            count = stream.recv_into(connection.space())
        except ConnectionError:
            count = 0
        if count:
            connection.received(count)
            transport = connection.transport
            while isinstance(transport, _Socket) and transport.waits_turn:
                transport.waits_turn = False
                connection.take_turn()
        if not count or connection.is_closed:
            connection.closed(CloseReason.PEER)
            self.closed_because.append(connection.closed_because or "")
            return False
        data = b"".join(
            chunk.file.read(chunk.position, chunk.count) if isinstance(chunk, FileRange) else chunk
            for chunk in connection.output()
        )
        stream.sendall(data)
        connection.sent(len(data))
        return True

    # the requests

    def _handle(self, request: Request) -> None:
        key = ApiKey(request.api_key)
        self.versions.add((key, request.api_version))
        answers = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.PRODUCE: self._produce,
            ApiKey.FETCH: self._fetch,
        }
        answers[key](request)

    def _api_versions(self, request: Request) -> None:
        cls = response_class(request.api_key)
        api = nested_class(cls, "api_keys")
        rows = [BROKER_APIS[key] for key in SERVED]
        shown = [build(api, api_key=row.key, min_version=row.advertised_min, max_version=row.max) for row in rows]
        if self.shows_groups:
            shown.append(build(api, api_key=ApiKey.FIND_COORDINATOR, min_version=0, max_version=0))
        version = request.api_version
        error = ErrorCode.NONE
        if version not in BROKER_APIS[ApiKey.API_VERSIONS]:
            version, error = 0, ErrorCode.UNSUPPORTED_VERSION
        request.respond(encode_response(request.api_key, version, build(cls, api_keys=shown, error_code=error)))

    def _metadata(self, request: Request) -> None:
        cls = response_class(request.api_key)
        topic_class = nested_class(cls, "topics")
        partition = build(
            nested_class(topic_class, "partitions"),
            partition_index=0,
            leader_id=1,
            leader_epoch=0,
            replica_nodes=[1],
            isr_nodes=[1],
        )
        broker = build(nested_class(cls, "brokers"), node_id=1, host="127.0.0.1", port=self.port)
        topic = build(topic_class, name=TOPIC, topic_id=TOPIC_ID, partitions=[partition])
        message = build(cls, brokers=[broker], cluster_id="fake", controller_id=1, topics=[topic])
        request.respond(encode_response(request.api_key, request.api_version, message))

    def _list_offsets(self, request: Request) -> None:
        message = decode_request(request.api_key, request.api_version, request.body)
        cls = response_class(request.api_key)
        topic_class = nested_class(cls, "topics")
        timestamp = message.topics[0].partitions[0].timestamp
        offset = self.next_offset if timestamp == -1 else 0
        partition = build(
            nested_class(topic_class, "partitions"), partition_index=0, timestamp=-1, offset=offset, leader_epoch=0
        )
        answer = build(cls, topics=[build(topic_class, name=TOPIC, partitions=[partition])])
        request.respond(encode_response(request.api_key, request.api_version, answer))

    def _init_producer_id(self, request: Request) -> None:
        message = build(response_class(request.api_key), producer_id=4000, producer_epoch=0)
        request.respond(encode_response(request.api_key, request.api_version, message))

    def _produce(self, request: Request) -> None:
        message = decode_produce_request(request.api_version, request.body)
        topics = []
        for name, topic_id, partitions in message.topics:
            results = []
            for index, records in partitions:
                assert records is not None
                results.append(ProduceResult(index, 0, self.append(records), -1, 0))
            topics.append((name, topic_id, results))
        if message.acks == 0:
            request.respond_nothing()
        else:
            request.respond(encode_produce_response(request.api_version, topics))

    def _fetch(self, request: Request) -> None:
        message = decode_fetch_request(request.api_version, request.body)
        topics = []
        for name, topic_id, partitions in message.topics:
            results = []
            for partition in partitions:
                wanted = [b for b in self.batches if next(iter_headers(b))[1].next_offset > partition.fetch_offset]
                end = self.next_offset
                results.append(FetchResult(partition.partition, 0, end, end, 0, None, -1, wanted))
            topics.append((name, topic_id, results))
        request.respond(*encode_fetch_response(request.api_version, topics))
