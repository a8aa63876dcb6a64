"""The metadata and assignments of classic consumers, which the classic protocol carries as bytes.

The format is not flexible: a version, then fields. A reader of an older version ignores the fields that a newer one
adds at the end. An assignment is written in the version of the member's subscription, because the client reads both
with the same code.
Source: ConsumerProtocolSubscription, ConsumerProtocolAssignment, Kafka's ConsumerProtocol.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from kraft.seam import WireError
from kraft.wire.primitives import (
    array_count,
    byte_string,
    read_array_count,
    read_byte_string,
    read_string,
    string,
)

CONSUMER_PROTOCOL_TYPE = "consumer"
NEWEST_VERSION = 3
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

NamedPartitions = Mapping[str, frozenset[int]]
"""Topic name → partitions."""


class EmbeddedSubscription(NamedTuple):
    """What a classic consumer says when it joins. `owned` are the partitions that it keeps during the rebalance, and
    `generation` is the one in which it got them; -1 if it did not say."""

    version: int
    topics: tuple[str, ...]
    owned: NamedPartitions
    generation: int = -1
    rack: str | None = None


class EmbeddedAssignment(NamedTuple):
    """The partitions of a classic consumer. `user_data` is what the client's assignor adds for its own use."""

    partitions: NamedPartitions
    user_data: bytes = b""


NO_ASSIGNMENT = EmbeddedAssignment({})


def decode_subscription(metadata: bytes) -> EmbeddedSubscription:
    """Decode a subscription of any version. Raises WireError if the bytes do not parse."""
    try:
        return _decode_subscription(memoryview(metadata))
    except struct.error:
        raise WireError("a subscription of a classic consumer ends too soon") from None


def _decode_subscription(data: memoryview) -> EmbeddedSubscription:
    version = _version(data)
    count, position = read_array_count(data, _INT16.size)
    topics = []
    for _ in range(count):
        topic, position = read_string(data, position)
        topics.append(topic or "")
    _, position = read_byte_string(data, position)
    owned: NamedPartitions = {}
    generation, rack = -1, None
    if version >= 1:
        owned, position = _read_partitions(data, position)
    if version >= 2:
        (generation,) = _INT32.unpack_from(data, position)
        position += _INT32.size
    if version >= 3:
        rack, position = read_string(data, position)
    return EmbeddedSubscription(version, tuple(topics), owned, generation, rack)


def version_of(metadata: bytes) -> int:
    """Return the version of a subscription, in which the client expects its assignment. Bytes that are no subscription
    count as version 0."""
    return max(_INT16.unpack_from(metadata)[0], 0) if len(metadata) >= _INT16.size else 0


def decode_assignment(assignment: bytes) -> EmbeddedAssignment:
    """Decode an assignment of any version; no bytes are no partitions. Raises WireError if the bytes do not parse."""
    if not assignment:
        return NO_ASSIGNMENT
    data = memoryview(assignment)
    try:
        _version(data)
        partitions, position = _read_partitions(data, _INT16.size)
        user_data, _ = read_byte_string(data, position)
    except struct.error:
        raise WireError("an assignment of a classic consumer ends too soon") from None
    return EmbeddedAssignment(partitions, user_data or b"")


def encode_assignment(version: int, partitions: NamedPartitions) -> bytes:
    """Encode an assignment without user data."""
    rows = [
        string(topic)
        + array_count(partitions[topic])
        + struct.pack(f">{len(partitions[topic])}i", *sorted(partitions[topic]))
        for topic in sorted(partitions)
    ]
    written = min(max(version, 0), NEWEST_VERSION)
    return _INT16.pack(written) + array_count(rows) + b"".join(rows) + byte_string(b"")


def _version(data: memoryview) -> int:
    (version,) = _INT16.unpack_from(data)
    if version < 0:
        raise WireError(f"the protocol of classic consumers has no version {version}")
    return int(version)


def _read_partitions(data: memoryview, position: int) -> tuple[NamedPartitions, int]:
    found: dict[str, frozenset[int]] = {}
    count, position = read_array_count(data, position)
    for _ in range(count):
        topic, position = read_string(data, position)
        numbers, position = read_array_count(data, position)
        partitions = struct.unpack_from(f">{numbers}i", data, position)
        position += _INT32.size * numbers
        found[topic or ""] = found.get(topic or "", frozenset()).union(partitions)
    return {topic: partitions for topic, partitions in found.items() if partitions}, position
