"""Produce, versions 3 to 13: hand-written codecs on raw buffers, for broker and client. The tests compare with kio.

A request is parsed in place: `records` are views into the receive buffer. They are writable if the buffer is, so the
leader patches the batch headers without a copy. Each version adds: 5 log start offset, 8 record errors, 9 flexible, 10
current leader and node endpoints (KIP-951), 13 topic ids instead of names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from kraft.seam import Buffer, WireError
from kraft.wire.messages.tagged import CurrentLeader, NodeEndpoint, current_leader_tag, node_endpoints_tag, read_tagged
from kraft.wire.messages.tagged import read_current_leader as _read_current_leader
from kraft.wire.messages.tagged import read_node_endpoints as _read_node_endpoints
from kraft.wire.primitives import (
    byte_string,
    compact_array_count,
    compact_byte_string,
    compact_string,
    read_array_count,
    read_compact_array_count,
    read_compact_string,
    read_string,
    string,
    uuid_bytes,
    uuid_or_none,
)
from kraft.wire.varints import encode_unsigned, skip_tagged_fields

FIRST_VERSION_WITH_LOG_START = 5
FIRST_VERSION_WITH_RECORD_ERRORS = 8
FIRST_FLEXIBLE = 9
FIRST_VERSION_WITH_LEADER = 10
FIRST_VERSION_WITH_TOPIC_ID = 13

_INT32 = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_SINGLE_NAME_HEAD = struct.Struct(">BhiBB")
_SINGLE_ID_HEAD = struct.Struct(">BhiB16s")
_SINGLE_PARTITION = struct.Struct(">BiBBB")
_SINGLE_TAIL = struct.Struct(">HB")
_TOPIC_ID = struct.Struct("16s")
_PARTITION_V3 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")

ProduceTopic = tuple[str | None, UUID | None, list[tuple[int, memoryview | None]]]
"""A topic of a request: (name, topic id, [(partition, records)]). The name is None from v13 on, the id is None before.
"""


class ProduceRequest:
    """A parsed request. `topics` holds views into the frame that it was parsed from."""

    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(self, transactional_id: str | None, acks: int, timeout_ms: int, topics: list[ProduceTopic]) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics


class ProduceResult(NamedTuple):
    """The result for one partition. Absent offsets and times are -1."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: CurrentLeader | None = None


ProduceTopicResult = tuple[str | None, UUID | None, Sequence[ProduceResult]]
"""Results for one topic: (name, topic id, results). Of name and id, the one that the version does not use is ignored.
"""


class ProduceResponse(NamedTuple):
    topics: Sequence[ProduceTopicResult]
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


# the request


def decode_produce_request(version: int, body: memoryview) -> ProduceRequest:
    """Parse a request in place. Raises WireError if the body does not parse."""
    try:
        if version < FIRST_FLEXIBLE:
            return _decode_plain(body)
        return _decode_single(version, body) or _decode_flexible(version, body)
    except (IndexError, struct.error):
        raise WireError(f"Produce version {version} ends too soon ({len(body)} bytes)") from None
    except UnicodeDecodeError:
        raise WireError(f"Produce version {version} has a topic name that is not UTF-8") from None


