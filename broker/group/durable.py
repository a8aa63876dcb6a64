"""The state of one offsets partition: groups, committed and staged offsets, as immutable values in several versions.

Invariants: a state depends only on the records applied to it, in their order (G7). Clients get the newest version below
the high watermark (G6), so they never read anything uncommitted.
Source: docs/decisions/14-group-coordinator.md, Kafka's CoordinatorRuntime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from rpds import HashTrieMap

from kraft.broker.consumer_group.records import ConsumerLogEntry
from kraft.broker.consumer_group.state import EMPTY_GROUP, ConsumerGroup
from kraft.broker.group.records import GroupKey, GroupLogEntry, GroupValue, OffsetKey, OffsetValue
from kraft.broker.group.staged import NO_STAGED_OFFSETS, GroupStaged, StagedOffset, StagedOffsets, TopicPartition
from kraft.broker.shard.transactional import StagedEntry, TransactionEnd

StateEntry = GroupLogEntry | ConsumerLogEntry | StagedEntry | TransactionEnd
"""The content of one record. A record in a transaction becomes a StagedEntry, a marker becomes a TransactionEnd."""
GroupOffsets: TypeAlias = "HashTrieMap[TopicPartition, OffsetValue]"
NO_OFFSETS: GroupOffsets = HashTrieMap()


class DurableState(NamedTuple):
    """The state computed from the records: each classic group's last stored generation, each group's committed offsets
    (if it has any), the staged offsets of open transactions, and the consumer groups."""

    groups: HashTrieMap[str, GroupValue]
    offsets: HashTrieMap[str, GroupOffsets]
    staged: StagedOffsets = NO_STAGED_OFFSETS
    consumers: HashTrieMap[str, ConsumerGroup] = HashTrieMap()

    def with_entry(self, entry: StateEntry) -> DurableState:
        """Return the state after one more record."""
        if isinstance(entry, GroupLogEntry):
            return self._with_plain(entry)
        if isinstance(entry, TransactionEnd):
            return self._with_end(entry)
        if isinstance(entry, StagedEntry):
            key, value = entry.entry
            if isinstance(key, OffsetKey) and isinstance(value, OffsetValue):
                staged = StagedOffset(entry.producer_id, entry.offset, value)
                return self._replace(staged=self.staged.with_offset(key, staged))
            return self.with_entry(entry.entry)
        return self._with_consumer(entry)

    def _with_consumer(self, entry: ConsumerLogEntry) -> DurableState:
        """Return the state after a record of a consumer group. A removal creates no group."""
        group_id, known = entry.key.group, self.consumers
        if entry.value is None and group_id not in known:
            return self
        group = known.get(group_id, EMPTY_GROUP).with_entry(*entry)
        return self._replace(consumers=known.remove(group_id) if group is None else known.insert(group_id, group))

    def _with_end(self, end: TransactionEnd) -> DurableState:
        """Apply (on commit) or drop (on abort) a producer's staged offsets. Applying an offset drops the older staged
        offsets that other producers have for the same partition."""
        remaining, ended = self.staged.ended(end.producer_id)
        state = self._replace(staged=remaining)
        for key, staged in ended if end.is_commit else ():
            state = state._with_plain(GroupLogEntry(key, staged.value), staged.log_offset)
        return state

    def _with_plain(self, entry: GroupLogEntry, log_offset: int | None = None) -> DurableState:
        """Return the state after a record that takes effect at once. `log_offset` is the log offset of the record if it
        was staged; None if it is the newest record of the log."""
        key, value = entry
        if isinstance(key, GroupKey):
            if isinstance(value, GroupValue):
                return self._replace(groups=self.groups.insert(key.group, value))
            return self._replace(groups=self.groups.discard(key.group))
        known, staged = self.offsets.get(key.group, NO_OFFSETS), self.staged
        if staged.groups:
            staged = staged.without_older(key, log_offset)
        if isinstance(value, OffsetValue):
            known = known.insert((key.topic, key.partition), value)
        else:
            known = known.discard((key.topic, key.partition))
            if not known:
                return self._replace(offsets=self.offsets.discard(key.group), staged=staged)
        return self._replace(offsets=self.offsets.insert(key.group, known), staged=staged)

    def with_entries(self, entries: Iterable[StateEntry]) -> DurableState:
        """Return the state after more records."""
        state = self
        for entry in entries:
            state = state.with_entry(entry)
        return state

    def offsets_of(self, group: str) -> GroupOffsets:
        return self.offsets.get(group, NO_OFFSETS)

    def staged_of(self, group: str) -> GroupStaged:
        return self.staged.of(group)

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
        """Add `state`, which includes the records in the log up to `end_offset`."""
        self._waiting.append((end_offset, state))
        self.end_offset = end_offset

    def advance(self, high_watermark: int) -> None:
        """Commit the states that end at or below the high watermark."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            self._committed = waiting.popleft()[1]
