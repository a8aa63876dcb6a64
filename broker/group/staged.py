"""Offsets of open transactions, which are staged until the marker of their producer applies or drops them.

Invariant: a staged offset is newer in the log than the committed offset of its partition. So when an offset takes
effect (by a plain commit, a removal, or a marker), it drops every older staged offset of its partition. The state is
then that of the newest record of each key, which is also the record that compaction keeps (T11).
Source: KIP-98, Kafka's OffsetMetadataManager, docs/decisions/14-group-coordinator.md.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from rpds import HashTrieMap

from kraft.broker.group.records import OffsetKey, OffsetValue

TopicPartition = tuple[str, int]


class StagedOffset(NamedTuple):
    """An offset that one open transaction will commit. `log_offset` is the log offset of its record."""

    producer_id: int
    log_offset: int
    value: OffsetValue


StagedRows = tuple[StagedOffset, ...]
GroupStaged: TypeAlias = "HashTrieMap[TopicPartition, StagedRows]"
NOTHING_STAGED: GroupStaged = HashTrieMap()


class StagedOffsets(NamedTuple):
    """All staged offsets. `groups`: group → partition → its staged offsets, at most one per producer. `producers`:
    producer id → the groups for which its open transaction has staged offsets."""

    groups: HashTrieMap[str, GroupStaged]
    producers: HashTrieMap[int, HashTrieMap[str, None]]

    def of(self, group: str) -> GroupStaged:
        return self.groups.get(group, NOTHING_STAGED)

    def groups_of(self, producer_id: int) -> list[str]:
        """Return the groups that a marker of this producer may change."""
        return list(self.producers.get(producer_id, HashTrieMap()))

    def with_offset(self, key: OffsetKey, staged: StagedOffset) -> StagedOffsets:
        """Return the offsets with this one staged. It replaces an earlier one of the same producer and partition."""
        rows = self.of(key.group).get((key.topic, key.partition), ())
        others = tuple(row for row in rows if row.producer_id != staged.producer_id)
        known = self.producers.get(staged.producer_id, HashTrieMap())
        producers = self.producers.insert(staged.producer_id, known.insert(key.group, None))
        return self._replace(producers=producers)._with_rows(key, (*others, staged))

    def without_older(self, key: OffsetKey, log_offset: int | None = None) -> StagedOffsets:
        """Return the offsets without those of this partition whose records are below `log_offset`; without all of the
        partition if `log_offset` is None."""
        rows = self.of(key.group).get((key.topic, key.partition))
        if rows is None:
            return self
        return self._with_rows(
            key, tuple(row for row in rows if log_offset is not None and row.log_offset > log_offset)
        )

    def ended(self, producer_id: int) -> tuple[StagedOffsets, list[tuple[OffsetKey, StagedOffset]]]:
        """End the producer's transaction. Return the remaining offsets, and the offsets that the producer had
        staged."""
        remaining, found = self, []
        for group in self.groups_of(producer_id):
            for (topic, partition), rows in self.of(group).items():
                mine = [row for row in rows if row.producer_id == producer_id]
                if mine:
                    key = OffsetKey(group, topic, partition)
                    found.append((key, mine[0]))
                    remaining = remaining._with_rows(key, tuple(row for row in rows if row is not mine[0]))
        return remaining._replace(producers=remaining.producers.discard(producer_id)), found

    def _with_rows(self, key: OffsetKey, rows: StagedRows) -> StagedOffsets:
        staged = self.of(key.group)
        at = (key.topic, key.partition)
        staged = staged.insert(at, rows) if rows else staged.discard(at)
        groups = self.groups.insert(key.group, staged) if staged else self.groups.discard(key.group)
        return self._replace(groups=groups)


NO_STAGED_OFFSETS = StagedOffsets(HashTrieMap(), HashTrieMap())
