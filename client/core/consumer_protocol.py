"""Encode and decode the subscriptions and assignments of a classic consumer group's members.

The format is big-endian, not flexible: a version, then the fields of that version. A reader ignores the fields that a
newer version adds. Subscription: version 0 has topics and user data, 1 adds owned partitions, 2 the generation, 3 the
rack. Assignment: version 0 has partitions and user data.
Source: ConsumerProtocolSubscription, ConsumerProtocolAssignment, Kafka's ConsumerProtocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kraft.client.core.records import TopicPartition
from kraft.seam import Buffer, WireError

PROTOCOL_TYPE = "consumer"
VERSION = 3

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's topics and owned partitions. `generation` is the generation in which the owned partitions were
    assigned; -1 if unknown."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The partitions assigned to a member."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    parts = [_INT16.pack(VERSION), _INT32.pack(len(subscription.topics))]
    parts += [_string(topic) for topic in subscription.topics]
    parts += [_bytes(subscription.user_data), encode_partitions(subscription.owned)]
    parts += [_INT32.pack(subscription.generation), _string(subscription.rack)]
    return b"".join(parts)


def decode_subscription(data: Buffer) -> Subscription:
    """Decode a subscription. Raise WireError if the bytes do not parse."""
    reader = _Reader(data)
    version = reader.int16()
    topics = tuple(reader.text() for _ in range(reader.count()))
    user_data = reader.blob()
    owned = reader.partitions() if version >= 1 else ()
    generation = reader.int32() if version >= 2 else -1
    rack = reader.string() if version >= 3 else None
    return Subscription(topics, user_data, owned, generation, rack)


def encode_assignment(assignment: MemberAssignment) -> bytes:
    return _INT16.pack(0) + encode_partitions(assignment.partitions) + _bytes(assignment.user_data)


def decode_assignment(data: Buffer) -> MemberAssignment:
    """Decode an assignment; empty bytes are an empty assignment. Raise WireError if the bytes do not parse."""
    if not len(data):
        return MemberAssignment()
    reader = _Reader(data)
    reader.int16()
    return MemberAssignment(reader.partitions(), reader.blob())


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode partitions as an array of topics, each with an array of partition numbers."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    parts = [_INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += _string(topic), _INT32.pack(len(numbers)), struct.pack(f">{len(numbers)}i", *numbers)
    return b"".join(parts)


def encode_sticky_data(owned: Sequence[TopicPartition], generation: int) -> bytes:
    """Encode the user data of the `sticky` assignor: the member's partitions, and the generation in which they were
    assigned."""
    return encode_partitions(owned) + _INT32.pack(generation)


def decode_sticky_data(data: Buffer) -> tuple[tuple[TopicPartition, ...], int]:
    """Decode (owned partitions, generation). The generation is -1 if the data is from an old member and has no
    generation."""
    reader = _Reader(data)
    owned = reader.partitions()
    return owned, reader.int32() if reader.has_more else -1


def _string(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    encoded = text.encode()
    return _INT16.pack(len(encoded)) + encoded


def _bytes(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data


class _Reader:
    """Reads fields one after the other. WireError if the bytes end too early."""

    def __init__(self, data: Buffer) -> None:
        self._data = bytes(data)
        self._at = 0

    @property
    def has_more(self) -> bool:
        return self._at < len(self._data)

    def int16(self) -> int:
        value: int = _INT16.unpack(self._take(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack(self._take(4))[0]
        return value

    def count(self) -> int:
        count = self.int32()
        if not 0 <= count <= len(self._data) - self._at:
            raise WireError(f"an array of {count} is announced at byte {self._at} of {len(self._data)}")
        return count

    def string(self) -> str | None:
        size = self.int16()
        try:
            return None if size < 0 else self._take(size).decode()
        except UnicodeDecodeError:
            raise WireError(f"the text before byte {self._at} is not UTF-8") from None

    def text(self) -> str:
        text = self.string()
        if text is None:
            raise WireError(f"a topic name before byte {self._at} is null")
        return text

    def blob(self) -> bytes | None:
        size = self.int32()
        return None if size < 0 else self._take(size)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self.count()):
            topic = self.text()
            found += [(topic, self.int32()) for _ in range(self.count())]
        return tuple(found)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise WireError(f"{size} bytes are announced at byte {self._at} of {len(self._data)}")
        piece = self._data[self._at : end]
        self._at = end
        return piece
