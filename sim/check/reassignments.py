"""M15: what the committed metadata may say of a partition while its replicas are moved."""

from __future__ import annotations

from typing import ClassVar

from kraft.sim.check.observations import PartitionRecorded
from kraft.sim.check.partition_records import PartitionChanges


class ReassignmentSafety(PartitionChanges):
    """A replica goes when the in-sync set covers those that stay: the move is done. One that was only being added may
    go at any time, by a cancel, if somebody who was in sync still is."""

    id: ClassVar[str] = "M15"
    statement: ClassVar[str] = "No replica goes before the in-sync set covers the target, and never the last in sync."

    def changed(self, before: PartitionRecorded, seen: PartitionRecorded) -> None:
        if seen.unclean:
            return
        dropped = {*before.replicas} - {*seen.replicas}
        if dropped <= {*before.adding}:
            is_early = bool(dropped) and bool(before.isr) and not {*seen.isr} & {*before.isr}
        else:
            is_early = not (seen.isr and {*seen.isr} >= {*seen.replicas})
        if is_early:
            self.fail(
                "a replica went before the others were in sync",
                partition=seen.topic_partition,
                replicas=(before.replicas, seen.replicas),
                isr=(before.isr, seen.isr),
            )
