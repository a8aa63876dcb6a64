"""A blocking connection that sends one request at a time, to measure metadata requests without a client library.

Kafka's own requests go to brokers or controllers, and internal requests to controllers. Every error code in a response
is raised as an exception.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable
from typing import Any

from kraft.wire import messages
from kraft.wire.api_keys import ApiKey, is_flexible, response_header_version
from kraft.wire.rpc import RpcMessage, decode_rpc_response, encode_rpc
from kraft.wire.rpc.controller_messages import ForwardRequest

CLIENT_ID = b"bench"
TIMEOUT_S = 120.0
Address = tuple[str, int]


class Refused(Exception):
    """Raised when a request was answered with an error."""


class Admin:
    """A connection to one node."""

    def __init__(self, address: Address, *, timeout_s: float = TIMEOUT_S) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def close(self) -> None:
        self._socket.close()

    def ask(self, key: ApiKey, **fields: Any) -> Any:
        """Send a request in the newest version, and return the response (newest class)."""
        version = messages.newest_version(key)
        request = messages.build(messages.request_class(key), **fields)
        body = self._exchange(key, version, messages.encode_request(key, version, request))
        return messages.decode_response(key, version, body)

    def ask_internal(self, message: RpcMessage) -> Any:
        """Send a request of our internal protocol, and return the response."""
        return decode_rpc_response(
            message.api_key,
            message.max_version,
            self._exchange(message.api_key, message.max_version, encode_rpc(message)),
        )

    def _exchange(self, key: int, version: int, body: bytes) -> bytes:
        self._correlation_id += 1
        tags = b"\0" if is_flexible(key, version) else b""
        header = struct.pack(">hhih", key, version, self._correlation_id, len(CLIENT_ID)) + CLIENT_ID + tags
        self._socket.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(size)
        return answer[5 if response_header_version(key, version) == 1 else 4 :]

    def _receive(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            piece = self._socket.recv(count - len(parts))
            if not piece:
                raise ConnectionError("the connection ended before the answer")
            parts += piece
        return bytes(parts)

    # measured requests

    def create_topics(self, names: Iterable[str], *, partitions: int, replication_factor: int) -> None:
        """Create all of these topics in one request. Raise Refused if any of them fails."""
        topic = messages.nested_class(messages.request_class(ApiKey.CREATE_TOPICS), "topics")
        topics = [
            messages.build(topic, name=name, num_partitions=partitions, replication_factor=replication_factor)
            for name in names
        ]
        answer = self.ask(ApiKey.CREATE_TOPICS, topics=topics, timeout=TIMEOUT_MS)
        _require_none((one.name, one.error_code, one.error_message) for one in answer.topics)

    def grow_topic(self, name: str, count: int) -> None:
        """Increase the number of partitions to `count` with CreatePartitions."""
        topic = messages.nested_class(messages.request_class(ApiKey.CREATE_PARTITIONS), "topics")
        wanted = [messages.build(topic, name=name, count=count, assignments=None)]
        answer = self.ask(ApiKey.CREATE_PARTITIONS, topics=wanted, timeout=TIMEOUT_MS)
        _require_none((one.name, one.error_code, one.error_message) for one in answer.results)

    def partitions(self, names: Iterable[str]) -> dict[str, list[Any]]:
        """Return the partitions of these topics, by topic, as a Metadata response reports them."""
        topic = messages.nested_class(messages.request_class(ApiKey.METADATA), "topics")
        topics = [messages.build(topic, name=name, topic_id=None) for name in names]
        answer = self.ask(ApiKey.METADATA, topics=topics, allow_auto_topic_creation=False)
        return {one.name: list(one.partitions) for one in answer.topics}

    def is_led(self, name: str, partitions: int) -> bool:
        """Return whether every partition of the topic has a leader, as this broker reports it."""
        found = self.partitions([name]).get(name, [])
        return len(found) == partitions and all(one.leader_id >= 0 for one in found)

    def decide_nothing(self) -> None:
        """Send the active controller a request with validate_only, which it decides without changing anything."""
        topic = messages.nested_class(messages.request_class(ApiKey.CREATE_TOPICS), "topics")
        request = messages.build(
            messages.request_class(ApiKey.CREATE_TOPICS),
            topics=[messages.build(topic, name="would-be", num_partitions=1, replication_factor=1)],
            timeout=TIMEOUT_MS,
            validate_only=True,
        )
        version = messages.newest_version(ApiKey.CREATE_TOPICS)
        body = messages.encode_request(ApiKey.CREATE_TOPICS, version, request)
        answer = self.ask_internal(
            ForwardRequest(forwarded_key=ApiKey.CREATE_TOPICS, forwarded_version=version, body=body)
        )
        if answer.error_code:
            raise Refused(f"the controller answers error {answer.error_code}")


TIMEOUT_MS = int(1000 * TIMEOUT_S)


def wait_until_led(addresses: Iterable[Address], name: str, partitions: int, *, limit_s: float = TIMEOUT_S) -> float:
    """Return the seconds until each of these brokers reports a leader for every partition of the topic."""
    began = time.monotonic()
    for address in addresses:
        admin = Admin(address)
        while not admin.is_led(name, partitions):
            if time.monotonic() - began > limit_s:
                raise TimeoutError(f"{name} is not led everywhere after {limit_s} s")
            time.sleep(0.001)
        admin.close()
    return time.monotonic() - began


def _require_none(results: Iterable[tuple[str, int, str | None]]) -> None:
    bad = [f"{name}: error {int(code)} {text or ''}" for name, code, text in results if code]
    if bad:
        raise Refused("; ".join(bad[:3]))
