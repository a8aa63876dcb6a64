"""The encoded partitions of a response that describes topics (Metadata, DescribeTopicPartitions). Partitions in the
same state differ only in their number, so their other bytes are encoded once per response.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from kraft.image import PartitionState, TopicImage
from kraft.image.partitions import LEAF_PARTITIONS_MAX
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.messages.compiled_writers import EncodedStructs

_pack_number = struct.Struct(">i").pack
PIECE_PARTITIONS = 8 * LEAF_PARTITIONS_MAX
"""Number of partitions per piece of encoded bytes; a piece has some tens of kilobytes."""
_NUMBER_AT, _NUMBER_END = 2, 6
"""Start and end position of the partition number in its encoded struct, after the error code; the same in all versions
of the two responses."""


Describe = Callable[[int, PartitionState], Any]
"""Function that builds the struct of a partition with this number and state."""


class PartitionsWriter:
    """Encodes partitions in one version for one response. The caller passes the function that describes a partition.
    The writer does not store this function: a reference cycle would keep alive all objects from which the response is
    built."""

    def __init__(self, key: ApiKey, version: int) -> None:
        self._write = messages.struct_writer(key, version, "topics", "partitions")
        self._version = version
        self._known: dict[int, tuple[PartitionState, bytes, bytes]] = {}
        """Identity of a state → (that state, the bytes before the partition number, the bytes after it). The stored
        reference keeps the state alive, so that its identity is not reused."""
        self._written: dict[UUID, EncodedStructs] = {}

    def of(self, topic: TopicImage, describe: Describe) -> EncodedStructs:
        """Return all partitions of a topic, encoded."""
        for _ in self.write(topic, describe):
            pass
        return self._written.pop(topic.topic_id)

    def some(self, topic: TopicImage, numbers: range, describe: Describe) -> EncodedStructs:
        """Return the given partitions of a topic, encoded."""
        parts: list[bytes] = []
        for number in numbers:
            state = topic.partition(number)
            found = self._known.get(id(state)) or self._learn(state, describe)
            parts += found[1], _pack_number(number), found[2]
        return EncodedStructs(len(numbers), (b"".join(parts),), self._version)

    def write(self, topic: TopicImage, describe: Describe) -> Iterator[None]:
        """Encode the topic's partitions in steps, so that `of` finds them encoded. Yield after each leaf of the topic's
        tree. Do nothing if they are encoded already. The pieces are sent separately, because joining megabytes takes
        longer than encoding them."""
        if topic.topic_id in self._written:
            return
        pieces: list[bytes] = []
        parts: list[bytes] = []
        number = 0
        known = self._known
        for leaf in topic.leaves:
            for state in leaf:
                found = known.get(id(state)) or self._learn(state, describe)
                parts += found[1], _pack_number(number), found[2]
                number += 1
            if not number % PIECE_PARTITIONS:
                pieces.append(b"".join(parts))
                parts = []
            yield
        pieces.append(b"".join(parts))
        self._written[topic.topic_id] = EncodedStructs(number, pieces, self._version)

    def _learn(self, state: PartitionState, describe: Describe) -> tuple[PartitionState, bytes, bytes]:
        parts: list[bytes] = []
        self._write(parts.append, describe(0, state))
        data = b"".join(parts)
        self._known[id(state)] = found = state, data[:_NUMBER_AT], data[_NUMBER_END:]
        return found
