"""M13 and D8: who wrote what first. Whoever leads an epoch writes its batches, and all others have them from it.

What a node writes is told before the role in which it did, so a batch waits until the leader of its epoch is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import BatchWritten, PartitionSeen, RoleSeen, TopicPartition

Term = tuple[TopicPartition | None, int]
"""(log, leader epoch); the metadata log is None."""


class SingleWriter(Check):
    """Who was the first to write behind all that is known of a term is the author of that batch."""

    def __init__(self) -> None:
        super().__init__()
        self._leaders: dict[Term, int] = {}
        self._ends: dict[Term, int] = {}
        """Where what is known of a term ends."""
        self._waiting: dict[Term, list[tuple[int, int]]] = {}
        """(author, base offset) in terms whose leader is not known yet."""

    def leads(self, term: Term, node: int) -> None:
        known = self._leaders.setdefault(term, node)
        if known != node:
            self.fail("an epoch has two leaders", log=term[0], epoch=term[1], leaders=(known, node))
        for author, base_offset in self._waiting.pop(term, ()):
            self._judge(term, author, base_offset)

    def wrote(self, seen: BatchWritten) -> None:
        term = (seen.log, seen.epoch)
        if seen.base_offset < self._ends.get(term, 0):
            return
        self._ends[term] = seen.next_offset
        if term in self._leaders:
            self._judge(term, seen.node, seen.base_offset)
        else:
            self._waiting.setdefault(term, []).append((seen.node, seen.base_offset))

    def _judge(self, term: Term, author: int, base_offset: int) -> None:
        self.count()
        leader = self._leaders[term]
        if author != leader:
            self.fail(
                "a batch was written first by one that does not lead its epoch",
                log=term[0],
                epoch=term[1],
                offset=base_offset,
                node=author,
                leader=leader,
            )


class LeaderWritesMetadata(SingleWriter):
    id: ClassVar[str] = "M13"
    statement: ClassVar[str] = "Every metadata record was appended by the leader of its epoch."

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {BatchWritten: self.written, RoleSeen: self.role}

    def written(self, seen: BatchWritten) -> None:
        if seen.log is None:
            self.wrote(seen)

    def role(self, seen: RoleSeen) -> None:
        if seen.is_leader:
            self.leads((None, seen.epoch), seen.node)


class LeaderWritesPartition(SingleWriter):
    """Also (partition, epoch, offset) names one record for ever, whether it was committed or not."""

    id: ClassVar[str] = "D8"
    statement: ClassVar[str] = "A leader epoch of a partition has one leader, who alone appends, and never twice."

    def __init__(self) -> None:
        super().__init__()
        self._named: dict[tuple[TopicPartition, int, int], tuple[int, int]] = {}

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {BatchWritten: self.written, PartitionSeen: self.seen_leading}

    def written(self, seen: BatchWritten) -> None:
        if seen.log is None:
            return
        self.wrote(seen)
        first = self._named.setdefault((seen.log, seen.epoch, seen.base_offset), (seen.digest, seen.node))
        if first[0] != seen.digest:
            self.fail(
                "one (epoch, offset) names two records",
                log=seen.log,
                epoch=seen.epoch,
                offset=seen.base_offset,
                first_node=first[1],
                second_node=seen.node,
            )

    def seen_leading(self, seen: PartitionSeen) -> None:
        if seen.is_leader:
            self.leads((seen.topic_partition, seen.leader_epoch), seen.node)
