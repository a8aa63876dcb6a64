"""Tests that the checks accept histories that look like faults but are correct. Such histories occurred in runs.

Next to each is a similar history that the checks must reject.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft.sim.check.consumer_groups.answers import CommitAnswered, CommitRequested
from kraft.sim.check.failure_detection import EpochsAreSteady
from kraft.sim.check.observations import (
    BatchWritten,
    BrokerFenced,
    BrokerRegistered,
    EpochClaimed,
    ImagePublished,
    LogCut,
    LogDurable,
    NodeDown,
    Observation,
    PartitionRecorded,
    PartitionSeen,
    ProbeEnded,
    ProcessDied,
    ProduceAcknowledged,
    ProduceAnswered,
    Restarted,
    RoleSeen,
    SnapshotSeen,
    VotersSeen,
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


def test_checks_accept_a_late_fence_after_the_active_controller_ended() -> None:
    """The active controller ended by a power loss, or cleanly; neither is observed as a death (seed 358)."""
    assert fenced_late(2_000) == {"K6"}
    assert fenced_late(2_000, NodeDown(3)) == {"K6"}
    assert fenced_late(2_000, NodeDown(101)) == set()


def test_checks_accept_a_late_fence_of_a_broker_unknown_to_the_new_active_controller() -> None:
    """The new active controller was not connected to the broker again when the broker was killed (seed 695)."""
    assert fenced_late(1_020) == set()
    assert fenced_late(1_500) == {"K6"}
    met = ProbeEnded(101, 2, 5, "SAME", 900)
    assert fenced_late(1_020, before=(met,)) == {"K6"}
    assert fenced_late(1_020, before=(replace(met, outcome="REFUSED"),)) == set()
    for node in (101, 2):
        assert fenced_late(1_020, before=(met, Restarted(node, 2, clean=False, wiped=False))) == set()


def fenced_late(died_ms: int, *between: Observation, before: tuple[Observation, ...] = ()) -> set[str]:
    """Return the findings when a controller, active for one second, fences a broker long after its death. `before`:
    earlier observations."""
    suite = Suite(frozenset({101}))
    fenced = BrokerFenced(101, 2, None, 5, None, None, 9_000, 9_000, False, 5_000)
    died = ProcessDied(2, frozenset({"broker"}), False, True, died_ms)
    leads = RoleSeen(101, 1, 1, True, 101, True, 0, 0, 0)
    for observation in (*before, leads, died, *between, fenced):
        suite.observe(observation, getattr(observation, "at_ms", 1_000 if observation is leads else died_ms))
    return {finding.check for finding in suite.findings}


def test_the_model_of_a_log_that_is_restarted_at_its_end_offset_is_empty() -> None:
    log = ShadowLog()
    log.write(batch(1, 0, 5))
    log.cut(5, 5)
    assert log.batches == []
    log.write(batch(1, 5, 7))
    assert log.batches[0].before is None


def test_checks_accept_a_leader_that_commits_and_deletes_all_records_between_observations() -> None:
    """A leader with slices of one event and a snapshot at every step does all of it between two observations (seed 6125
    of 15 s)."""
    written = [batch(node, 0, 2) for node in (101, 102)]
    before = RoleSeen(101, 1, 1, True, 101, True, 0, 2, 0)
    cut = LogCut(101, None, 2, 2)
    after = RoleSeen(101, 1, 1, True, 101, True, 2, 2, 2)
    snapshot = SnapshotSeen(101, 2, 1, "")
    synced = [LogDurable(node, None, 2) for node in (101, 102)]
    assert not {"R9", "R15"} & findings(*written, *synced, before, cut, snapshot, after)
    beyond = replace(after, high_watermark=3, log_end_offset=3, log_start_offset=3)
    assert {"R9", "R15"} <= findings(
        *written, *synced, before, LogCut(101, None, 3, 3), replace(snapshot, end_offset=3), beyond
    )
    older = replace(after, epoch=2)
    assert "R9" in findings(*written, *synced, before, cut, snapshot, older), "of an earlier leader's epoch"


def test_an_acknowledgement_from_a_voters_replaced_disk_counts_until_the_voter_is_removed() -> None:
    """The acknowledgement of a voter that lost its disk was in flight, and the leader's own sync completed later (seeds
    162 and 583 of 60 s)."""
    written = [voters_of(101, (101, 102, 103)), *(batch(node, 0, 2) for node in (101, 102, 103))]
    synced = [LogDurable(node, None, 2) for node in (102, 103)]
    gone = [NodeDown(103), LogCut(103, None, 0, 0)]
    leads = RoleSeen(101, 1, 1, True, 101, True, 2, 2, 0)
    assert "R9" not in findings(*written, *synced, *gone, leads)
    assert "R9" in findings(*written, synced[0], *gone, leads), "it was not durable"
    assert "R9" in findings(*written[:3], replace(batch(103, 0, 2), digest=7), *synced, *gone, leads), "another record"
    out, back = (voters_of(101, keys) for keys in ((101, 102), (101, 102, 103)))
    assert "R9" in findings(*written, *synced, *gone, out, back, leads), "in the set again, with another disk"
    assert "R9" in findings(*written, *synced, out, *gone, back, leads), "it was no voter any more"
    at_once = [NodeDown(103), LogCut(103, None, 0, 0), Restarted(103, 2, clean=False, wiped=False)]
    assert "R9" in findings(*written, *synced, *at_once, leads), "it lost what it had acknowledged"


def voters_of(leader: int, voters: tuple[int, ...]) -> VotersSeen:
    return VotersSeen(leader, 1, 1, True, 0, 1, tuple((node, f"d{node}") for node in voters), 0, 2)


def test_checks_accept_a_leader_whose_log_was_restarted_while_it_was_a_follower() -> None:
    """The leader had restarted its log while it was a follower (seeds 13 and 95 of 30 s)."""
    other = replace(batch(102, 0, 2), digest=7)
    written = [batch(101, 0, 2), other, LogDurable(101, None, 2)]
    first = RoleSeen(101, 1, 1, True, 101, True, 2, 2, 0)
    anew = [LogCut(102, None, 2, 2), RoleSeen(102, 1, 1, False, 101, True, 2, 2, 2)]
    leads = RoleSeen(102, 2, 2, True, 102, True, 2, 2, 2)
    assert "R7" not in findings(*written, first, *anew, Restarted(102, 2, False, False), leads)


def committed(node: int) -> tuple[object, ...]:
    """Return the observations that a voter has three batches, all of them committed; `node` has them too."""
    ends = ((0, 2), (2, 4), (4, 6))
    written = [batch(each, *end) for end in ends for each in (101, node)]
    role = RoleSeen(101, 1, 1, True, 101, True, 6, 6, 0)
    return (*written, LogDurable(101, None, 6), LogDurable(node, None, 6), role)


def back(node: int, end: int, *, is_voter: bool, wiped: bool = False) -> tuple[object, ...]:
    """Return the observations that a node loses power, that its disk keeps the records below `end`, and that the node
    runs again."""
    before = RoleSeen(node, 1, 1, False, 101, is_voter, 6, 6, 0)
    after = RoleSeen(node, 2, 1, False, 101, is_voter, -1, end, 0)
    return (before, NodeDown(node), LogCut(node, None, 0, end), Restarted(node, 2, False, wiped), after)


def test_checks_accept_committed_records_lost_by_an_observer_in_a_power_loss_but_not_by_truncation() -> None:
    assert "R11" not in findings(*committed(1), *back(1, 2, is_voter=False))
    assert "R11" in findings(*committed(1), LogCut(1, None, 2, 2))


def test_checks_catch_a_voter_that_restarts_without_committed_records_unless_its_disk_is_new() -> None:
    assert "R11" not in findings(*committed(102), *back(102, 6, is_voter=True))
    assert "R11" in findings(*committed(102), *back(102, 4, is_voter=True))
    assert "R11" not in findings(*committed(102), *back(102, 0, is_voter=True, wiped=True))


def test_checks_accept_a_voter_that_loses_unsynced_records_in_a_power_loss() -> None:
    some, (durable, role) = committed(102)[:-2], committed(102)[-2:]
    assert isinstance(durable, LogDurable)
    assert "R11" not in findings(*some, LogDurable(102, None, 4), role, *back(102, 4, is_voter=True))


def seen(high_watermark: int, isr: tuple[int, ...], epoch: int = 0) -> PartitionSeen:
    """Return an observation of leader 1, with a log of six records that two replicas must hold."""
    members = frozenset(isr)
    return PartitionSeen(1, 1, TP, True, epoch, members, members, 2, 0, high_watermark, high_watermark, 6)


def test_checks_accept_a_high_watermark_that_moved_while_an_isr_between_two_observations_was_large_enough() -> None:
    before, after = seen(4, (1,)), seen(6, (1,))
    grown = [replace(record(1, isr, 0), partition_epoch=epoch) for epoch, isr in ((2, (1, 2)), (3, (1,)))]
    history = [replace(before, partition_epoch=1), *grown, replace(after, partition_epoch=3)]
    assert "K7" not in findings(*history)
    assert "K7" in findings(*(one for one in history if one is not grown[0]))


def test_checks_accept_a_produce_response_sent_after_the_isr_shrank_below_min_isr() -> None:
    late = ProduceAnswered(1, TP, 4, 6, 0, 0, 1, 2)
    assert "D11" not in findings(seen(4, (1, 2)), seen(4, (1,)), late)
    assert "D11" in findings(seen(3, (1, 2)), seen(4, (1,)), late), "it was committed when too few were in sync"
    assert "D11" in findings(seen(4, (1, 2), epoch=1), seen(4, (1,)), late), "nor by what another epoch has shown"


def test_checks_accept_gaps_in_a_log_between_a_power_loss_and_recovery() -> None:
    leftover = batch(1, 4, 6)
    assert "R5" in findings(*committed(1), LogCut(1, None, 0, 2), leftover)
    assert "R5" not in findings(*committed(1), NodeDown(1), LogCut(1, None, 0, 2), leftover)


def record(leader: int, isr: tuple[int, ...], epoch: int) -> PartitionRecorded:
    return PartitionRecorded(TP, isr, (), (), leader, epoch, epoch, False, 1, 0, (1, 2))


def restart_and_choose(end_after: int) -> set[str]:
    """Let replica 1 lose power, keep the records below `end_after`, restart and be elected. The committed end offset
    is 4. Return the checks that fail."""
    suite = Suite(frozenset({101}))
    leader = PartitionSeen(2, 1, TP, True, 0, frozenset({1, 2}), frozenset({1, 2}), 1, 0, 4, 4, 4)
    history = [
        record(2, (1, 2), 0),
        *(batch(node, *ends, epoch=0, log=TP) for ends in ((0, 4), (4, 6)) for node in (2, 1)),
        leader,
        NodeDown(1),
        LogCut(1, TP, 0, end_after),
        Restarted(1, 2, False, False),
        BrokerRegistered(1, 9, 2),
        record(1, (1, 2), 1),
    ]
    for at_ms, observation in enumerate(history):
        if isinstance(observation, LogCut):
            suite.damage.lost(1, TP)
        suite.observe(observation, at_ms)
    return {finding.check for finding in suite.findings}


def test_a_registration_appended_before_a_crash_does_not_count_for_the_next_incarnation() -> None:
    kept = replace(record(1, (1,), 1), elr=(2,), replicas=(1, 2, 3))

    def after(*registered: BrokerRegistered) -> set[str]:
        restarts = (Restarted(2, 2, True, False, True), Restarted(2, 3, False, False))
        told = (ImagePublished(0, 1, 12, "", 12),)
        return findings(replace(record(1, (1, 2), 0), replicas=(1, 2, 3)), kept, *restarts, *registered, *told)

    assert "M16" not in after(BrokerRegistered(2, 9, 2))
    assert "M16" in after(BrokerRegistered(2, 9, 2), BrokerRegistered(2, 12, 3))


def test_checks_accept_the_election_of_a_replica_after_a_power_loss_only_if_it_lost_no_committed_record() -> None:
    assert "K7" not in restart_and_choose(4)
    assert "K7" in restart_and_choose(0)


def isr_and_elr_are_empty(
    *,
    restarted: tuple[int, ...] = (2,),
    then: tuple[BrokerRegistered | Restarted, ...] = (BrokerRegistered(2, 9, 2),),
    elr: tuple[int, ...] = (),
) -> Suite:
    """Return the checks after they observed a partition whose ISR and ELR are empty. Replica 1 is complete, replica 3
    lacks the last of two committed batches. Replica 2 led alone and has registered again after unclean stops of
    `restarted` (or `then` happened instead). `elr`: the ELR at that time."""
    suite = Suite(frozenset({101}))
    history = [
        record(2, (2,), 0),
        *(batch(node, *ends, epoch=0, log=TP) for ends in ((0, 4), (4, 6)) for node in (2, 1)),
        batch(3, 0, 4, epoch=0, log=TP),
        *(PartitionSeen(2, 1, TP, True, 0, frozenset({2}), frozenset({2}), 1, 0, hw, hw, 6) for hw in (0, 6)),
        *(Restarted(node, 2, False, False) for node in restarted),
        *then,
        replace(record(-1, (), 1), elr=elr, last_known_elr=(2,)),
    ]
    for at_ms, observation in enumerate(history):
        suite.observe(observation, at_ms)
    assert not suite.findings
    return suite


def test_with_empty_isr_and_elr_only_a_complete_replica_may_lead() -> None:
    may_take = isr_and_elr_are_empty().leader_in_sync.may_take
    assert may_take(TP, 1)
    assert may_take(TP, 2)
    assert not may_take(TP, 3)


def test_a_replica_other_than_the_last_isr_member_may_lead_only_after_that_member_stopped_uncleanly() -> None:
    assert not isr_and_elr_are_empty(restarted=()).leader_in_sync.may_take(TP, 1)
    assert not isr_and_elr_are_empty(restarted=(1, 3)).leader_in_sync.may_take(TP, 1)
    assert not isr_and_elr_are_empty(elr=(1,)).leader_in_sync.may_take(TP, 1)


def test_with_empty_isr_and_elr_no_replica_may_lead_before_the_last_isr_member_is_registered_again() -> None:
    suite = isr_and_elr_are_empty(then=())
    assert not suite.leader_in_sync.may_take(TP, 1)
    suite.observe(BrokerRegistered(2, 9, 2), 20)
    assert suite.leader_in_sync.may_take(TP, 1)


def test_an_unclean_stop_of_the_last_member_after_the_isr_became_empty_lets_no_other_replica_lead() -> None:
    suite = isr_and_elr_are_empty(restarted=(), then=())
    suite.observe(Restarted(2, 2, False, False), 20)
    suite.observe(BrokerRegistered(2, 9, 2), 21)
    assert not suite.leader_in_sync.may_take(TP, 1)


def test_an_unclean_stop_before_the_last_members_current_registration_lets_no_other_replica_lead() -> None:
    suite = isr_and_elr_are_empty()
    for observation in (
        record(2, (2,), 2),
        BrokerRegistered(2, 12, 2),
        replace(record(-1, (), 3), last_known_elr=(2,)),
    ):
        suite.observe(observation, 20)
    assert not suite.leader_in_sync.may_take(TP, 1)


def test_an_unclean_stop_counts_until_the_next_registration_even_if_clean_stops_are_in_between() -> None:
    stopped_in_order = (Restarted(2, 3, True, False), Restarted(2, 4, True, False), BrokerRegistered(2, 9, 4))
    may_take = isr_and_elr_are_empty(then=stopped_in_order).leader_in_sync.may_take
    assert may_take(TP, 1)
    assert not may_take(TP, 3)
    assert not isr_and_elr_are_empty(restarted=(), then=stopped_in_order).leader_in_sync.may_take(TP, 1)


def test_an_unclean_stop_counts_for_one_registration_only_even_if_a_clean_stop_preceded_that_one() -> None:
    registered = (Restarted(2, 3, True, False), BrokerRegistered(2, 9, 3))
    suite = isr_and_elr_are_empty(then=(*registered, Restarted(2, 4, True, False), BrokerRegistered(2, 12, 4)))
    suite.observe(Restarted(2, 5, False, False), 20)
    suite.observe(BrokerRegistered(2, 20, 5), 21)
    assert not suite.leader_in_sync.may_take(TP, 1), "it was left out before it stopped uncleanly"


def test_an_unclean_stop_counts_only_for_the_first_registration_after_it() -> None:
    told = (BrokerRegistered(2, 9, 2), Restarted(2, 3, True, False), BrokerRegistered(2, 12, 3))
    assert not isr_and_elr_are_empty(then=told).leader_in_sync.may_take(TP, 1)


def test_a_damaged_replica_counts_as_repaired_once_it_is_registered_again_and_has_all_committed_records() -> None:
    suite = Suite(frozenset({101}))
    suite.observe(batch(1, 0, 4, epoch=0, log=TP), 0)
    suite.damage.lost(1, TP)
    suite.observe(record(2, (2,), 0), 1)
    suite.observe(record(2, (1, 2), 0), 2)
    assert suite.damage.anyone()
    suite.observe(BrokerRegistered(1, 9), 3)
    suite.observe(record(2, (2,), 0), 4)
    assert suite.damage.anyone()
    suite.observe(record(2, (1, 2), 0), 5)
    assert not suite.damage.anyone()


def all_are_equal(*history: BatchWritten | LogCut, begin: int = 0) -> bool:
    suite = Suite(frozenset({101}))
    for at_ms, observation in enumerate(history):
        suite.observe(observation, at_ms)
    return suite.shadows.are_equal(TP, (1, 2), begin)


def test_replicas_need_equal_logs_except_for_deleted_prefixes() -> None:
    """Replica 2 loses power, fetches everything again, and lacks only records that were deleted since."""
    ends = ((0, 2), (2, 4), (4, 6), (6, 8))
    first, second, third, last = (batch(1, *end, log=TP) for end in ends)
    again = [batch(2, *end, log=TP) for end in ends[1:]]
    begun_anew, pruned = LogCut(2, TP, 2, 2), LogCut(1, TP, 4, 8)
    whole = (first, second, third, last)
    assert all_are_equal(*whole, pruned, begun_anew, *again)
    assert all_are_equal(*whole, begun_anew, *again, pruned)
    assert not all_are_equal(*whole, begun_anew, *again), "nobody deleted what is missing"
    assert all_are_equal(*whole, begun_anew, *again, begin=begun_anew.start_offset), "the leader gives it out no more"
    assert not all_are_equal(*whole, begun_anew, *again[:-1], begin=begun_anew.start_offset)
    assert not all_are_equal(*whole, pruned, begun_anew, *again[:-1])
    assert not all_are_equal(*whole, pruned, begun_anew, *again[:-1], batch(2, 6, 8, epoch=2, log=TP))
    assert not all_are_equal(*whole, pruned, LogCut(2, TP, 6, 6), again[-1]), "one batch that retention left is missing"


def after_a_loss(*more: BrokerRegistered | NodeDown | Restarted) -> set[str]:
    """Replica 2 acknowledges a batch to its leader, and loses power. The ISR is recorded without 3 before 2 is back,
    and then the high watermark advances. Return the checks that fail."""
    suite = Suite(frozenset({101}))
    leader = PartitionSeen(1, 1, TP, True, 0, frozenset({1, 2}), frozenset({1, 2}), 2, 0, 0, 0, 1)
    for node in (1, 2):
        suite.observe(batch(node, 0, 1, epoch=0, log=TP), 0)
    suite.observe(leader, 0)
    suite.damage.lost(2, TP)
    moved = replace(leader, high_watermark=1, last_stable_offset=1)
    for observation in (LogCut(2, TP, 0, 0), *more, record(1, (1, 2), 1), moved):
        suite.observe(observation, 1)
    return {finding.check for finding in suite.findings}


def test_checks_accept_a_leader_that_counts_a_followers_lost_records_until_its_broker_registers_again() -> None:
    assert not after_a_loss()
    assert after_a_loss(BrokerRegistered(2, 9)) == {"D4"}
    assert not after_a_loss(NodeDown(2), BrokerRegistered(2, 9, 1))
    assert not after_a_loss(NodeDown(2), Restarted(2, 2, False, False), BrokerRegistered(2, 9, 1))
    assert after_a_loss(NodeDown(2), Restarted(2, 2, False, False), BrokerRegistered(2, 9, 2)) == {"D4"}


def corrupt_and_truncate(*ends_after: int, is_corrupt: bool = True, start_after: int = 0) -> set[str]:
    """Return the checks that fail in this history. Four batches are committed, and the one at offset 4 is corrupted on
    replica 2. The replica's log is truncated while it runs to each of these ends, and refilled after each. From then on
    it begins at `start_after`. Then the replica is observed."""
    suite = Suite(frozenset({101}))
    ends = ((0, 2), (2, 4), (4, 6), (6, 8))
    history = [
        record(1, (1, 2), 0),
        *(batch(node, *end, log=TP) for end in ends for node in (1, 2)),
        PartitionSeen(1, 1, TP, True, 1, frozenset({1, 2}), frozenset({1, 2}), 1, 0, 8, 8, 8),
    ]
    for observation in history:
        suite.observe(observation, 0)
    if is_corrupt:
        suite.damage.corrupt(2, TP, 4, 6)
    for end_after in ends_after:
        suite.observe(LogCut(2, TP, start_after, end_after), 1)
        for base, end in ends:
            if base >= end_after:
                suite.observe(batch(2, base, end, log=TP), 1)
    shown = PartitionSeen(2, 1, TP, False, 1, frozenset({1, 2}), frozenset(), 1, start_after, 4, 4, 8)
    suite.observe(shown, 1)
    return {finding.check for finding in suite.findings}


def test_checks_accept_a_truncation_of_committed_records_only_exactly_at_a_corrupt_batch() -> None:
    assert "D9" not in corrupt_and_truncate(4)
    assert "D9" in corrupt_and_truncate(6)
    assert "D9" in corrupt_and_truncate(2)
    assert "D9" in corrupt_and_truncate(4, is_corrupt=False)


def test_a_corrupt_batch_already_truncated_excuses_no_further_truncation() -> None:
    assert "D9" not in corrupt_and_truncate(6, 4), "file by file, from the last one on"
    assert "D9" in corrupt_and_truncate(4, 4)
    assert "D9" in corrupt_and_truncate(4, 6)


def test_a_corrupt_batch_deleted_with_the_log_prefix_excuses_no_truncation() -> None:
    assert "D9" not in corrupt_and_truncate(8, 6, 4, start_after=4), "it is the first of the log now"
    assert "D9" in corrupt_and_truncate(8, 6, 4, start_after=6)


def leads(node: int, epoch: int, high_watermark: int) -> PartitionSeen:
    """Return an observation of a leader with replicas 1 and 3 in sync."""
    marks = (0, high_watermark, high_watermark, high_watermark)
    return PartitionSeen(node, 1, TP, True, epoch, frozenset({1, 3}), frozenset({1, 3}), 2, *marks)


def test_checks_accept_a_leader_of_a_past_epoch_that_lacks_records_acknowledged_in_later_epochs() -> None:
    """The past leader had been frozen in between (seed 3278 of 15 s)."""
    written = [batch(node, 0, 5, epoch=2, log=TP) for node in (1, 3)]
    acknowledged = [*written, leads(3, 2, 5), ProduceAcknowledged(TP, 0, 5)]
    assert "D1" not in findings(*acknowledged, leads(2, 1, 0))
    assert "D1" in findings(*acknowledged, leads(2, 3, 0))


def test_the_isr_of_a_leader_of_a_past_epoch_excuses_no_loss_of_records_acknowledged_in_a_later_epoch() -> None:
    """The damaged log of the late leader excuses no loss of records that other replicas have acknowledged since."""
    suite = Suite(frozenset({101}))
    suite.damage.lost(2, TP)
    late = replace(leads(2, 1, 0), isr=frozenset({2}), maximal_isr=frozenset({2}))
    written = [batch(node, 0, 5, epoch=2, log=TP) for node in (1, 3)]
    for observation in (*written, leads(3, 2, 5), late, ProduceAcknowledged(TP, 0, 5), leads(4, 3, 0)):
        suite.observe(observation, 0)
    assert "D1" in {finding.check for finding in suite.findings}


@pytest.mark.parametrize(("is_steady_at_first", "found"), [(False, set()), (True, {"K4b"})])
def test_checks_accept_a_vote_request_delayed_by_the_disk_until_a_leader_has_contact_with_a_majority(
    is_steady_at_first: bool, found: set[str]
) -> None:
    """The candidate's disk was slow (seed 4009 of 15 s)."""
    steady = [is_steady_at_first]
    check = EpochsAreSteady(lambda: steady[-1])
    check.readers()[RoleSeen](RoleSeen(101, 1, 6, True, 101, True, 0, 0, 0))
    check.readers()[RoleSeen](RoleSeen(102, 1, 7, False, None, True, 0, 0, 0))
    steady.append(True)
    check.readers()[EpochClaimed](EpochClaimed(102, 7, -1))
    assert {finding.check for finding in check.findings} == found