def _decode_single(version: int, body: memoryview) -> ProduceRequest | None:
    """Parse quickly the usual request: no transactional id, one topic, one partition, no tags. Return None for any
    other."""
    name: str | None = None
    topic_id: UUID | None = None
    try:
        if version >= FIRST_VERSION_WITH_TOPIC_ID:
            transactional_size, acks, timeout_ms, count, raw_id = _SINGLE_ID_HEAD.unpack_from(body)
            position = _SINGLE_ID_HEAD.size
            topic_id = uuid_or_none(raw_id)
        else:
            transactional_size, acks, timeout_ms, count, name_size = _SINGLE_NAME_HEAD.unpack_from(body)
            if transactional_size or count != 2 or not 0 < name_size < 128:
                return None
            position = _SINGLE_NAME_HEAD.size - 1 + name_size
            name = str(body[_SINGLE_NAME_HEAD.size : position], "utf-8")
        partition_count, index, size, second, third = _SINGLE_PARTITION.unpack_from(body, position)
        if transactional_size or count != 2 or partition_count != 2 or size < 128:
            return None
        # a varint of two or three bytes, as no batch is shorter
        position += _SINGLE_PARTITION.size
        if second < 128:
            size += (second << 7) - 129
            position -= 1
        elif third < 128:
            size += ((second + (third << 7) - 128) << 7) - 129
        else:
            return None
        end = position + size
        if end + _SINGLE_TAIL.size != len(body) or _SINGLE_TAIL.unpack_from(body, end) != (0, 0):
            return None
    except struct.error:
        return None
    return ProduceRequest(None, acks, timeout_ms, [(name, topic_id, [(index, body[position:end])])])


