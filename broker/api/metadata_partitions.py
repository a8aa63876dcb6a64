"""The partitions of a Metadata answer, as bytes: of partitions in the same state only the number differs, so that the
rest of their bytes is made once per answer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from kraft.image import PartitionState, TopicImage
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.message_writer import EncodedStructs

_pack_number = struct.Struct(">i").pack
_NUMBER_AT, _NUMBER_END = 2, 6
"""Where a partition's number stands in its struct, in all versions: behind the error code."""


class PartitionsWriter:
    """Writes partitions in one version for one answer; `describe(number, state)` gives the struct of one."""

    def __init__(self, version: int, describe: Callable[[int, PartitionState], Any]) -> None:
        self._write = messages.struct_writer(ApiKey.METADATA, version, "topics", "partitions")
        self._version = version
        self._describe = describe
        self._known: dict[int, tuple[PartitionState, bytes, bytes]] = {}
        """A state's identity → that state, which so lives on, and the bytes before and behind the number."""
        self._written: dict[UUID, EncodedStructs] = {}

    def of(self, topic: TopicImage) -> EncodedStructs:
        """All partitions of a topic."""
        for _ in self.write(topic):
            pass
        return self._written.pop(topic.topic_id)

    def write(self, topic: TopicImage) -> Iterator[None]:
        """Write them in small pieces, with a yield behind each, so that `of` finds them; nothing if it does."""
        if topic.topic_id in self._written:
            return
        pieces: list[bytes] = []
        number = 0
        known = self._known
        for leaf in topic.leaves:
            parts: list[bytes] = []
            for state in leaf:
                found = known.get(id(state)) or self._learn(state)
                parts += found[1], _pack_number(number), found[2]
                number += 1
            pieces.append(b"".join(parts))
            yield
        self._written[topic.topic_id] = EncodedStructs(number, b"".join(pieces), self._version)

    def _learn(self, state: PartitionState) -> tuple[PartitionState, bytes, bytes]:
        parts: list[bytes] = []
        self._write(parts.append, self._describe(0, state))
        data = b"".join(parts)
        self._known[id(state)] = found = state, data[:_NUMBER_AT], data[_NUMBER_END:]
        return found
