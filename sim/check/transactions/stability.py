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
    """Transactions of one replica's log below `upto`: producer id → offset of its first record. `loaded_end`: end of
    the log when this incarnation was first observed."""

    incarnation: int
    loaded_end: int = 0
    upto: int = 0
    first: dict[int, int] = field(default_factory=dict)


class StableOffsetIsFirstOpen(Check):
    """A producer snapshot does not hold transactions that have ended. So a replica that has restarted takes those as
    ended whose markers were in its log then, below the high watermark or not, as in Kafka."""

    id: ClassVar[str] = "T6"
    statement: ClassVar[str] = (
        "The last stable offset is the high watermark, or the first record of a transaction that is open below it."
    )

    def __init__(self, shadows: Shadows, logs: Set[TopicPartition]) -> None:
        """`logs` are those with batches of transactions, which grow during the run."""
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

    def seen_partition(self, seen: PartitionSeen) -> None:
        if seen.topic_partition not in self._logs:
            return
        key = (seen.node, seen.topic_partition)
        known = self._replicas.get(key)
        if known is None or known.incarnation != seen.incarnation or seen.high_watermark < known.upto:
            loaded_end = seen.log_end_offset if known is None or known.incarnation != seen.incarnation else 0
            loaded_end = loaded_end or (0 if known is None else known.loaded_end)
            known = self._replicas[key] = _OpenTransactions(seen.incarnation, loaded_end)
        for batch in self._shadows.log(*key).between(known.upto, seen.high_watermark):
            if batch.marker is not None:
                known.first.pop(batch.marker.producer_id, None)
            elif batch.producer is not None and batch.producer.is_transactional:
                known.first.setdefault(batch.producer.producer_id, batch.base_offset)
        known.upto = seen.high_watermark
        due = max(min((*known.first.values(), seen.high_watermark)), seen.log_start_offset)
        if known.first:
            self.count()
        if seen.last_stable_offset != due and seen.last_stable_offset != self._due_without_loaded(seen, known):
            self.fail(
                "the last stable offset is wrong",
                partition=seen.topic_partition,
                node=seen.node,
                is_leader=seen.is_leader,
                last_stable_offset=seen.last_stable_offset,
                due=due,
                high_watermark=seen.high_watermark,
            )

    def _due_without_loaded(self, seen: PartitionSeen, known: _OpenTransactions) -> int:
        """Return the offset if all transactions are taken as ended whose markers the log had when it was loaded."""
        log = self._shadows.log(seen.node, seen.topic_partition)
        ended = {
            batch.marker.producer_id
            for batch in log.between(seen.high_watermark, known.loaded_end)
            if batch.marker is not None
        }
        still = [first for producer_id, first in known.first.items() if producer_id not in ended]
        return max(min((*still, seen.high_watermark)), seen.log_start_offset)
