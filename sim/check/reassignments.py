"""Check the committed metadata of a partition while its replicas are reassigned (M15)."""

from __future__ import annotations

from typing import ClassVar

from kraft.sim.check.observations import PartitionRecorded
from kraft.sim.check.partition_records import PartitionChanges


class ReassignmentSafety(PartitionChanges):
    """Check that a reassignment keeps in-sync replicas. An old replica may be removed when all remaining replicas are
    in the ISR: the reassignment is complete. A replica that was only being added may be removed at any time, by a
    cancellation, if some replica that was in sync stays in the ISR.

    Until all new replicas are in sync, an old replica that was in sync stays in the ISR. The last such replica may be
    removed if it is not able to stay, or if a new replica leads and finds that it lags."""

    id: ClassVar[str] = "M15"
    statement: ClassVar[str] = (
        "No replica is removed, and the last old one does not leave the ISR, before the new ones are in sync."
    )

    def changed(self, before: PartitionRecorded, seen: PartitionRecorded) -> None:
        if before.replicas == seen.replicas and not (before.adding or before.removing or seen.adding or seen.removing):
            return
        self.count()
        if seen.unclean:
            return
        if _lost_last_old_replica(before, seen):
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


def _lost_last_old_replica(before: PartitionRecorded, seen: PartitionRecorded) -> bool:
    """Return whether the last old replica left the ISR during a reassignment although an old replica is able to stay in
    it."""
    new, now = {*seen.adding}, {*seen.isr}
    if new <= now or not now <= new or not now or before.leader in new:
        return False
    return bool({*before.isr, *before.elr} & {*seen.replicas} - new - {*seen.unable})
