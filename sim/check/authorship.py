"""Check that only the leader of an epoch originates its batches; all other replicas copy them (M13 and D8).

The disk of a node is observed before its role. So a written batch is checked later, when the leader of its epoch is
known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import BatchWritten, PartitionSeen, RoleSeen, TopicPartition

Term = tuple[TopicPartition | None, int]
"""A leader epoch of a log, as (log, leader epoch). Log None is the metadata log."""


class SingleWriter(Check):
    """Base of the checks that only the leader of an epoch originates batches. The node that first writes a batch beyond
    the known end of an epoch counts as the author of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self._leaders: dict[Term, int] = {}
        self._ends: dict[Term, int] = {}
        """Log and leader epoch → end offset of its known batches."""
        self._waiting: dict[Term, list[tuple[int, int]]] = {}
        """Log and leader epoch whose leader is not known yet → its batches, as (author, base offset)."""

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
                "a batch was first written by a node that does not lead its epoch",
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
    """Check that only the leader of a partition's epoch originates its batches. It also checks that (partition, epoch,
    offset) names the same record permanently, whether committed or not."""

    id: ClassVar[str] = "D8"
    statement: ClassVar[str] = (
        "A leader epoch of a partition has one leader, which alone originates batches, and each offset only once."
    )

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
