"""Check of the last stable offset of each replica against the markers in its log (T6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import LogCut, PartitionSeen, TopicPartition
from kraft.sim.check.shadow import Shadows


@dataclass(slots=True)
class _OpenTransactions:
    """Open transactions of one replica below the offset `upto`. `first` maps the producer id to the offset of the
    transaction's first record. `loaded_end` is the end of the log when this incarnation was first observed."""

    incarnation: int
    loaded_end: int = 0
    upto: int = 0
    first: dict[int, int] = field(default_factory=dict)


class StableOffsetIsFirstOpen(Check):
    """Check of last stable offsets. For a replica, a transaction has ended once its marker was below the high
    watermark; a high watermark that is lower under the next leader does not reopen the transaction. A producer snapshot
    has no transactions that have ended. So after a replica has loaded its log, each transaction whose marker is in the
    log may count as ended, as in Kafka."""

    id: ClassVar[str] = "T6"
    statement: ClassVar[str] = (
        "The last stable offset is the high watermark, or the first record of a transaction that is open below it."
    )

    def __init__(self, shadows: Shadows, logs: Set[TopicPartition]) -> None:
        """`logs` are the partitions with batches of transactions; the set grows during the run."""
        super().__init__()
        self._shadows = shadows
        self._logs = logs
        self._replicas: dict[tuple[int, TopicPartition], _OpenTransactions] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {PartitionSeen: self.seen_partition, LogCut: self.cut}

    def cut(self, seen: LogCut) -> None:
        if seen.log is not None:
            known = self._replicas.get((seen.node, seen.log))
            if known is not None and seen.end_offset < known.upto:
                del self._replicas[seen.node, seen.log]
            elif known is not None:
                known.loaded_end = max(known.loaded_end, seen.end_offset)

    def seen_partition(self, seen: PartitionSeen) -> None:
        if seen.topic_partition not in self._logs:
            return
        key = (seen.node, seen.topic_partition)
        known = self._replicas.get(key)
        if known is None or known.incarnation != seen.incarnation:
            known = self._replicas[key] = _OpenTransactions(seen.incarnation, seen.log_end_offset)
        if seen.high_watermark > known.upto:
            self._read(seen, known.first, known.upto)
            known.upto = seen.high_watermark
        due = _stable(known.first, seen)
        if known.first:
            self.count()
        if seen.last_stable_offset != due and seen.last_stable_offset not in self._due_after_load(seen, known):
            self.fail(
                "the last stable offset is wrong",
                partition=seen.topic_partition,
                node=seen.node,
                is_leader=seen.is_leader,
                last_stable_offset=seen.last_stable_offset,
                due=due,
                high_watermark=seen.high_watermark,
            )

    def _read(self, seen: PartitionSeen, first: dict[int, int], begin: int) -> None:
        """Apply the batches from the offset `begin` up to the high watermark to `first`."""
        for batch in self._shadows.log(seen.node, seen.topic_partition).between(begin, seen.high_watermark):
            if batch.marker is not None:
                first.pop(batch.marker.producer_id, None)
            elif batch.producer is not None and batch.producer.is_transactional:
                first.setdefault(batch.producer.producer_id, batch.base_offset)

    def _due_after_load(self, seen: PartitionSeen, known: _OpenTransactions) -> tuple[int, int]:
        """Return the two last stable offsets that are valid after the log was loaded. A transaction whose marker is
        above the high watermark counts as open for the first one, and as ended for the second one."""
        first: dict[int, int] = {}
        self._read(seen, first, 0)
        log = self._shadows.log(seen.node, seen.topic_partition)
        markers = [batch.marker for batch in log.between(seen.high_watermark, known.loaded_end) if batch.marker]
        ended = {marker.producer_id for marker in markers}
        still = {producer_id: offset for producer_id, offset in first.items() if producer_id not in ended}
        return _stable(first, seen), _stable(still, seen)


def _stable(first: Mapping[int, int], seen: PartitionSeen) -> int:
    return max(min((*first.values(), seen.high_watermark)), seen.log_start_offset)
