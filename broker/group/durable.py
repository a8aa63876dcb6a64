"""The content of the log of one offsets partition: groups and committed offsets, as an immutable value with versions.

Invariants: a state is a function of the records applied to it, in order (G7). Clients get the newest version below the
high watermark (G6), so nothing uncommitted is ever read.
Source: docs/decisions/14-group-coordinator.md, Kafka's CoordinatorRuntime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from rpds import HashTrieMap

from kraft.broker.group.records import Entry, GroupKey, GroupValue, OffsetKey, OffsetValue

TopicPartition = tuple[str, int]
GroupOffsets: TypeAlias = "HashTrieMap[TopicPartition, OffsetValue]"
NO_OFFSETS: GroupOffsets = HashTrieMap()


class DurableState(NamedTuple):
    """All that the records say: group → its last stored generation; group → its committed offsets (never empty)."""

    groups: HashTrieMap[str, GroupValue]
    offsets: HashTrieMap[str, GroupOffsets]

    def with_entry(self, entry: Entry) -> DurableState:
        """The state after one more record."""
        key, value = entry
        if isinstance(key, GroupKey):
            if isinstance(value, GroupValue):
                return self._replace(groups=self.groups.insert(key.group, value))
            return self._replace(groups=self.groups.discard(key.group))
        known = self.offsets.get(key.group, NO_OFFSETS)
        if isinstance(value, OffsetValue):
            known = known.insert((key.topic, key.partition), value)
        else:
            known = known.discard((key.topic, key.partition))
            if not known:
                return self._replace(offsets=self.offsets.discard(key.group))
        return self._replace(offsets=self.offsets.insert(key.group, known))

    def with_entries(self, entries: Iterable[Entry]) -> DurableState:
        """The state after more records."""
        state = self
        for entry in entries:
            state = state.with_entry(entry)
        return state

    def offsets_of(self, group: str) -> GroupOffsets:
        return self.offsets.get(group, NO_OFFSETS)

    def offset(self, key: OffsetKey) -> OffsetValue | None:
        return self.offsets_of(key.group).get((key.topic, key.partition))


EMPTY_STATE = DurableState(HashTrieMap(), HashTrieMap())


class StateVersions:
    """The committed state, the newest one, and those between that wait for the high watermark."""

    __slots__ = ("_committed", "_waiting", "end_offset")

    def __init__(self, state: DurableState, end_offset: int) -> None:
        self._committed = state
        self._waiting: deque[tuple[int, DurableState]] = deque()
        self.end_offset = end_offset
        """Log offset that the newest state has reached."""

    @property
    def newest(self) -> DurableState:
        """With everything that was appended."""
        return self._waiting[-1][1] if self._waiting else self._committed

    @property
    def committed(self) -> DurableState:
        """With everything below the high watermark."""
        return self._committed

    def appended(self, state: DurableState, end_offset: int) -> None:
        """Records that end at `end_offset` stand in the log, and `state` is what they say."""
        self._waiting.append((end_offset, state))
        self.end_offset = end_offset

    def advance(self, high_watermark: int) -> None:
        """What ends at or below the high watermark is committed."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            self._committed = waiting.popleft()[1]
