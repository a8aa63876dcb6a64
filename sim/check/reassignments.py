"""M15: what the committed metadata may say of a partition while its replicas are moved."""

from __future__ import annotations

from typing import ClassVar

from kraft.sim.check.observations import PartitionRecorded
from kraft.sim.check.partition_records import PartitionChanges


class ReassignmentSafety(PartitionChanges):
    """A replica goes when the in-sync set covers those that stay: the move is done. One that was only being added may
    go at any time, by a cancel, if somebody who was in sync still is.

    Until all new replicas are in sync, one of the old ones that were stays so. The last of them may leave if it is not
    able to stay, or if one of the new ones leads and finds that it lags."""

    id: ClassVar[str] = "M15"
    statement: ClassVar[str] = (
        "No replica goes, and the last old one does not leave the ISR, before the new ones are in sync."
    )

    def changed(self, before: PartitionRecorded, seen: PartitionRecorded) -> None:
        if before.replicas == seen.replicas and not (before.adding or before.removing or seen.adding or seen.removing):
            return
        self.count()
        if seen.unclean:
            return
        if _last_old_one_left(before, seen):
            self.fail(
                "the last old replica left the ISR before the new ones were in it",
                partition=seen.topic_partition,
                replicas=seen.replicas,
                adding=seen.adding,
                isr=(before.isr, seen.isr),
            )
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


def _last_old_one_left(before: PartitionRecorded, seen: PartitionRecorded) -> bool:
    """While a move goes on: the old replicas that were in sync are not any more, though one of them is able to be."""
    new, now = {*seen.adding}, {*seen.isr}
    if new <= now or not now <= new or not now or before.leader in new:
        return False
    return bool({*before.isr, *before.elr} & {*seen.replicas} - new - {*seen.unable})
