"""A cluster of brokers on real sockets whose responses the test chooses, to produce errors that a real cluster returns
only by chance.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kraft.seam import Address
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey, is_flexible
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchPartition, FetchRequest, FetchResult, decode_fetch_request
from kraft.wire.messages.fetch_response import encode_fetch_response
from kraft.wire.messages.tagged import NodeEndpoint
from kraft.wire.records import Record, encode_batch, read_header
from tests.client.spark.scripted_peers import RANGES, Conversation, scripted_peer

TOPIC = "t"
TOPIC_ID = UUID(int=0x1234)
OTHER_ID = UUID(int=0x5678)
EARLIEST, LATEST = -2, -1

OnFetch = Callable[[int, FetchPartition, FetchRequest], FetchResult]
"""Type: function from (node, fetched partition, request) to the result for that partition."""


def batch(*offsets: int, epoch: int = 0, **more: Any) -> bytes:
    """Return one batch with a record at each of these offsets: `key-N`, `value-N`, and the time N in ms."""
    records = [Record(0, offset, b"key-%d" % offset, b"value-%d" % offset) for offset in offsets]
    return bytes(encode_batch(records, base_offset=offsets[0], offsets=list(offsets), leader_epoch=epoch, **more))


@dataclass
class Brokers:
    """State of the scripted brokers, for a topic `t` with one partition. A test may change the fields at any time.

    `offsets`: results of ListOffsets per timestamp. `asked`: each received request, as (node, API). `fetched`: each
    fetch, as (node, offset)."""

    on_fetch: OnFetch = field(default=lambda node, part, request: FetchResult(part.partition))
    leader: int = 0
    leader_epoch: int = 0
    topic_id: UUID | None = TOPIC_ID
    topic_error: ErrorCode = ErrorCode.NONE
    offsets: dict[int, int] = field(default_factory=lambda: {EARLIEST: 0, LATEST: 0})
    offset_errors: list[ErrorCode] = field(default_factory=list)
    """Errors that the next ListOffsets responses return, one each, before responses return offsets."""
    append_time: bool = False
    endpoints: tuple[NodeEndpoint, ...] = ()
    addresses: list[Address] = field(default_factory=list)
    advertised: dict[int, Address] = field(default_factory=dict)
    asked: list[tuple[int, ApiKey]] = field(default_factory=list)
    fetched: list[tuple[int, int]] = field(default_factory=list)
    fetches: list[FetchRequest] = field(default_factory=list)
    hang_up: set[int] = field(default_factory=set)
    """Nodes that close the connection when they receive a request."""
    hung: set[int] = field(default_factory=set)
    """Nodes that accept connections but never respond."""
    versions: dict[ApiKey, tuple[int, int]] = field(default_factory=lambda: dict(RANGES))

    @property
    def bootstrap(self) -> tuple[Address, ...]:
        return tuple(self.addresses)

    def serve(self, node: int, conversation: Conversation) -> None:
        """Respond to requests until the client disconnects."""
        if node in self.hung:
            conversation.wait_closed()
            return
        conversation.negotiate(self.versions)
        while True:
            key, version, correlation_id, rest = conversation.read_request()
            self.asked.append((node, key))
            if node in self.hang_up:
                return
            body = rest[2 + int.from_bytes(rest[:2], "big") :]
            tags = b"\0" if is_flexible(key, version) else b""
            conversation.answer(correlation_id, tags + self._answer(node, key, version, body[len(tags) :]))

    def _answer(self, node: int, key: ApiKey, version: int, body: bytes) -> bytes:
        if key is ApiKey.FETCH:
            return self._fetch(node, version, body)
        fields = {
            ApiKey.METADATA: self._metadata,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.DESCRIBE_CONFIGS: self._configs,
        }[key](messages.decode_request(key, version, body))
        return messages.encode_response(key, version, messages.build(messages.response_class(key), **fields))

    def _fetch(self, node: int, version: int, body: bytes) -> bytes:
        request = decode_fetch_request(version, body)
        ((name, topic_id, (part,)),) = request.topics
        self.fetches.append(request)
        self.fetched.append((node, part.fetch_offset))
        result = self.on_fetch(node, part, request)
        pieces = encode_fetch_response(version, [(name, topic_id, [result])], node_endpoints=self.endpoints)
        return b"".join(bytes(piece) for piece in pieces)  # type: ignore[arg-type]

    def _metadata(self, request: Any) -> dict[str, Any]:
        brokers = [
            {"node_id": node, "host": address.host, "port": address.port}
            for node, address in enumerate(self.addresses)
            for address in [self.advertised.get(node, address)]
        ]
        partition = {"partition_index": 0, "leader_id": self.leader, "leader_epoch": self.leader_epoch}
        topic = {
            "name": TOPIC,
            "topic_id": self.topic_id,
            "error_code": self.topic_error,
            "partitions": () if self.topic_error else (partition,),
        }
        asks_for_topic = request.topics is None or len(request.topics) > 0
        return {"brokers": tuple(brokers), "cluster_id": "scripted", "topics": (topic,) if asks_for_topic else ()}

    def _list_offsets(self, request: Any) -> dict[str, Any]:
        target = int(request.topics[0].partitions[0].timestamp)
        error = self.offset_errors.pop(0) if self.offset_errors else ErrorCode.NONE
        part = {"partition_index": 0, "offset": self.offsets.get(target, -1), "error_code": error}
        return {"topics": ({"name": TOPIC, "partitions": (part,)},)}

    def _configs(self, request: Any) -> dict[str, Any]:
        value = "LogAppendTime" if self.append_time else "CreateTime"
        config = {"name": "message.timestamp.type", "value": value}
        result = {"resource_type": 2, "resource_name": TOPIC, "configs": (config,)}
        return {"results": (result,)}


@contextmanager
def scripted_brokers(brokers: Brokers, count: int = 1, *, tls: ssl.SSLContext | None = None) -> Iterator[Brokers]:
    """Run the scripted brokers as listeners; node N is at `addresses[N]`."""
    with ExitStack() as stack:
        for node in range(count):

            def script(conversation: Conversation, node: int = node) -> None:
                brokers.serve(node, conversation)

            brokers.addresses.append(stack.enter_context(scripted_peer(script, tls=tls)))
        yield brokers


def serve_log(*batches: bytes, high_watermark: int) -> OnFetch:
    """Return a function that answers each Fetch with the first of these batches that ends after the fetch offset."""

    def on_fetch(node: int, part: FetchPartition, request: FetchRequest) -> FetchResult:
        found = [one for one in batches if read_header(one).next_offset > part.fetch_offset]
        return FetchResult(
            part.partition,
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
            log_start_offset=0,
            records=tuple(found[:1]),
        )

    return on_fetch
