"""Codecs of Fetch responses, versions 4 to 18. They are written as chunks, so that records are sent as file ranges, and
read in place.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kraft.seam import Buffer, Chunk, FileRange, WireError
from kraft.wire.messages.fetch import (
    FIRST_FLEXIBLE,
    FIRST_VERSION_WITH_LOG_START,
    FIRST_VERSION_WITH_RACK,
    FIRST_VERSION_WITH_SESSION,
    FetchResponse,
    FetchResult,
    FetchTopicResult,
    read_topic,
    topic_bytes,
)
from kraft.wire.messages.tagged import (
    NodeEndpoint,
    current_leader_tag,
    node_endpoints_tag,
    read_current_leader,
    read_node_endpoints,
    read_tagged,
    tagged,
)
from kraft.wire.primitives import read_array_count, read_compact_array_count
from kraft.wire.varints import encode_unsigned, read_unsigned, skip_tagged_fields

FIRST_VERSION_WITH_ENDPOINTS = 16

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_HEAD_V7 = struct.Struct(">ihi")
_PARTITION_V4 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_USUAL_V12 = struct.Struct(">ihqqqBi")
"""Struct of a usual partition result from v12 on: all fixed fields, null aborted transactions, preferred read replica.
"""
_EMPTY_V12 = struct.Struct(">ihqqqBiBB")
"""Struct like _USUAL_V12, followed by no records and no tags."""
_NO_BYTES = 1
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")
_SNAPSHOT_ID = struct.Struct(">qi")
_TAG_DIVERGING_EPOCH = 0
_TAG_CURRENT_LEADER = 1
_TAG_SNAPSHOT_ID = 2
_NO_TAGS = b"\0"


def encode_fetch_response(
    version: int,
    topics: Sequence[FetchTopicResult],
    *,
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Chunk]:
    """Return the body in pieces: bytes, and the file ranges and buffers of the results, unchanged."""
    if version >= FIRST_FLEXIBLE:
        return _encode_flexible(version, topics, throttle_time_ms, error_code, session_id, node_endpoints)
    out = _Chunks()
    if version >= FIRST_VERSION_WITH_SESSION:
        out.parts.append(_HEAD_V7.pack(throttle_time_ms, error_code, session_id))
    else:
        out.parts.append(_INT32.pack(throttle_time_ms))
    out.parts.append(_INT32.pack(len(topics)))
    for name, topic_id, results in topics:
        out.parts.append(topic_bytes(version, name, topic_id))
        out.parts.append(_INT32.pack(len(results)))
        for result in results:
            _encode_plain_result(out, version, result)
    return out.finish()


def _encode_flexible(
    version: int,
    topics: Sequence[FetchTopicResult],
    throttle_time_ms: int,
    error_code: int,
    session_id: int,
    node_endpoints: Sequence[NodeEndpoint],
) -> list[Chunk]:
    out = _Chunks()
    parts = out.parts
    parts += _HEAD_V7.pack(throttle_time_ms, error_code, session_id), encode_unsigned(len(topics) + 1)
    for name, topic_id, results in topics:
        parts += topic_bytes(version, name, topic_id), encode_unsigned(len(results) + 1)
        for result in results:
            index, error, high_watermark, stable, log_start, aborted, preferred, records, diverging, leader, other = (
                result
            )
            if aborted is None and diverging is None and leader is None and other is None and not records:
                parts.append(
                    _EMPTY_V12.pack(index, error, high_watermark, stable, log_start, 0, preferred, _NO_BYTES, 0)
                )
            else:
                _encode_flexible_result(out, result)
                parts = out.parts
        parts.append(_NO_TAGS)
    if node_endpoints and version >= FIRST_VERSION_WITH_ENDPOINTS:
        parts += b"\1", node_endpoints_tag(0, node_endpoints)
    else:
        parts.append(_NO_TAGS)
    return out.finish()


class _Chunks:
    """A list of chunks: small pieces are joined, up to the next chunk that must not be copied."""

    __slots__ = ("chunks", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.chunks: list[Chunk] = []

    def records(self, records: Sequence[Chunk]) -> None:
        self.chunks.append(b"".join(self.parts))
        self.parts = []
        self.chunks += records

    def finish(self) -> list[Chunk]:
        self.chunks.append(b"".join(self.parts))
        return self.chunks


def _size(records: Sequence[Chunk]) -> int:
    size = 0
    for chunk in records:
        size += chunk.count if isinstance(chunk, FileRange) else len(chunk)
    return size


def _encode_flexible_result(out: _Chunks, result: FetchResult) -> None:
    index, error, high_watermark, stable, log_start, aborted, preferred, records, diverging, leader, snapshot = result
    parts = out.parts
    if aborted is None:
        parts.append(_USUAL_V12.pack(index, error, high_watermark, stable, log_start, 0, preferred))
    else:
        parts.append(_PARTITION_V5.pack(index, error, high_watermark, stable, log_start))
        parts.append(encode_unsigned(len(aborted) + 1))
        parts += [_ABORTED.pack(*transaction) + _NO_TAGS for transaction in aborted]
        parts.append(_INT32.pack(preferred))
    if records:
        parts.append(encode_unsigned(_size(records) + 1))
        out.records(records)
    else:
        parts.append(b"\1")
    out.parts.append(_NO_TAGS if diverging is leader is snapshot is None else _result_tags(result))


def _result_tags(result: FetchResult) -> bytes:
    parts = []
    if result.diverging_epoch is not None:
        parts.append(tagged(_TAG_DIVERGING_EPOCH, _EPOCH_END.pack(*result.diverging_epoch) + _NO_TAGS))
    if result.current_leader is not None:
        parts.append(current_leader_tag(_TAG_CURRENT_LEADER, result.current_leader))
    if result.snapshot_id is not None:
        parts.append(tagged(_TAG_SNAPSHOT_ID, _SNAPSHOT_ID.pack(*result.snapshot_id) + _NO_TAGS))
    return encode_unsigned(len(parts)) + b"".join(parts)


def _encode_plain_result(out: _Chunks, version: int, result: FetchResult) -> None:
    parts = out.parts
    if version >= FIRST_VERSION_WITH_LOG_START:
        parts.append(_PARTITION_V5.pack(*result[:5]))
    else:
        parts.append(_PARTITION_V4.pack(*result[:4]))
    if result.aborted_transactions is None:
        parts.append(_INT32.pack(-1))
    else:
        parts.append(_INT32.pack(len(result.aborted_transactions)))
        parts += [_ABORTED.pack(*transaction) for transaction in result.aborted_transactions]
    if version >= FIRST_VERSION_WITH_RACK:
        parts.append(_INT32.pack(result.preferred_read_replica))
    parts.append(_INT32.pack(_size(result.records)))
    if result.records:
        out.records(result.records)


def decode_fetch_response(version: int, body: Buffer) -> FetchResponse:
    """Decode a response; the results' `records` are views into `body`. Raises WireError if it does not parse."""
    try:
        return _decode(version, memoryview(body))
    except struct.error:
        raise WireError(f"Fetch response version {version} ends too soon ({len(body)} bytes)") from None


