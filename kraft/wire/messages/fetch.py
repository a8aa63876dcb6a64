"""Codecs of Fetch requests, versions 4 to 18. Also exports the values of requests and responses.

From v12 on, a partition without tagged fields has a fixed size, so a whole array of them is one `iter_unpack`. The
usual request takes a shorter path (`fetch_usual`). The tests compare with kio.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

from kraft.seam import Buffer, WireError
from kraft.wire.messages.fetch_usual import decode_usual, encode_usual
from kraft.wire.messages.fetch_values import (
    BYTES_MAX,
    FIRST_FLEXIBLE,
    FIRST_VERSION_WITH_DIRECTORY_ID,
    FIRST_VERSION_WITH_HIGH_WATERMARK,
    FIRST_VERSION_WITH_LEADER_EPOCH,
    FIRST_VERSION_WITH_LOG_START,
    FIRST_VERSION_WITH_RACK,
    FIRST_VERSION_WITH_REPLICA_STATE,
    FIRST_VERSION_WITH_SESSION,
    FIRST_VERSION_WITH_TOPIC_ID,
    NO_HIGH_WATERMARK,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    FetchTopic,
    FetchTopicResult,
    ForgottenTopic,
    ReplicaTags,
)
from kraft.wire.messages.tagged import read_tagged, tagged
from kraft.wire.primitives import (
    array_count,
    compact_array_count,
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

__all__ = [
    "BYTES_MAX",
    "FIRST_FLEXIBLE",
    "FIRST_VERSION_WITH_DIRECTORY_ID",
    "FIRST_VERSION_WITH_HIGH_WATERMARK",
    "FIRST_VERSION_WITH_LEADER_EPOCH",
    "FIRST_VERSION_WITH_LOG_START",
    "FIRST_VERSION_WITH_RACK",
    "FIRST_VERSION_WITH_REPLICA_STATE",
    "FIRST_VERSION_WITH_SESSION",
    "FIRST_VERSION_WITH_TOPIC_ID",
    "NO_HIGH_WATERMARK",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchResult",
    "FetchTopic",
    "FetchTopicResult",
    "ForgottenTopic",
    "ReplicaTags",
    "decode_fetch_request",
    "decode_fetch_request_in_steps",
    "encode_fetch_request",
    "read_topic",
    "topic_bytes",
]

_INT32 = struct.Struct(">i")
_HEAD = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_REPLICA_STATE = struct.Struct(">iq")
_INT64 = struct.Struct(">q")
_PARTITION_V12 = struct.Struct(">iiqiqib")
_PARTITION_FIELDS_V12 = struct.Struct(">iiqiqi")
_TAG_DIRECTORY_ID = 0
_TAG_HIGH_WATERMARK = 1
_TAG_CLUSTER_ID = 0
_TAG_REPLICA_STATE = 1


T = TypeVar("T")
StepsTo = Generator[None, None, T]
"""Generator that does work in steps, one between two yields, and returns a T."""
STEP_ROWS = 512
"""Maximum partitions, or topics without partitions, parsed in one step."""


def decode_fetch_request(version: int, body: Buffer) -> FetchRequest:
    """Decode a request. Raises WireError if the body does not parse."""
    view = memoryview(body)
    if version >= FIRST_VERSION_WITH_REPLICA_STATE:
        usual = decode_usual(view)
        if usual is not None:
            return usual
    steps = decode_fetch_request_in_steps(version, view)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            request: FetchRequest = end.value
            return request


def decode_fetch_request_in_steps(version: int, body: Buffer) -> StepsTo[FetchRequest]:
    """Decode a request step by step, for a request that names very many partitions."""
    try:
        return (yield from _decode(version, memoryview(body)))
    except (struct.error, IndexError):
        raise WireError(f"Fetch version {version} ends too soon ({len(body)} bytes)") from None


def _decode(version: int, body: memoryview) -> StepsTo[FetchRequest]:
    is_flexible = version >= FIRST_FLEXIBLE
    replica_id, position = -1, 0
    if version < FIRST_VERSION_WITH_REPLICA_STATE:
        (replica_id,) = _INT32.unpack_from(body, 0)
        position = 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _HEAD.unpack_from(body, position)
    position += _HEAD.size
    session_id, session_epoch = 0, -1
    if version >= FIRST_VERSION_WITH_SESSION:
        session_id, session_epoch = _SESSION.unpack_from(body, position)
        position += _SESSION.size
    topics, position = yield from _decode_topics(version, body, position)
    forgotten: Sequence[ForgottenTopic] = ()
    if version >= FIRST_VERSION_WITH_SESSION:
        forgotten, position = yield from _decode_forgotten(version, body, position)
    rack_id: str | None = ""
    if version >= FIRST_VERSION_WITH_RACK:
        rack_id, position = (read_compact_string if is_flexible else read_string)(body, position)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        topics=topics,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        forgotten=forgotten,
        rack_id=rack_id or "",
        replica_id=replica_id,
    )
    if is_flexible:
        _decode_request_tags(version, body, position, request)
    return request


def _decode_request_tags(version: int, body: memoryview, position: int, request: FetchRequest) -> None:
    tags, _ = read_tagged(body, position)
    if _TAG_CLUSTER_ID in tags:
        request.cluster_id, _ = read_compact_string(tags[_TAG_CLUSTER_ID], 0)
    if version >= FIRST_VERSION_WITH_REPLICA_STATE and _TAG_REPLICA_STATE in tags:
        request.replica_id, request.replica_epoch = _REPLICA_STATE.unpack_from(tags[_TAG_REPLICA_STATE])


def _decode_topics(version: int, body: memoryview, position: int) -> StepsTo[tuple[list[FetchTopic], int]]:
    is_flexible = version >= FIRST_FLEXIBLE
    read_count = read_compact_array_count if is_flexible else read_array_count
    decode_partitions = _decode_partitions if is_flexible else _decode_plain_partitions
    count, position = read_count(body, position)
    topics: list[FetchTopic] = []
    rows = 0
    for _ in range(count):
        name, topic_id, position = read_topic(version, body, position)
        left, position = read_count(body, position)
        partitions: list[FetchPartition] = []
        rows += 1
        while left > 0:
            found, position = decode_partitions(version, body, position, min(left, STEP_ROWS))
            partitions += found
            left -= len(found)
            rows += len(found)
            if rows >= STEP_ROWS:
                rows = 0
                yield
        if rows >= STEP_ROWS:
            rows = 0
            yield
        if is_flexible:
            position = skip_tagged_fields(body, position, len(body))
        topics.append((name, topic_id, partitions))
    return topics, position


def read_topic(version: int, body: memoryview, position: int) -> tuple[str | None, UUID | None, int]:
    """Return (name, topic id, next position) in the form of this version of Fetch."""
    if version >= FIRST_VERSION_WITH_TOPIC_ID:
        (raw,) = struct.unpack_from("16s", body, position)
        return None, uuid_or_none(raw), position + 16
    name, position = (read_compact_string if version >= FIRST_FLEXIBLE else read_string)(body, position)
    if name is None:
        raise WireError("a topic name may not be null")
    return name, None, position


def _decode_partitions(version: int, body: memoryview, position: int, count: int) -> tuple[list[FetchPartition], int]:
    """Decode the next `count` partitions, and return them with the position after them."""
    end = position + count * _PARTITION_V12.size
    if end <= len(body):
        # the last byte of each is the number of its tagged fields: if one is not 0, the sizes are different
        partitions = list(map(FetchPartition._make, _PARTITION_V12.iter_unpack(body[position:end])))
        if not any(partition.tags for partition in partitions):
            return partitions, end
    partitions = []
    for _ in range(count):
        index, epoch, offset, last_epoch, log_start, max_bytes = _PARTITION_FIELDS_V12.unpack_from(body, position)
        tags, position = read_tagged(body, position + _PARTITION_FIELDS_V12.size)
        tags_of_replica = _replica_tags(version, tags)
        partitions.append(FetchPartition(index, epoch, offset, last_epoch, log_start, max_bytes, tags_of_replica))
    return partitions, position


def _replica_tags(version: int, tags: dict[int, memoryview]) -> ReplicaTags | int:
    directory_id, high_watermark = None, NO_HIGH_WATERMARK
    if version >= FIRST_VERSION_WITH_DIRECTORY_ID and _TAG_DIRECTORY_ID in tags:
        (raw,) = struct.unpack_from("16s", tags[_TAG_DIRECTORY_ID])
        directory_id = uuid_or_none(raw)
    if version >= FIRST_VERSION_WITH_HIGH_WATERMARK and _TAG_HIGH_WATERMARK in tags:
        (high_watermark,) = _INT64.unpack_from(tags[_TAG_HIGH_WATERMARK])
    if directory_id is None and high_watermark == NO_HIGH_WATERMARK:
        return 0
    return ReplicaTags(directory_id, high_watermark)


def _plain_partition(version: int) -> struct.Struct:
    """Return the struct of a partition: partition, [leader epoch], offset, [log start], max bytes."""
    epoch = "i" if version >= FIRST_VERSION_WITH_LEADER_EPOCH else ""
    log_start = "q" if version >= FIRST_VERSION_WITH_LOG_START else ""
    return struct.Struct(f">i{epoch}q{log_start}i")


_PLAIN_PARTITIONS = MappingProxyType({version: _plain_partition(version) for version in range(4, FIRST_FLEXIBLE)})


def _decode_plain_partitions(
    version: int, body: memoryview, position: int, count: int
) -> tuple[list[FetchPartition], int]:
    """Decode partitions of a version that is not flexible; otherwise as `_decode_partitions`."""
    form = _PLAIN_PARTITIONS[version]
    partitions = []
    for _ in range(count):
        fields = form.unpack_from(body, position)
        position += form.size
        if version >= FIRST_VERSION_WITH_LEADER_EPOCH:
            index, epoch, offset, log_start, max_bytes = fields
        elif version >= FIRST_VERSION_WITH_LOG_START:
            (index, offset, log_start, max_bytes), epoch = fields, -1
        else:
            (index, offset, max_bytes), epoch, log_start = fields, -1, -1
        partitions.append(FetchPartition(index, epoch, offset, -1, log_start, max_bytes))
    return partitions, position


def _decode_forgotten(version: int, body: memoryview, position: int) -> StepsTo[tuple[Sequence[ForgottenTopic], int]]:
    is_flexible = version >= FIRST_FLEXIBLE
    read_count = read_compact_array_count if is_flexible else read_array_count
    count, position = read_count(body, position)
    forgotten: list[ForgottenTopic] = []
    rows = 0
    for _ in range(count):
        if rows >= STEP_ROWS:
            rows = 0
            yield
        name, topic_id, position = read_topic(version, body, position)
        partition_count, position = read_count(body, position)
        partitions = struct.unpack_from(f">{max(partition_count, 0)}i", body, position)
        position += 4 * len(partitions)
        rows += 1 + len(partitions)
        if is_flexible:
            position = skip_tagged_fields(body, position, len(body))
        forgotten.append((name, topic_id, partitions))
    return tuple(forgotten), position


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """Encode the body of a request. Fields that the version lacks are left out."""
    if version >= FIRST_VERSION_WITH_REPLICA_STATE:
        usual = encode_usual(request)
        if usual is not None:
            return usual
    is_flexible = version >= FIRST_FLEXIBLE
    parts: list[bytes] = []
    if version < FIRST_VERSION_WITH_REPLICA_STATE:
        parts.append(_INT32.pack(request.replica_id))
    parts.append(_HEAD.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level))
    if version >= FIRST_VERSION_WITH_SESSION:
        parts.append(_SESSION.pack(request.session_id, request.session_epoch))
    count = compact_array_count if is_flexible else array_count
    parts.append(count(request.topics))
    for name, topic_id, partitions in request.topics:
        parts += topic_bytes(version, name, topic_id), count(partitions)
        parts += [_encode_partition(version, partition) for partition in partitions]
        if is_flexible:
            parts.append(b"\0")
    if version >= FIRST_VERSION_WITH_SESSION:
        parts.append(count(request.forgotten))
        for name, topic_id, numbers in request.forgotten:
            parts += topic_bytes(version, name, topic_id), count(numbers), struct.pack(f">{len(numbers)}i", *numbers)
            if is_flexible:
                parts.append(b"\0")
    if version >= FIRST_VERSION_WITH_RACK:
        parts.append((compact_string if is_flexible else string)(request.rack_id))
    if is_flexible:
        parts.append(_request_tags(version, request))
    return b"".join(parts)


def topic_bytes(version: int, name: str | None, topic_id: UUID | None) -> bytes:
    """Encode a topic in the form of this version of Fetch: its id from v13 on, else its name."""
    if version >= FIRST_VERSION_WITH_TOPIC_ID:
        return uuid_bytes(topic_id)
    return compact_string(name) if version >= FIRST_FLEXIBLE else string(name)


def _encode_partition(version: int, partition: FetchPartition) -> bytes:
    index, epoch, offset, last_epoch, log_start, max_bytes, tags = partition
    if version >= FIRST_FLEXIBLE:
        fixed = _PARTITION_FIELDS_V12.pack(index, epoch, offset, last_epoch, log_start, max_bytes)
        return fixed + (_partition_tags(version, tags) if isinstance(tags, ReplicaTags) else b"\0")
    form = _PLAIN_PARTITIONS[version]
    if version >= FIRST_VERSION_WITH_LEADER_EPOCH:
        return form.pack(index, epoch, offset, log_start, max_bytes)
    if version >= FIRST_VERSION_WITH_LOG_START:
        return form.pack(index, offset, log_start, max_bytes)
    return form.pack(index, offset, max_bytes)


def _partition_tags(version: int, tags: ReplicaTags) -> bytes:
    parts = []
    if version >= FIRST_VERSION_WITH_DIRECTORY_ID and tags.replica_directory_id is not None:
        parts.append(tagged(_TAG_DIRECTORY_ID, tags.replica_directory_id.bytes))
    if version >= FIRST_VERSION_WITH_HIGH_WATERMARK and tags.high_watermark != NO_HIGH_WATERMARK:
        parts.append(tagged(_TAG_HIGH_WATERMARK, _INT64.pack(tags.high_watermark)))
    return encode_unsigned(len(parts)) + b"".join(parts)


def _request_tags(version: int, request: FetchRequest) -> bytes:
    parts = []
    if request.cluster_id is not None:
        parts.append(tagged(_TAG_CLUSTER_ID, compact_string(request.cluster_id)))
    if version >= FIRST_VERSION_WITH_REPLICA_STATE and (request.replica_id, request.replica_epoch) != (-1, -1):
        state = _REPLICA_STATE.pack(request.replica_id, request.replica_epoch) + b"\0"
        parts.append(tagged(_TAG_REPLICA_STATE, state))
    return encode_unsigned(len(parts)) + b"".join(parts)
