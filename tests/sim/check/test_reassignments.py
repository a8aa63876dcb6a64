"""Tests that the check of reassignments (M15) reports illegal reassignments and accepts legal ones."""

from __future__ import annotations

import pytest

from kraft.sim.check.observations import PartitionRecorded
from kraft.sim.check.reassignments import ReassignmentSafety

TP = ("orders", 0)
Members = tuple[int, ...]


def record(
    replicas: Members,
    isr: Members,
    epoch: int,
    *,
    elr: Members = (),
    unclean: bool = False,
    adding: Members = (),
    unable: Members = (),
) -> PartitionRecorded:
    return PartitionRecorded(
        topic_partition=TP,
        isr=isr,
        elr=elr,
        last_known_elr=(),
        leader=isr[0] if isr else -1,
        leader_epoch=epoch,
        partition_epoch=epoch,
        unclean=unclean,
        min_isr=1,
        at_ms=epoch,
        replicas=replicas,
        adding=adding,
        unable=unable,
    )


def findings(*records: PartitionRecorded) -> int:
    check = ReassignmentSafety()
    for one in records:
        check.recorded(one)
    return len(check.findings)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (record((3, 1, 2), (1, 2), 1, adding=(3,)), record((3,), (), 2)),
        (record((3, 4, 1, 2), (1, 2, 3), 1, adding=(3, 4)), record((3, 4), (3,), 2)),
        (record((3, 1), (), 1, elr=(1,), adding=(3,)), record((3, 4), (3,), 2)),
        (record((3, 1, 2), (3,), 1, adding=(3,)), record((1, 2), (2,), 2)),
        (record((1, 2), (1,), 1), record((2,), (), 2)),
        (record((1, 2, 3, 4), (1, 2), 1, adding=(3, 4)), record((1, 2, 3, 4), (3,), 2, adding=(3, 4))),
        (record((3, 1, 4), (1, 3), 1, adding=(3, 4)), record((3, 1, 4), (3,), 2, adding=(3, 4))),
    ],
)
def test_checks_catch_a_replica_removed_too_early_in_a_reassignment(
    before: PartitionRecorded, after: PartitionRecorded
) -> None:
    assert findings(before, after) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (record((3, 1, 2), (1, 2), 1, adding=(3,)), record((3,), (3,), 2)),
        (record((3, 4, 1, 2), (1, 2, 3), 1, adding=(3, 4)), record((1, 2), (1, 2), 2)),
        (record((1, 2), (1, 2), 1), record((3, 1, 2), (1, 2), 2, adding=(3,))),
        (record((1, 2), (1,), 1), record((2,), (2,), 2)),
        (record((3, 1, 2), (1,), 1, adding=(3,)), record((2,), (2,), 2, unclean=True)),
        (record((3, 1), (), 1, elr=(1,), adding=(3,)), record((1,), (), 2, elr=(1,))),
        (record((1, 3, 4), (1, 3), 1, adding=(3, 4)), record((1, 3, 4), (3,), 2, adding=(3, 4), unable=(1,))),
        (record((1, 3, 4), (3, 1), 1, adding=(3, 4)), record((1, 3, 4), (3,), 2, adding=(3, 4))),
        (record((1, 3, 4), (1,), 1, adding=(3, 4)), record((1, 3, 4), (3, 4), 2, adding=(3, 4))),
        (record((1, 3, 4), (1, 3), 1, adding=(3, 4)), record((1, 3, 4), (), 2, elr=(3,), adding=(3, 4), unable=(1, 3))),
    ],
)
def test_checks_accept_correct_reassignments(before: PartitionRecorded, after: PartitionRecorded) -> None:
    assert findings(before, after) == 0
