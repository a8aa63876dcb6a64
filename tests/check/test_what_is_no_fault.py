"""What looks like a fault and is none: histories that runs have shown, and that the checks must let pass.

Beside each stands the history next to it that they must not.
"""

from __future__ import annotations

from kraft.sim.check.observations import (
    BatchWritten,
    BrokerRegistered,
    LogCut,
    LogDurable,
    NodeDown,
    PartitionRecorded,
    PartitionSeen,
    Restarted,
    RoleSeen,
)
from kraft.sim.check.shadow import ShadowLog
from kraft.sim.check.suite import Suite

TP = ("orders", 0)


def batch(node: int, base: int, end: int, *, epoch: int = 1, log: tuple[str, int] | None = None) -> BatchWritten:
    return BatchWritten(node, log, epoch, base, end, 1_000 * epoch + end)


def findings(*history: object) -> set[str]:
    suite = Suite(frozenset({101}))
    for at_ms, observation in enumerate(history):
        suite.observe(observation, at_ms)
    return {finding.check for finding in suite.findings}


def test_a_log_that_is_begun_anew_where_it_ended_holds_nothing() -> None:
    log = ShadowLog()
    log.write(batch(1, 0, 5))
    log.cut(5, 5)
    assert log.batches == []
    log.write(batch(1, 5, 7))
    assert log.batches[0].before is None


def committed(node: int) -> tuple[object, ...]:
    """A voter has three batches, and all is committed; `node` has them too."""
    ends = ((0, 2), (2, 4), (4, 6))
    written = [batch(each, *end) for end in ends for each in (101, node)]
    role = RoleSeen(101, 1, 1, True, 101, True, 6, 6, 0)
    return (*written, LogDurable(101, None, 6), LogDurable(node, None, 6), role)


def test_a_log_with_a_hole_may_be_begun_anew_and_a_whole_one_may_not() -> None:
    cut = LogCut(1, None, 2, 2)
    assert "R11" in findings(*committed(1), cut)
    lost = (NodeDown(1), LogCut(1, None, 0, 2), batch(1, 4, 6), LogDurable(1, None, 6), Restarted(1, 2, False, False))
    assert "R11" not in findings(*committed(1), *lost, cut)


def test_what_a_power_loss_leaves_on_a_disk_is_no_log_yet() -> None:
    leftover = batch(1, 4, 6)
    assert "R5" in findings(*committed(1), LogCut(1, None, 0, 2), leftover)
    assert "R5" not in findings(*committed(1), NodeDown(1), LogCut(1, None, 0, 2), leftover)


def record(leader: int, isr: tuple[int, ...], epoch: int) -> PartitionRecorded:
    return PartitionRecorded(TP, isr, (), (), leader, epoch, epoch, False, 1, 0, (1, 2))


def restart_and_choose(end_after: int) -> set[str]:
    """Replica 1 loses power and keeps what is below `end_after`; it comes back, and is chosen. Committed is 4."""
    suite = Suite(frozenset({101}))
    leader = PartitionSeen(2, 1, TP, True, 0, frozenset({1, 2}), frozenset({1, 2}), 1, 0, 4, 4, 4)
    history = [
        record(2, (1, 2), 0),
        *(batch(node, *ends, epoch=0, log=TP) for ends in ((0, 4), (4, 6)) for node in (2, 1)),
        leader,
        NodeDown(1),
        LogCut(1, TP, 0, end_after),
        Restarted(1, 2, False, False),
        BrokerRegistered(1, 9),
        record(1, (1, 2), 1),
    ]
    for at_ms, observation in enumerate(history):
        if isinstance(observation, LogCut):
            suite.damage.lost(1, TP)
        suite.observe(observation, at_ms)
    return {finding.check for finding in suite.findings}


def test_a_replica_that_lost_nothing_committed_may_be_chosen_and_one_that_did_may_not() -> None:
    assert "K7" not in restart_and_choose(4)
    assert "K7" in restart_and_choose(0)


def test_a_replica_in_sync_that_holds_all_is_damaged_no_more() -> None:
    suite = Suite(frozenset({101}))
    suite.observe(batch(1, 0, 4, epoch=0, log=TP), 0)
    suite.damage.lost(1, TP)
    suite.observe(record(2, (2,), 0), 1)
    assert suite.damage.anyone()
    suite.observe(record(2, (1, 2), 0), 2)
    assert not suite.damage.anyone()
