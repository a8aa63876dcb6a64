"""Check that the end offsets of a partition that are reported to clients never decrease (D3, KIP-207)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import EndReported, TopicPartition
from kraft.sim.check.partitions import PartitionLedgers


class ReportedEndOffsetsNeverDecrease(Check):
    """Check that a response reports at least the highest end offset that had been reported when its request arrived.
    For ListOffsets, reports of all leader epochs up to the response's own epoch count. For Fetch only reports of its
    own epoch count: a new leader, like Kafka's, sends its high watermark with records before it knows its
    predecessor's."""

    id: ClassVar[str] = "D3"
    statement: ClassVar[str] = "The end of a partition that is reported to clients never decreases."

    def __init__(self, ledgers: PartitionLedgers) -> None:
        super().__init__()
        self._ledgers = ledgers
        self._told: dict[tuple[TopicPartition, bool], dict[int, list[tuple[int, int]]]] = {}
        """(partition, is_stable) → leader epoch → (number, end offset) of each report that was the highest so far."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {EndReported: self.end_reported}

    def end_reported(self, seen: EndReported) -> None:
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
                "an end was reported to a client below one reported before",
                partition=seen.topic_partition,
                node=seen.node,
                end=seen.end_offset,
                leader_epoch=seen.leader_epoch,
                told_before=least,
                told_in_epoch=epoch,
                by="ListOffsets" if seen.is_listed else "Fetch",
            )


def _end_by(told: list[tuple[int, int]], number: int) -> list[int]:
    """Return a list with the highest end offset among the first `number` reports; an empty list if there are none."""
    index = bisect_right(told, number, key=lambda each: each[0])
    return [told[index - 1][1]] if index else []
