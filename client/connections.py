"""Connections of a client to brokers: one per broker and purpose, with the API versions that both sides support.

`Link` is a connected, negotiated ClientConnection. `Links` keeps one per broker and purpose and dials when there is
none. A request without a response raises `Disconnected` or `TimedOut`; the broker may or may not have carried it out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import trio

from kraft.client.core.records import KafkaError
from kraft.client.core.topology import FinalizedFeatures
from kraft.seam import Address, Buffer, DialFailed, Peer, Seam, WireError
from kraft.wire import messages
from kraft.wire.api_keys import CLIENT_APIS, ApiKey
from kraft.wire.client import ClientConnection
from kraft.wire.error_codes import ErrorCode

Answer = TypeVar("Answer")

API_VERSIONS_VERSION = 3
DIAL_TIMEOUT_MS = 10_000
BOOTSTRAP_LISTENER = "bootstrap"


class Disconnected(Exception):
    """The connection ended before the response; the request may have been carried out."""


class TimedOut(Exception):
    """No response within the timeout; the request may have been carried out."""


class VersionMismatch(Exception):
    """Broker and client support no common version of this API. The text names the API and both ranges."""


class Link:
    """A live connection with negotiated API versions."""

    def __init__(self, connection: ClientConnection, ranges: dict[int, tuple[int, int]]) -> None:
        self._connection = connection
        self._ranges = ranges

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed

    @property
    def in_flight(self) -> int:
        """Number of requests without a response yet."""
        return self._connection.in_flight

    @property
    def has_unsent(self) -> bool:
        """Whether the operating system has not accepted some bytes of earlier requests yet."""
        return not self.is_closed and bool(self._connection.output())

    def version(self, key: ApiKey) -> int:
        """Return the newest version of `key` that both sides support. Raise VersionMismatch if there is none."""
        ours = CLIENT_APIS[key]
        theirs = self._ranges.get(key)
        if theirs is None:
            raise VersionMismatch(f"the broker does not know {key.name}")
        newest = min(ours.max, theirs[1])
        if newest < max(ours.min, theirs[0]):
            raise VersionMismatch(
                f"{key.name}: this client knows {ours.min} to {ours.max}, the broker {theirs[0]} to {theirs[1]}"
            )
        return newest

    def send(
        self, key: ApiKey, version: int, chunks: Sequence[Buffer], on_reply: Callable[[memoryview | None], None] | None
    ) -> None:
        """Send an encoded body now. `on_reply` is called with the body of the response, which is valid only during the
        call. If the connection ends first, it is called with None. If `on_reply` is None, no response is expected."""
        self._connection.send(key, version, chunks, on_reply)

    async def request_encoded(
        self,
        key: ApiKey,
        version: int,
        chunks: Sequence[Buffer],
        read: Callable[[memoryview], Answer],
        *,
        timeout_ms: float,
    ) -> Answer:
        """Send an encoded body and return `read(response body)`. Raise Disconnected or TimedOut if there is no
        response, and WireError if the response does not parse."""
        answers: list[Answer | WireError | None] = []
        arrived = trio.Event()

        def on_reply(body: memoryview | None) -> None:
            arrived.set()
            try:
                answers.append(None if body is None else read(body))
            except WireError as error:
                answers.append(error)
                raise  # the driver then closes the connection

        self.send(key, version, chunks, on_reply)
        with trio.move_on_after(timeout_ms / 1000):
            await arrived.wait()
        if not answers:
            raise TimedOut(f"no answer to {key.name} within {timeout_ms:g} ms")
        answer = answers[0]
        if answer is None:
            raise Disconnected(f"the connection ended before the answer to {key.name}")
        if isinstance(answer, WireError):
            raise answer
        return answer

    async def request(
        self, key: ApiKey, message: Any, *, timeout_ms: float, version_min: int = 0, version_max: int | None = None
    ) -> Any:
        """Send a message of the newest class, in a version up to `version_max`, and return the response in its newest
        class. Raise ValueError for a message with a number too large for its field, and VersionMismatch if the broker
        does not support `version_min`."""
        version = self.version(key)
        if version < version_min:
            raise VersionMismatch(
                f"{key.name}: this request needs version {version_min}, the broker supports versions up to {version}"
            )
        if version_max is not None:
            version = min(version, version_max)
        try:
            body = messages.encode_request(key, version, message)
        except struct.error as problem:
            raise ValueError(f"a number is too large for its field in {key.name}: {problem}") from problem
        return await self.request_encoded(
            key, version, [body], lambda answer: messages.decode_response(key, version, answer), timeout_ms=timeout_ms
        )

    def close(self) -> None:
        self._connection.close("the client does not need it any more")


@dataclass(frozen=True, slots=True)
class Negotiated:
    """An ApiVersions response: the version ranges that the broker supports, by API key, and the finalized features."""

    ranges: dict[int, tuple[int, int]]
    features: FinalizedFeatures


async def _negotiate(connection: ClientConnection, timeout_ms: float) -> Negotiated:
    """Return the version ranges that the broker supports, by API key, and its finalized features."""
    bootstrap = Link(connection, {ApiKey.API_VERSIONS: (0, API_VERSIONS_VERSION)})
    request = messages.build(
        messages.request_class(ApiKey.API_VERSIONS), client_software_name="pykraft", client_software_version="1"
    )
    answer = await bootstrap.request(ApiKey.API_VERSIONS, request, timeout_ms=timeout_ms)
    code = ErrorCode.of(int(answer.error_code))
    if code is not ErrorCode.NONE:
        raise KafkaError(code, "the broker rejected ApiVersions")
    return Negotiated(
        {int(entry.api_key): (int(entry.min_version), int(entry.max_version)) for entry in answer.api_keys},
        FinalizedFeatures(
            {str(feature.name): int(feature.max_version_level) for feature in answer.finalized_features},
            int(answer.finalized_features_epoch),
        ),
    )


class Links:
    """The links of a client, one per broker and purpose, dialled on demand. Two tasks that need the same link share its
    dial."""

    def __init__(self, seam: Seam, *, client_id: str, tls: object | None = None) -> None:
        self._seam = seam
        self._client_id = client_id
        self._tls = tls
        self._links: dict[tuple[Address, str], Link] = {}
        self._dialling: dict[tuple[Address, str], trio.Event] = {}
        self._features = FinalizedFeatures()
        self.is_closed = False

    def finalized_level(self, feature: str) -> int:
        """Return the level of a feature in the newest metadata that a broker reported on connecting; 0 if it is off."""
        return self._features.levels.get(feature, 0)

    async def get(self, address: Address, purpose: str, *, timeout_ms: float = DIAL_TIMEOUT_MS) -> Link:
        """Return a live link, dialling if necessary. Raise DialFailed, Disconnected or TimedOut if that fails."""
        slot = (address, purpose)
        while True:
            self._require_open()
            link = self._links.get(slot)
            if link is not None and not link.is_closed:
                return link
            other = self._dialling.get(slot)
            if other is None:
                return await self._dial(slot, timeout_ms)
            await other.wait()

    def live(self, address: Address, purpose: str) -> Link | None:
        """Return the link if it is connected; None otherwise. Never dials."""
        link = self._links.get((address, purpose))
        return None if link is None or link.is_closed else link

    def all_of(self, purpose: str) -> list[Link]:
        """Return the links for this purpose to all brokers."""
        return [link for (_, used_for), link in self._links.items() if used_for == purpose]

    async def _dial(self, slot: tuple[Address, str], timeout_ms: float) -> Link:
        finished = self._dialling[slot] = trio.Event()
        try:
            peer = Peer(None, BOOTSTRAP_LISTENER, slot[0], self._tls)
            connection = await self._seam.network.dial(
                peer,
                lambda transport: ClientConnection(transport, client_id=self._client_id),
                timeout_ms=int(timeout_ms),
            )
            try:
                negotiated = await _negotiate(connection, timeout_ms)
                link = Link(connection, negotiated.ranges)
                self._require_open()
            except BaseException:
                connection.close("version negotiation failed")
                raise
            self._links[slot] = link
            self._features = self._features.newest(negotiated.features)
            return link
        finally:
            del self._dialling[slot]
            finished.set()

    def _require_open(self) -> None:
        if self.is_closed:
            raise Disconnected("the client is closed")

    def close(self) -> None:
        """Close every link, and refuse to create new ones."""
        self.is_closed = True
        for link in self._links.values():
            link.close()
        self._links.clear()


CONNECTION_FAILURES = (DialFailed, Disconnected, TimedOut)
