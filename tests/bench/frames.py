"""Requests without a client library: complete Produce frames sent over plain sockets, so that only the broker is
measured.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from dataclasses import dataclass, field

from kraft.wire.api_keys import ApiKey
from kraft.wire.messages.produce import ProduceSuccess, decode_produce_response, encode_produce_request
from kraft.wire.records import Record, encode_batch

PRODUCE_VERSION = 10
CLIENT_ID = b"bench"
_SIZE = struct.Struct(">i")
_RESPONSE_HEADER_BYTES = 5
_AFTER_ERROR_CODE_BYTES = 3 * 8 + 2 + 1 + 1 + 4 + 1
"""Number of bytes after the error code in a Produce response. They are three offsets and times, no record errors, no
message, two sets of tags, throttle time, and tags."""
RECEIVE_BYTES = 1 << 18
SECONDS_MAX = 60.0
JOINED_FRAME_BYTES_MAX = 64 * 1024
"""Maximum size of frames that are joined for one send. Larger frames are sent one by one, because copying them would
cost more than it saves in system calls."""


class RequestRefused(Exception):
    """A broker answered a measured request with an error."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A complete request, a successful response to it, and the part of the response's body up to the error code. This
    part is the same in every successful response."""

    request: bytes
    answer: bytes
    accepted: bytes


def produce_frame(topic: str, payload: bytes, *, acks: int, partition: int = 0) -> Frame:
    """Return a produce request frame with one record of `payload` for one partition. Its correlation id is 0."""
    batch = encode_batch([Record(0, int(time.time() * 1000), None, payload, ())])
    body = b"".join(
        encode_produce_request(
            PRODUCE_VERSION, acks=acks, timeout_ms=30_000, topics=[(topic, None, [(partition, bytes(batch))])]
        )
    )
    header = struct.pack(">hhih", ApiKey.PRODUCE, PRODUCE_VERSION, 0, len(CLIENT_ID)) + CLIENT_ID + b"\0"
    answer = ProduceSuccess(PRODUCE_VERSION, topic, None, partition).body(0)
    accepted = answer[:-_AFTER_ERROR_CODE_BYTES]
    answer = bytes(_RESPONSE_HEADER_BYTES) + answer
    return Frame(_SIZE.pack(len(header) + len(body)) + header + body, _SIZE.pack(len(answer)) + answer, accepted)


@dataclass(slots=True)
class _Stream:
    """A connection: its received bytes that are not processed yet, and the time at which each unanswered request was
    sent."""

    socket: socket.socket
    unread: bytearray = field(default_factory=bytearray)
    sent_at: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pipelined:
    """Result of a run: requests a second, and for each request the seconds from sending to the response."""

    requests_per_second: float
    latencies: list[float]


def run(address: tuple[str, int], frame: Frame, *, connections: int, window: int, total: int) -> Pipelined:
    """Keep `window` copies of `frame` in flight on each connection, until `total` are answered or a minute is over.
    Raise RequestRefused if one of them is answered with an error."""
    selector = selectors.DefaultSelector()
    streams = []
    for _ in range(connections):
        stream = _Stream(socket.create_connection(address))
        stream.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(stream.socket, selectors.EVENT_READ, stream)
        streams.append(stream)
    try:
        return _drive(selector, streams, frame, window, total)
    finally:
        selector.close()
        for stream in streams:
            stream.socket.close()


def _drive(
    selector: selectors.BaseSelector, streams: list[_Stream], frame: Frame, window: int, total: int
) -> Pipelined:
    to_send, answered = total, 0
    latencies: list[float] = []
    start = time.monotonic()
    for stream in streams:
        to_send -= _send(stream, frame.request, min(window, to_send))
    while answered < total:
        if time.monotonic() - start > SECONDS_MAX:
            if not answered:
                raise TimeoutError(f"none of {total} requests was answered within {SECONDS_MAX} s")
            break
        for key, _ in selector.select(1.0):
            stream = key.data
            count = _receive(stream, frame.accepted, latencies)
            answered += count
            if len(stream.sent_at) <= window // 2 and to_send:
                to_send -= _send(stream, frame.request, min(window - len(stream.sent_at), to_send))
    return Pipelined(answered / (time.monotonic() - start), latencies)


def _send(stream: _Stream, frame: bytes, count: int) -> int:
    if count > 0:
        if len(frame) < JOINED_FRAME_BYTES_MAX:
            stream.socket.sendall(frame * count)
        else:
            for _ in range(count):
                stream.socket.sendall(frame)
        stream.sent_at.extend([time.monotonic()] * count)
    return count


def _receive(stream: _Stream, accepted: bytes, latencies: list[float]) -> int:
    """Read the bytes that have arrived. Return the number of complete responses."""
    data = stream.socket.recv(RECEIVE_BYTES)
    if not data:
        raise ConnectionError("the broker ended the connection")
    unread = stream.unread
    unread += data
    now, count, position = time.monotonic(), 0, 0
    while len(unread) - position >= _SIZE.size:
        end = position + _SIZE.size + _SIZE.unpack_from(unread, position)[0]
        if end > len(unread):
            break
        if not unread.startswith(accepted, position + _SIZE.size + _RESPONSE_HEADER_BYTES):
            raise RequestRefused(_why(bytes(unread[position + _SIZE.size + _RESPONSE_HEADER_BYTES : end])))
        position = end
        count += 1
    del unread[:position]
    latencies.extend([now - sent for sent in stream.sent_at[:count]])
    del stream.sent_at[:count]
    return count


def _why(body: bytes) -> str:
    rows = [result for _, _, results in decode_produce_response(PRODUCE_VERSION, body).topics for result in results]
    return ", ".join(f"partition {row.partition} answered error {row.error_code}" for row in rows)
