"""The state of one offsets partition: groups and committed offsets, as immutable values in several versions.

Invariants: a state depends only on the records applied to it, in their order (G7). Clients get the newest version below
the high watermark (G6), so they never read anything uncommitted.
Source: docs/decisions/14-group-coordinator.md, Kafka's CoordinatorRuntime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from rpds import HashTrieMap

from kraft.broker.group.records import GroupKey, GroupLogEntry, GroupValue, OffsetKey, OffsetValue

TopicPartition = tuple[str, int]
GroupOffsets: TypeAlias = "HashTrieMap[TopicPartition, OffsetValue]"
NO_OFFSETS: GroupOffsets = HashTrieMap()


class DurableState(NamedTuple):
    """The state computed from the records: group → its last stored generation; group → its committed offsets (never
    empty)."""

    groups: HashTrieMap[str, GroupValue]
    offsets: HashTrieMap[str, GroupOffsets]

    def with_entry(self, entry: GroupLogEntry) -> DurableState:
        """Return the state after one more record."""
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

    def with_entries(self, entries: Iterable[GroupLogEntry]) -> DurableState:
        """Return the state after more records."""
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
    """The committed state, the newest state, and the states between them, which wait for the high watermark."""

    __slots__ = ("_committed", "_waiting", "end_offset")

    def __init__(self, state: DurableState, end_offset: int) -> None:
        self._committed = state
        self._waiting: deque[tuple[int, DurableState]] = deque()
        self.end_offset = end_offset
        """The log offset up to which the newest state includes records."""

    @property
    def newest(self) -> DurableState:
        """The state with everything that was appended."""
        return self._waiting[-1][1] if self._waiting else self._committed

    @property
    def committed(self) -> DurableState:
        """The state with everything below the high watermark."""
        return self._committed

    def appended(self, state: DurableState, end_offset: int) -> None:
        """Add `state`, which results from records in the log up to `end_offset`."""
        self._waiting.append((end_offset, state))
        self.end_offset = end_offset

    def advance(self, high_watermark: int) -> None:
        """Commit the states that end at or below the high watermark."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            self._committed = waiting.popleft()[1]