@pytest.mark.parametrize(("came_back_with", "due"), [(3, set()), (2, {"R11"})])
def test_checks_accept_a_voter_that_restarts_without_its_uncommitted_tail(came_back_with: int, due: set[str]) -> None:
    """The voter was leader, with the tail on its disk; its successor has since committed as many records at the same
    offsets."""
    common = [seen for node in (101, 102) for seen in (batch(node, 0, 3), LogDurable(node, None, 3))]
    history = (
        *common,
        RoleSeen(102, 1, 1, True, 102, True, 3, 3, 0),
        batch(102, 3, 6),
        LogDurable(102, None, 6),
        RoleSeen(101, 1, 2, True, 101, True, 3, 3, 0),
        batch(101, 3, 6, epoch=2),
        LogDurable(101, None, 6),
        RoleSeen(101, 1, 2, True, 101, True, 6, 6, 0),
        NodeDown(102),
        LogCut(102, None, 0, came_back_with),
        Restarted(102, 2, clean=False, wiped=False),
        RoleSeen(102, 2, 2, False, 101, True, -1, came_back_with, 0),
    )
    assert findings(*history) & {"R11"} == due


def test_checks_tell_the_commits_of_two_groups_apart_although_they_have_the_same_number() -> None:
    first = CommitRequested(1, "readers", "a", 1, {TP: 5})
    other = CommitRequested(1, "others", "b", 1, {("payments", 0): 9})
    answers = CommitAnswered(1, "readers", frozenset({TP})), CommitAnswered(1, "others", frozenset({("payments", 0)}))
    assert not findings(first, other, *answers)
