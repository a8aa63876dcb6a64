"""Keeps the ledger of groups up to date with the committed records of `__consumer_offsets`, one batch at a time.

A batch is committed when a high watermark of any replica has passed it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kraft.sim.check.consumer_groups.ledger import GroupLedger
from kraft.sim.check.observations import (
    BatchWritten,
    LoggedGroupEntry,
    Observation,
    PartitionSeen,
    TopicPartition,
)
from kraft.sim.check.partitions import PartitionLedgers
from kraft.sim.check.shadow import Shadows


@dataclass(frozen=True, slots=True)
class GroupRecordsCommitted:
    """Event: a batch of the offsets topic was committed. The ledger contains it already. `offsets_before` has the
    committed offset of each partition for which the batch has another one."""

    entries: tuple[LoggedGroupEntry, ...]
    offsets_before: dict[tuple[str, TopicPartition], int]


class GroupFeed:
    """Source of the events of groups. `observe` returns those that follow from one observation."""

    def __init__(self, shadows: Shadows, partitions: PartitionLedgers) -> None:
        self.ledger = GroupLedger()
        self._shadows = shadows
        self._partitions = partitions
        self._upto: dict[TopicPartition, int] = {}
        """Partition of the offsets topic that has had records → the end of the records in the ledger."""

    def observe(self, seen: Observation) -> Iterator[Observation]:
        """Yield the events that follow from this observation."""
        if isinstance(seen, BatchWritten):
            if seen.log is not None and seen.group_entries:
                self._upto.setdefault(seen.log, 0)
        elif isinstance(seen, PartitionSeen):
            log = seen.topic_partition
            begin = self._upto.get(log)
            if begin is None or seen.high_watermark <= begin or self._partitions.is_void(log):
                return
            self._upto[log] = seen.high_watermark
            for batch in self._shadows.log(seen.node, log).between(begin, seen.high_watermark):
                if batch.group_entries:
                    yield self._committed(batch.group_entries)

    def _committed(self, entries: tuple[LoggedGroupEntry, ...]) -> GroupRecordsCommitted:
        before: dict[tuple[str, TopicPartition], int] = {}
        for entry in entries:
            if hasattr(entry.key, "partition"):
                place = (entry.key.topic, entry.key.partition)
                known = self.ledger.offsets.get(entry.key.group, {}).get(place)
                if known is not None:
                    before.setdefault((entry.key.group, place), known)
            self.ledger.add(entry)
        return GroupRecordsCommitted(entries, before)