def _decode_flexible(version: int, body: memoryview) -> ProduceRequest:
    transactional_id, position = (None, 1) if body[0] == 0 else read_compact_string(body, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
    count, position = _count(body, position + _ACKS_TIMEOUT.size)
    topics: list[ProduceTopic] = []
    for _ in range(count):
        name: str | None = None
        topic_id: UUID | None = None
        if version >= FIRST_VERSION_WITH_TOPIC_ID:
            (raw_id,) = _TOPIC_ID.unpack_from(body, position)
            topic_id = uuid_or_none(raw_id)
            position += _TOPIC_ID.size
        else:
            size, position = _count(body, position)
            if size < 0:
                raise WireError("a topic name may not be null")
            name = str(body[position : position + size], "utf-8")
            position += size
        partition_count, position = _count(body, position)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            (index,) = _INT32.unpack_from(body, position)
            size, position = _count(body, position + 4)
            end = position + size
            partitions.append((index, body[position:end] if size >= 0 else None))
            # one zero byte is the usual case: no tagged fields
            position = max(end, position)
            position = skip_tagged_fields(body, position, len(body)) if body[position] else position + 1
        topics.append((name, topic_id, partitions))
        position = skip_tagged_fields(body, position, len(body)) if body[position] else position + 1
    skip_tagged_fields(body, position, len(body))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _count(body: memoryview, position: int) -> tuple[int, int]:
    """Read a compact length (-1 for null) and check it against the remaining bytes."""
    byte = body[position]
    position += 1
    if byte < 128:
        value = byte - 1
    else:
        value = byte & 127
        shift = 7
        while True:
            byte = body[position]
            position += 1
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 28:
                raise WireError(f"the length at byte {position} is too long")
        value -= 1
    if value > len(body) - position:
        raise WireError(f"{value} are announced at byte {position}, {len(body) - position} bytes are left")
    return value, position


def _decode_plain(body: memoryview) -> ProduceRequest:
    transactional_id, position = read_string(body, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, position)
    count, position = read_array_count(body, position + _ACKS_TIMEOUT.size)
    topics: list[ProduceTopic] = []
    for _ in range(count):
        name, position = read_string(body, position)
        if name is None:
            raise WireError("a topic name may not be null")
        partition_count, position = read_array_count(body, position)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(partition_count):
            (index,) = _INT32.unpack_from(body, position)
            size, position = read_array_count(body, position + 4)
            partitions.append((index, body[position : position + size] if size >= 0 else None))
            position += max(size, 0)
        topics.append((name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def encode_produce_request(
    version: int,
    *,
    acks: int,
    timeout_ms: int,
    topics: Sequence[tuple[str | None, UUID | None, Sequence[tuple[int, Buffer | None]]]],
    transactional_id: str | None = None,
) -> list[Buffer]:
    """Return the body in pieces; records are not copied."""
    is_flexible = version >= FIRST_FLEXIBLE
    count = compact_array_count if is_flexible else _array_count
    text = compact_string if is_flexible else string
    parts: list[bytes] = [text(transactional_id), _ACKS_TIMEOUT.pack(acks, timeout_ms), count(topics)]
    chunks: list[Buffer] = []
    for name, topic_id, partitions in topics:
        parts.append(uuid_bytes(topic_id) if version >= FIRST_VERSION_WITH_TOPIC_ID else text(name))
        parts.append(count(partitions))
        for index, records in partitions:
            parts.append(_INT32.pack(index))
            if records is None:
                parts.append(compact_byte_string(None) if is_flexible else byte_string(None))
            else:
                size = len(records)
                parts.append(encode_unsigned(size + 1) if is_flexible else _INT32.pack(size))
                chunks += b"".join(parts), records
                parts = []
            if is_flexible:
                parts.append(b"\0")
        if is_flexible:
            parts.append(b"\0")
    if is_flexible:
        parts.append(b"\0")
    chunks.append(b"".join(parts))
    return chunks


def _array_count(values: Sequence[object]) -> bytes:
    return _INT32.pack(len(values))


# the response


def encode_produce_response(
    version: int,
    topics: Sequence[ProduceTopicResult],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Encode the body of a response."""
    if version < FIRST_FLEXIBLE:
        return _encode_plain_response(version, topics, throttle_time_ms)
    parts = [encode_unsigned(len(topics) + 1)]
    for name, topic_id, results in topics:
        parts.append(uuid_bytes(topic_id) if version >= FIRST_VERSION_WITH_TOPIC_ID else compact_string(name))
        parts.append(encode_unsigned(len(results) + 1))
        for result in results:
            parts.append(_PARTITION_V5.pack(*result[:5]))
            if result.record_errors or result.error_message is not None:
                parts.append(encode_unsigned(len(result.record_errors) + 1))
                for index, message in result.record_errors:
                    parts += _INT32.pack(index), compact_string(message), b"\0"
                parts.append(compact_string(result.error_message))
            else:
                parts.append(b"\1\0")
            if result.current_leader is not None and version >= FIRST_VERSION_WITH_LEADER:
                parts += b"\1", current_leader_tag(0, result.current_leader)
            else:
                parts.append(b"\0")
        parts.append(b"\0")
    parts.append(_INT32.pack(throttle_time_ms))
    if node_endpoints and version >= FIRST_VERSION_WITH_LEADER:
        parts += b"\1", node_endpoints_tag(0, node_endpoints)
    else:
        parts.append(b"\0")
    return b"".join(parts)


def _encode_plain_response(version: int, topics: Iterable[ProduceTopicResult], throttle_time_ms: int) -> bytes:
    topics = tuple(topics)
    parts = [_INT32.pack(len(topics))]
    for name, _, results in topics:
        parts += string(name), _INT32.pack(len(results))
        for result in results:
            if version >= FIRST_VERSION_WITH_LOG_START:
                parts.append(_PARTITION_V5.pack(*result[:5]))
            else:
                parts.append(_PARTITION_V3.pack(*result[:4]))
            if version >= FIRST_VERSION_WITH_RECORD_ERRORS:
                parts.append(_INT32.pack(len(result.record_errors)))
                for index, message in result.record_errors:
                    parts += _INT32.pack(index), string(message)
                parts.append(string(result.error_message))
    parts.append(_INT32.pack(throttle_time_ms))
    return b"".join(parts)


class ProduceSuccess:
    """Responses to successful appends to one partition, encoded with one struct call.

    `body` returns the same bytes as `encode_produce_response` with one successful result and no throttle time. Keep one
    object per (version, partition)."""

    __slots__ = ("_has_log_start", "_pack", "_tail")

    def __init__(self, version: int, name: str | None, topic_id: UUID | None, partition: int) -> None:
        if version >= FIRST_VERSION_WITH_TOPIC_ID:
            head = b"\2" + uuid_bytes(topic_id) + b"\2"
        elif version >= FIRST_FLEXIBLE:
            head = b"\2" + compact_string(name) + b"\2"
        else:
            head = _INT32.pack(1) + string(name) + _INT32.pack(1)
        head += _INT32.pack(partition) + b"\0\0"
        self._has_log_start = version >= FIRST_VERSION_WITH_LOG_START
        tail = encode_produce_response(version, [(name, topic_id, [ProduceResult(partition)])])
        tail = tail[len(head) + (24 if self._has_log_start else 16) :]
        offsets = "qqq" if self._has_log_start else "qq"
        self._pack = partial(struct.Struct(f">{len(head)}s{offsets}{len(tail)}s").pack, head)
        self._tail = tail

    def body(self, base_offset: int, log_append_time_ms: int = -1, log_start_offset: int = -1) -> bytes:
        """Return the response's body. Offsets and the time are as in ProduceResult."""
        if self._has_log_start:
            return self._pack(base_offset, log_append_time_ms, log_start_offset, self._tail)
        return self._pack(base_offset, log_append_time_ms, self._tail)


def decode_produce_response(version: int, body: Buffer) -> ProduceResponse:
    """Parse a response. Raises WireError if it does not parse."""
    try:
        return _decode_response(version, memoryview(body))
    except struct.error:
        raise WireError(f"Produce response version {version} ends too soon ({len(body)} bytes)") from None


def _decode_response(version: int, body: memoryview) -> ProduceResponse:
    is_flexible = version >= FIRST_FLEXIBLE
    count = read_compact_array_count if is_flexible else read_array_count
    text = read_compact_string if is_flexible else read_string
    topic_count, position = count(body, 0)
    topics: list[ProduceTopicResult] = []
    for _ in range(topic_count):
        name: str | None = None
        topic_id: UUID | None = None
        if version >= FIRST_VERSION_WITH_TOPIC_ID:
            (raw_id,) = _TOPIC_ID.unpack_from(body, position)
            topic_id = uuid_or_none(raw_id)
            position += _TOPIC_ID.size
        else:
            name, position = text(body, position)
        result_count, position = count(body, position)
        results = []
        for _ in range(result_count):
            result, position = _decode_result(version, body, position)
            results.append(result)
        if is_flexible:
            position = skip_tagged_fields(body, position, len(body))
        topics.append((name, topic_id, results))
    (throttle_time_ms,) = _INT32.unpack_from(body, position)
    endpoints: Sequence[NodeEndpoint] = ()
    if is_flexible:
        tags, position = read_tagged(body, position + 4)
        endpoints = _read_node_endpoints(tags[0]) if 0 in tags else ()
    return ProduceResponse(topics, throttle_time_ms, endpoints)


def _decode_result(version: int, body: memoryview, position: int) -> tuple[ProduceResult, int]:
    is_flexible = version >= FIRST_FLEXIBLE
    form = _PARTITION_V5 if version >= FIRST_VERSION_WITH_LOG_START else _PARTITION_V3
    index, error_code, base_offset, append_time_ms, *rest = form.unpack_from(body, position)
    position += form.size
    log_start_offset = rest[0] if rest else -1
    errors: list[tuple[int, str | None]] = []
    message: str | None = None
    leader: CurrentLeader | None = None
    if version >= FIRST_VERSION_WITH_RECORD_ERRORS:
        text = read_compact_string if is_flexible else read_string
        count, position = (read_compact_array_count if is_flexible else read_array_count)(body, position)
        for _ in range(count):
            (batch_index,) = _INT32.unpack_from(body, position)
            error, position = text(body, position + 4)
            errors.append((batch_index, error))
            if is_flexible:
                position = skip_tagged_fields(body, position, len(body))
        message, position = text(body, position)
    if is_flexible:
        tags, position = read_tagged(body, position)
        leader = _read_current_leader(tags[0]) if 0 in tags else None
    result = ProduceResult(
        index, error_code, base_offset, append_time_ms, log_start_offset, tuple(errors), message, leader
    )
    return result, position
