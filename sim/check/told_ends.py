"""D3: the ends of a partition that clients are told never go back (KIP-207)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import EndTold, TopicPartition
from kraft.sim.check.partitions import PartitionLedgers


class ToldEndsRise(Check):
    """What had been told when a request came is the least that its answer may tell. ListOffsets counts through all
    leader epochs up to its own; Fetch within its own, for a new leader, as Kafka's, puts its high watermark beside
    records before it knows how far its predecessor's had come."""

    id: ClassVar[str] = "D3"
    statement: ClassVar[str] = "The end of a partition that clients are told never goes back."

    def __init__(self, ledgers: PartitionLedgers) -> None:
        super().__init__()
        self._ledgers = ledgers
        self._told: dict[tuple[TopicPartition, bool], dict[int, list[tuple[int, int]]]] = {}
        """(partition, of what is stable) → leader epoch → (number, end) of each end that was the furthest then."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {EndTold: self.told}

    def told(self, seen: EndTold) -> None:
        by_epoch = self._told.setdefault((seen.topic_partition, seen.is_stable), {})
        epochs = [epoch for epoch in by_epoch if epoch <= seen.leader_epoch] if seen.is_listed else [seen.leader_epoch]
        before = [(end, epoch) for epoch in epochs for end in _end_by(by_epoch.get(epoch, []), seen.asked_at)]
        own = by_epoch.setdefault(seen.leader_epoch, [])
        if not own or own[-1][1] < seen.end_offset:
            own.append((seen.number, seen.end_offset))
        if not before or self._ledgers.is_void(seen.topic_partition):
            return
        self.count()
        least, epoch = max(before)
        if seen.end_offset < least:
            self.fail(
                "a client is told of an end below one that was told before",
                partition=seen.topic_partition,
                node=seen.node,
                end=seen.end_offset,
                leader_epoch=seen.leader_epoch,
                told_before=least,
                told_in_epoch=epoch,
                by="ListOffsets" if seen.is_listed else "Fetch",
            )


def _end_by(told: list[tuple[int, int]], number: int) -> list[int]:
    """The furthest end among the first `number` that were told; none if there is none."""
    index = bisect_right(told, number, key=lambda each: each[0])
    return [told[index - 1][1]] if index else []
