"""Connections of a client to brokers: one per broker and purpose, with the versions that both sides know.

`Link` is a connected, negotiated ClientConnection; `Links` keeps one per broker and dials when there is none. A request
that gets no answer raises `Disconnected` or `TimedOut`; whether the broker acted on it is then unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import trio

from kraft.client.core.records import KafkaError
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
    """The connection ended before the answer; the request may have been carried out."""


class TimedOut(Exception):
    """No answer within the time-out; the request may have been carried out."""


class VersionMismatch(Exception):
    """Broker and client share no version of this API; the text names the API and both ranges."""


class Link:
    """A live connection with negotiated versions."""

    def __init__(self, connection: ClientConnection, ranges: dict[int, tuple[int, int]]) -> None:
        self._connection = connection
        self._ranges = ranges

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet."""
        return self._connection.in_flight

    @property
    def has_unsent(self) -> bool:
        """Whether some of what was sent has not left this process yet."""
        return not self.is_closed and bool(self._connection.output())

    def version(self, key: ApiKey) -> int:
        """The newest version of `key` that both sides know. VersionMismatch if there is none."""
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
        """Send an encoded body now; `on_reply` gets the answer's body for the time of the call, or None if the
        connection ended first. None: no answer is expected."""
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
        """Send an encoded body; gives what `read` makes of the answer's. Disconnected or TimedOut if none came,
        WireError if it does not parse."""
        answers: list[Answer | WireError | None] = []
        arrived = trio.Event()

        def on_reply(body: memoryview | None) -> None:
            arrived.set()
            try:
                answers.append(None if body is None else read(body))
            except WireError as error:
                answers.append(error)
                raise  # the driver ends the connection

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

    async def request(self, key: ApiKey, message: Any, *, timeout_ms: float) -> Any:
        """Send a message of the newest class and wait for the answer in its newest class. ValueError for one that
        holds a number too large for its field."""
        version = self.version(key)
        try:
            body = messages.encode_request(key, version, message)
        except struct.error as problem:
            raise ValueError(f"a number is too large for its field in {key.name}: {problem}") from problem
        return await self.request_encoded(
            key, version, [body], lambda answer: messages.decode_response(key, version, answer), timeout_ms=timeout_ms
        )

    def close(self) -> None:
        self._connection.close("the client does not need it any more")


async def _negotiate(connection: ClientConnection, timeout_ms: float) -> dict[int, tuple[int, int]]:
    """The ranges that the broker offers, by API key."""
    bootstrap = Link(connection, {ApiKey.API_VERSIONS: (0, API_VERSIONS_VERSION)})
    request = messages.build(
        messages.request_class(ApiKey.API_VERSIONS), client_software_name="pykraft", client_software_version="1"
    )
    answer = await bootstrap.request(ApiKey.API_VERSIONS, request, timeout_ms=timeout_ms)
    code = ErrorCode.of(int(answer.error_code))
    if code is not ErrorCode.NONE:
        raise KafkaError(code, "the broker refused ApiVersions")
    return {int(entry.api_key): (int(entry.min_version), int(entry.max_version)) for entry in answer.api_keys}


class Links:
    """One link per (broker, purpose), dialled on demand. Two tasks that want the same one share its dial."""

    def __init__(self, seam: Seam, *, client_id: str, tls: object | None = None) -> None:
        self._seam = seam
        self._client_id = client_id
        self._tls = tls
        self._links: dict[tuple[Address, str], Link] = {}
        self._dialling: dict[tuple[Address, str], trio.Event] = {}
        self.is_closed = False

    async def get(self, address: Address, purpose: str, *, timeout_ms: float = DIAL_TIMEOUT_MS) -> Link:
        """A live link. DialFailed, Disconnected or TimedOut if there cannot be one now."""
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
        """The link if it is up; never dials."""
        link = self._links.get((address, purpose))
        return None if link is None or link.is_closed else link

    def all_of(self, purpose: str) -> list[Link]:
        """The links of this purpose, to whatever broker."""
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
                link = Link(connection, await _negotiate(connection, timeout_ms))
                self._require_open()
            except BaseException:
                connection.close("the broker did not tell its versions")
                raise
            self._links[slot] = link
            return link
        finally:
            del self._dialling[slot]
            finished.set()

    def _require_open(self) -> None:
        if self.is_closed:
            raise Disconnected("the client is closed")

    def close(self) -> None:
        """End every link, and let there be no others."""
        self.is_closed = True
        for link in self._links.values():
            link.close()
        self._links.clear()


CONNECTION_FAILURES = (DialFailed, Disconnected, TimedOut)