def _decode(version: int, body: memoryview) -> FetchResponse:
    is_flexible = version >= FIRST_FLEXIBLE
    read_count = read_compact_array_count if is_flexible else read_array_count
    error_code = session_id = 0
    if version >= FIRST_VERSION_WITH_SESSION:
        throttle_time_ms, error_code, session_id = _HEAD_V7.unpack_from(body)
        position = _HEAD_V7.size
    else:
        (throttle_time_ms,) = _INT32.unpack_from(body)
        position = 4
    count, position = read_count(body, position)
    topics: list[FetchTopicResult] = []
    for _ in range(count):
        name, topic_id, position = read_topic(version, body, position)
        result_count, position = read_count(body, position)
        results = []
        for _ in range(result_count):
            usual = _decode_usual(body, position) if is_flexible else None
            result, position = usual or _decode_result(version, body, position)
            results.append(result)
        if is_flexible:
            position = skip_tagged_fields(body, position, len(body))
        topics.append((name, topic_id, results))
    endpoints: Sequence[NodeEndpoint] = ()
    if is_flexible:
        tags, position = read_tagged(body, position)
        endpoints = read_node_endpoints(tags[0]) if 0 in tags else ()
    return FetchResponse(topics, throttle_time_ms, error_code, session_id, endpoints)


def _decode_usual(body: memoryview, position: int) -> tuple[FetchResult, int] | None:
    """Decode quickly a partition of a flexible version without aborted transactions and tags. Return None for any
    other."""
    try:
        index, error_code, high_watermark, stable, log_start, aborted, preferred = _USUAL_V12.unpack_from(
            body, position
        )
        if aborted:
            return None
        size, position = read_unsigned(body, position + _USUAL_V12.size)
        end = position + size - 1
        if size == 0 or body[end]:
            return None
    except (struct.error, IndexError):
        return None
    records = (body[position:end],) if size > 1 else ()
    return FetchResult(index, error_code, high_watermark, stable, log_start, None, preferred, records), end + 1


def _decode_result(version: int, body: memoryview, position: int) -> tuple[FetchResult, int]:
    is_flexible = version >= FIRST_FLEXIBLE
    read_count = read_compact_array_count if is_flexible else read_array_count
    form = _PARTITION_V5 if version >= FIRST_VERSION_WITH_LOG_START else _PARTITION_V4
    index, error_code, high_watermark, stable, *rest = form.unpack_from(body, position)
    count, position = read_count(body, position + form.size)
    aborted: list[tuple[int, int]] | None = None if count < 0 else []
    for _ in range(count):
        producer_id, first_offset = _ABORTED.unpack_from(body, position)
        position += _ABORTED.size
        if is_flexible:
            position = skip_tagged_fields(body, position, len(body))
        if aborted is not None:
            aborted.append((producer_id, first_offset))
    preferred = -1
    if version >= FIRST_VERSION_WITH_RACK:
        (preferred,) = _INT32.unpack_from(body, position)
        position += 4
    # a byte string's length is bounded like an array's
    size, position = read_count(body, position)
    records: tuple[Chunk, ...] = (body[position : position + size],) if size > 0 else ()
    position += max(size, 0)
    tags: dict[int, memoryview] = {}
    if is_flexible:
        tags, position = read_tagged(body, position)
    result = FetchResult(
        index,
        error_code,
        high_watermark,
        stable,
        rest[0] if rest else -1,
        aborted,
        preferred,
        records,
        diverging_epoch=_EPOCH_END.unpack_from(tags[0]) if _TAG_DIVERGING_EPOCH in tags else None,
        current_leader=read_current_leader(tags[1]) if _TAG_CURRENT_LEADER in tags else None,
        snapshot_id=_SNAPSHOT_ID.unpack_from(tags[2]) if _TAG_SNAPSHOT_ID in tags else None,
    )
    return result, position
