"""LeaderState, the leader's side of a partition: high watermark, in-sync set, epochs."""

from __future__ import annotations

from uuid import UUID

from kraft.broker.replica.isr import AnswerVerdict, IsrAnswer, IsrChange
from kraft.broker.replica.leader import LeaderState, removed_from_isr
from kraft.image.partitions import PartitionState, RecoveryState
from kraft.image.registrations import LOST_DIRECTORY
from kraft.wire.error_codes import ErrorCode

LAG_MS = 30_000
ELIGIBLE = {1: 11, 2: 12, 3: 13}


def partition_state(isr: tuple[int, ...] = (1, 2, 3), **changes: object) -> PartitionState:
    state = PartitionState(replicas=(1, 2, 3), isr=isr, leader=1, leader_epoch=5, partition_epoch=7)
    return state._replace(**changes)  # type: ignore[arg-type]


def leader(
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    end: int = 100,
    high_watermark: int = 90,
    min_isr: int = 1,
    now_ms: int = 0,
    **changes: object,
) -> LeaderState:
    return LeaderState(
        1,
        partition_state(isr, **changes),
        log_end_offset=end,
        own_acked_offset=end,
        high_watermark=high_watermark,
        min_isr=min_isr,
        lag_ms_max=LAG_MS,
        now_ms=now_ms,
    )


def fetch(state: LeaderState, broker_id: int, offset: int, now_ms: int = 1, broker_epoch: int | None = None):  # type: ignore[no-untyped-def]
    epoch = ELIGIBLE[broker_id] if broker_epoch is None else broker_epoch
    return state.fetched(broker_id, offset, 0, state.log_end_offset, now_ms, epoch, ELIGIBLE)


def test_a_new_leader_keeps_its_high_watermark_until_every_member_has_fetched_once() -> None:
    state = leader()
    assert not fetch(state, 2, 100).high_watermark_moved
    assert state.high_watermark == 90
    assert fetch(state, 3, 95).high_watermark_moved
    assert state.high_watermark == 95


def test_a_followers_fetch_offset_counts_as_its_log_end() -> None:
    state = leader((1, 2), min_isr=2)
    fetch(state, 2, 100)
    assert state.high_watermark == 100
    assert not state.appended(110, 110, 1, ELIGIBLE)
    assert not fetch(state, 2, 100).high_watermark_moved
    assert fetch(state, 2, 110).high_watermark_moved
    assert state.high_watermark == 110


def test_a_leader_that_is_the_only_replica_moves_the_high_watermark_with_each_append() -> None:
    state = leader((1,), replicas=(1,))
    assert state.appended(101, 101, 1, ELIGIBLE)
    assert state.high_watermark == 101


def test_a_leader_without_in_sync_followers_moves_the_high_watermark_with_each_append() -> None:
    state = leader((1,), end=100, high_watermark=100)
    assert state.appended(101, 101, 1, ELIGIBLE)
    assert state.high_watermark == 101


def test_the_high_watermark_does_not_move_while_the_isr_is_smaller_than_min_isr() -> None:
    state = leader((1,), min_isr=2, end=100, high_watermark=100)
    assert not state.appended(101, 101, 1, ELIGIBLE)
    assert state.high_watermark == 100
    assert not state.has_enough_replicas


def test_the_effective_min_isr_is_at_most_the_number_of_assigned_replicas() -> None:
    state = leader((1,), min_isr=3, replicas=(1,), end=100, high_watermark=100)
    assert state.has_enough_replicas
    assert state.appended(101, 101, 1, ELIGIBLE)


def test_lowering_min_isr_lets_the_high_watermark_move() -> None:
    state = leader((1,), min_isr=2, end=100, high_watermark=90)
    assert state.min_isr_changed(1, 1, ELIGIBLE).high_watermark_moved
    assert state.high_watermark == 100


def test_a_replica_at_the_high_watermark_and_epoch_start_is_proposed_for_the_isr() -> None:
    state = leader((1, 2), end=100, high_watermark=90)
    fetch(state, 2, 100)
    assert fetch(state, 3, 99).proposal is None, "not yet at the start of this leader's epoch"
    proposal = fetch(state, 3, 100).proposal
    assert proposal is not None
    assert proposal.change is IsrChange.EXPAND
    assert proposal.members == ((1, -1), (2, 12), (3, 13))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (5, 7)


def test_a_replica_below_the_high_watermark_is_not_proposed_for_the_isr() -> None:
    state = leader((1, 2), end=100, high_watermark=90)
    state.appended(150, 150, 1, ELIGIBLE)
    fetch(state, 2, 150)
    assert fetch(state, 3, 120).proposal is None


def test_only_the_registered_incarnation_of_an_eligible_broker_is_proposed_for_the_isr() -> None:
    for eligible, epoch in (({1: 11, 2: 12}, 13), ({1: 11, 2: 12, 3: 99}, 13)):
        state = leader((1, 2))
        fetch(state, 2, 100)
        effects = state.fetched(3, 100, 0, 100, 1, epoch, eligible)
        assert effects.proposal is None


def test_only_one_isr_change_is_pending_at_a_time() -> None:
    state = leader((1,), high_watermark=100)
    assert fetch(state, 2, 100).proposal is not None
    assert fetch(state, 3, 100).proposal is None
    assert state.check_lag(LAG_MS * 10) is None


def test_a_joining_replica_bounds_the_high_watermark_before_the_controller_agrees() -> None:
    state = leader((1,), high_watermark=100)
    fetch(state, 2, 100)
    assert not state.appended(110, 110, 2, ELIGIBLE)
    assert state.high_watermark == 100
    fetch(state, 2, 105)
    assert state.high_watermark == 105


def test_a_caught_up_replica_waiting_for_its_proposal_bounds_the_high_watermark() -> None:
    state = leader((1,), high_watermark=100)
    fetch(state, 2, 100)
    fetch(state, 3, 100)
    state.appended(110, 110, 2, ELIGIBLE)
    fetch(state, 2, 110, now_ms=3)
    assert state.high_watermark == 100, "3 has no pending change, but it is about to join"
    later = 3 + LAG_MS + 1
    state.appended(111, 111, later, ELIGIBLE)
    fetch(state, 2, 111, now_ms=later)
    assert state.high_watermark == 111, "3 has not caught up for too long"


def test_a_lagging_isr_member_holds_the_high_watermark_back_until_its_removal_is_committed() -> None:
    state = leader((1, 2, 3), min_isr=2, end=100, high_watermark=100)
    fetch(state, 2, 100)
    fetch(state, 3, 100)
    state.appended(110, 110, 2, ELIGIBLE)
    later = LAG_MS + 100
    fetch(state, 2, 110, now_ms=later)
    proposal = state.check_lag(later)
    assert proposal is not None
    assert proposal.change is IsrChange.SHRINK
    assert [broker_id for broker_id, _ in proposal.members] == [1, 2]
    assert state.high_watermark == 100
    answer = IsrAnswer(ErrorCode.NONE, leader_epoch=5, partition_epoch=8, isr=(1, 2))
    assert state.answered(proposal, answer, later, ELIGIBLE) == (AnswerVerdict.COMMITTED, True)
    assert state.high_watermark == 110


def test_an_isr_member_that_is_always_slightly_behind_stays_in_sync() -> None:
    state = leader((1, 2), end=0, high_watermark=0)
    for step in range(1, 200):
        fetch(state, 2, (step - 1) * 10, now_ms=step * 1000)
        state.appended(step * 10, step * 10, step * 1000, ELIGIBLE)
        fetch_end = state.log_end_offset
        assert fetch_end == step * 10
        assert state.check_lag(step * 1000) is None


def test_an_isr_member_that_stops_fetching_is_removed() -> None:
    state = leader((1, 2, 3), now_ms=0)
    fetch(state, 2, 100, now_ms=20_000)
    assert state.check_lag(LAG_MS) is None
    proposal = state.check_lag(LAG_MS + 1)
    assert proposal is not None
    assert proposal.ids == {1, 2}


def test_a_rejected_isr_change_is_reverted_and_may_be_proposed_again() -> None:
    for error in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
        state = leader((1,), high_watermark=100)
        proposal = fetch(state, 2, 100).proposal
        assert proposal is not None
        verdict, _ = state.answered(proposal, IsrAnswer(error), 1, {1: 11})
        assert verdict is AnswerVerdict.REVERTED
        assert state.isr.maximal == {1}
        assert fetch(state, 2, 100).proposal is not None


def test_an_ambiguous_alter_partition_response_keeps_the_isr_change_pending_until_metadata_decides() -> None:
    for error in (
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NEW_LEADER_ELECTED,
    ):
        state = leader((1,), high_watermark=100)
        proposal = fetch(state, 2, 100).proposal
        assert proposal is not None
        assert state.answered(proposal, IsrAnswer(error), 1, ELIGIBLE) == (AnswerVerdict.AWAIT_METADATA, False)
        assert state.isr.maximal == {1, 2}
        state.metadata_changed(partition_state((1,), partition_epoch=8), 2, ELIGIBLE)
        assert state.isr.pending is None
        assert state.isr.maximal == {1}


def test_an_alter_partition_response_that_arrives_after_newer_metadata_is_ignored() -> None:
    state = leader((1,), high_watermark=100)
    proposal = fetch(state, 2, 100).proposal
    assert proposal is not None
    state.metadata_changed(partition_state((1, 2), partition_epoch=8), 2, ELIGIBLE)
    answer = IsrAnswer(ErrorCode.NONE, leader_epoch=5, partition_epoch=8, isr=(1, 2))
    assert state.answered(proposal, answer, 3, ELIGIBLE) == (AnswerVerdict.STALE, False)


def test_an_isr_change_with_a_retriable_error_is_sent_again() -> None:
    state = leader((1,), high_watermark=100)
    proposal = fetch(state, 2, 100).proposal
    assert proposal is not None
    verdict, _ = state.answered(proposal, IsrAnswer(ErrorCode.UNKNOWN_SERVER_ERROR), 1, ELIGIBLE)
    assert verdict is AnswerVerdict.RETRY
    assert state.isr.pending is proposal


def test_metadata_with_an_older_partition_epoch_changes_nothing() -> None:
    state = leader((1, 2))
    state.metadata_changed(partition_state((1,), partition_epoch=6), 1, ELIGIBLE)
    assert state.isr.committed == {1, 2}


def test_metadata_already_known_from_an_alter_partition_response_keeps_a_later_isr_change_pending() -> None:
    """The controller may still accept the pending change. So the high watermark must not pass the log end of the
    replica that would join."""
    state = leader(end=103, high_watermark=100)
    fetch(state, 3, 103, LAG_MS)
    state.appended(110, 110, LAG_MS, ELIGIBLE)
    fetch(state, 2, 104, LAG_MS + 1)
    shrink = state.check_lag(LAG_MS + 2)
    assert shrink is not None
    assert shrink.ids == {1, 3}
    committed = IsrAnswer(ErrorCode.NONE, leader_epoch=5, partition_epoch=8, isr=(1, 3))
    assert state.answered(shrink, committed, LAG_MS + 3, ELIGIBLE)[0] is AnswerVerdict.COMMITTED
    asked = state.eligible_changed(ELIGIBLE)
    assert asked is not None
    assert asked.ids == {1, 2, 3}
    fetch(state, 3, 110, LAG_MS + 4)
    state.metadata_changed(partition_state((1, 3), partition_epoch=8), LAG_MS + 4, ELIGIBLE)
    assert state.isr.pending is asked
    assert state.high_watermark == 104, "2 ends there"


def test_an_unclean_leader_reports_that_it_has_recovered() -> None:
    state = leader((1,), leader_recovery_state=RecoveryState.RECOVERING, high_watermark=100)
    proposal = state.check_lag(1)
    assert proposal is not None
    assert proposal.change is IsrChange.RECOVER
    assert proposal.ids == {1}
    answer = IsrAnswer(ErrorCode.NONE, leader_epoch=5, partition_epoch=8, isr=(1,))
    state.answered(proposal, answer, 1, ELIGIBLE)
    assert state.check_lag(2) is None


def test_a_produce_is_acknowledged_if_committed_and_joining_isr_members_reach_min_isr() -> None:
    state = leader((1, 2), min_isr=2)
    assert state.acknowledgement_error() == ErrorCode.NONE
    state.metadata_changed(partition_state((1,), partition_epoch=8), 2, ELIGIBLE)
    assert state.acknowledgement_error() == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert state.brokers_changed(2, ELIGIBLE).proposal is None, "2 has not fetched yet"
    assert fetch(state, 2, 100).proposal is not None
    assert state.acknowledgement_error() == ErrorCode.NONE


def test_a_leader_whose_appends_must_be_synced_counts_only_its_synced_records() -> None:
    state = leader((1, 2), end=100, high_watermark=100)
    fetch(state, 2, 100)
    state.appended(110, 100, 1, ELIGIBLE)
    fetch(state, 2, 110)
    assert state.high_watermark == 100
    assert state.synced(110, 2, ELIGIBLE)
    assert state.high_watermark == 110


def test_the_low_watermark_counts_only_live_replicas() -> None:
    state = leader()
    assert state.low_watermark(50, ELIGIBLE) == -1
    state.fetched(2, 100, 40, 100, 1, 12, ELIGIBLE)
    assert state.low_watermark(50, {1: 11, 2: 12}) == 40


def test_the_leader_recognizes_a_fetch_of_an_older_incarnation_of_a_follower() -> None:
    state = leader()
    fetch(state, 2, 100, broker_epoch=12)
    assert not state.knows_incarnation(2, 11)
    assert state.knows_incarnation(2, 12)
    assert state.knows_incarnation(2, 13)


def test_a_caught_up_replica_is_proposed_when_its_broker_becomes_eligible() -> None:
    state = leader((1, 2))
    fetch(state, 2, 100)
    assert state.fetched(3, 100, 0, 100, 1, 13, {1: 11, 2: 12}).proposal is None
    assert state.eligible_changed({1: 11, 2: 12}) is None
    proposal = state.eligible_changed(ELIGIBLE)
    assert proposal is not None
    assert proposal.ids == {1, 2, 3}
    assert state.eligible_changed(ELIGIBLE) is None, "it is pending"


def test_a_replica_with_a_lost_log_blocks_no_high_watermark_and_joins_only_after_a_new_fetch() -> None:
    state = leader()
    for broker_id in (2, 3):
        fetch(state, broker_id, 100)
    here = UUID(int=200)
    lost = partition_state((1, 2), partition_epoch=8, directories=(here, here, LOST_DIRECTORY))
    state.metadata_changed(lost, 2, ELIGIBLE)
    assert state.eligible_changed(ELIGIBLE) is None
    state.appended(110, 110, 2, ELIGIBLE)
    assert fetch(state, 2, 110).high_watermark_moved
    assert state.high_watermark == 110
    proposal = fetch(state, 3, 110).proposal
    assert proposal is not None, "it has a log again"
    assert proposal.ids == {1, 2, 3}


def test_a_replica_in_an_offline_directory_is_neither_waited_for_nor_proposed() -> None:
    state = leader((1, 2, 3))
    for broker_id in (2, 3):
        fetch(state, broker_id, 100)
    state.metadata_changed(partition_state((1, 2), partition_epoch=8), 2, ELIGIBLE, frozenset({3}))
    state.appended(110, 110, 2, ELIGIBLE)
    assert fetch(state, 2, 110).high_watermark_moved
    assert fetch(state, 3, 110).proposal is None
    assert state.readmit_removed(3, ELIGIBLE) is None
    assert state.brokers_changed(3, ELIGIBLE, frozenset({3})).proposal is None
    proposal = state.brokers_changed(3, ELIGIBLE).proposal
    assert proposal is not None, "it is online again"
    assert proposal.ids == {1, 2, 3}


def test_a_followers_log_end_is_unknown_before_its_first_fetch_and_after_its_log_is_lost() -> None:
    state = leader()
    assert state.has_not_reported(3)
    fetch(state, 3, 100)
    assert not state.has_not_reported(3)
    lost = partition_state((1, 2), partition_epoch=8, directories=(UUID(int=200), UUID(int=200), LOST_DIRECTORY))
    state.metadata_changed(lost, 2, ELIGIBLE)
    assert state.has_not_reported(3)
    assert not state.has_not_reported(-1), "a consumer"


def test_a_replica_removed_by_the_controller_is_proposed_after_a_broker_change_or_by_the_timer() -> None:
    for ends in (
        lambda state: state.brokers_changed(3, ELIGIBLE).proposal,
        lambda state: state.readmit_removed(3, ELIGIBLE),
    ):
        state = leader()
        for broker_id in (2, 3):
            fetch(state, broker_id, 100)
        state.metadata_changed(partition_state((1, 2), partition_epoch=8), 2, ELIGIBLE)
        assert state.eligible_changed(ELIGIBLE) is None
        assert fetch(state, 3, 100).proposal is None
        proposal = ends(state)
        assert proposal is not None
        assert proposal.ids == {1, 2, 3}


def test_the_high_watermark_does_not_wait_for_a_replica_removed_by_the_controller() -> None:
    state = leader(high_watermark=100)
    for broker_id in (2, 3):
        fetch(state, broker_id, 100)
    state.appended(110, 110, 2, ELIGIBLE)
    assert not fetch(state, 2, 110, now_ms=2).high_watermark_moved, "3 is in sync"
    assert state.metadata_changed(partition_state((1, 2), partition_epoch=8), 3, ELIGIBLE).high_watermark_moved
    assert state.high_watermark == 110


def test_the_high_watermark_moves_when_a_joining_replica_stops_being_eligible() -> None:
    state = leader((1, 2), high_watermark=100)
    fetch(state, 2, 100)
    assert fetch(state, 3, 100).proposal is not None
    state.appended(110, 110, 2, ELIGIBLE)
    fetch(state, 2, 110, now_ms=2)
    state.metadata_changed(partition_state((1, 2), partition_epoch=8), 3, ELIGIBLE)
    assert state.high_watermark == 100, "3 was at the end a moment ago, and is in line to join"
    assert state.brokers_changed(4, {1: 11, 2: 12}).high_watermark_moved
    assert state.high_watermark == 110


def test_a_new_leader_does_not_propose_a_replica_removed_by_the_controller() -> None:
    state = partition_state((1, 2))
    made = LeaderState(
        1,
        state,
        log_end_offset=0,
        own_acked_offset=0,
        high_watermark=0,
        min_isr=1,
        lag_ms_max=LAG_MS,
        now_ms=0,
        removed_by_controller=removed_from_isr((3,), state),
    )
    assert fetch(made, 3, 0).proposal is None
    assert made.brokers_changed(1, {1: 11, 2: 12}).proposal is None
    proposal = made.brokers_changed(2, ELIGIBLE).proposal
    assert proposal is not None
    assert proposal.ids == {1, 2, 3}


def test_a_replica_assigned_again_after_a_reassignment_is_proposed_when_caught_up() -> None:
    state = leader()
    fetch(state, 3, 100)
    moved = PartitionState((1, 2), (1, 2), 1, 5, 8)
    state.metadata_changed(moved, 2, ELIGIBLE)
    state.metadata_changed(partition_state((1, 2), partition_epoch=9), 3, ELIGIBLE)
    assert fetch(state, 3, 100, now_ms=3).proposal is not None
    state.metadata_changed(partition_state((1, 2, 3), partition_epoch=10), 4, ELIGIBLE)
    state.metadata_changed(partition_state((1, 2), partition_epoch=11), 5, ELIGIBLE)
    state.metadata_changed(moved._replace(partition_epoch=12), 6, ELIGIBLE)
    state.metadata_changed(partition_state((1, 2), partition_epoch=13), 7, ELIGIBLE)
    assert fetch(state, 3, 100, now_ms=7).proposal is not None, "nor is one that was taken out before it moved"
    assert removed_from_isr((3,), moved) == frozenset()


def test_a_replica_removed_by_its_leader_is_proposed_as_soon_as_it_has_caught_up() -> None:
    state = leader(high_watermark=100)
    later = LAG_MS + 1
    state.appended(110, 110, later, ELIGIBLE)
    fetch(state, 2, 110, now_ms=later)
    assert state.check_lag(later) is not None
    state.metadata_changed(partition_state((1, 2), partition_epoch=8), later, ELIGIBLE)
    assert fetch(state, 3, 110, now_ms=later).proposal is not None


def test_a_replica_removed_by_the_controller_during_a_pending_shrink_is_not_proposed() -> None:
    state = leader(high_watermark=100)
    later = LAG_MS + 1
    state.appended(110, 110, later, ELIGIBLE)
    fetch(state, 2, 110, now_ms=later)
    shrink = state.check_lag(later)
    assert shrink is not None
    assert shrink.ids == {1, 2}
    state.metadata_changed(partition_state((1, 3), partition_epoch=8), later, ELIGIBLE)
    assert fetch(state, 2, 110, now_ms=later).proposal is None


def test_the_timer_does_not_propose_a_removed_replica_that_has_fallen_behind() -> None:
    state = leader((1, 2, 3), min_isr=3, end=100, high_watermark=100)
    for broker_id in (2, 3):
        fetch(state, broker_id, 100)
    state.metadata_changed(partition_state((1,), partition_epoch=8), 2, ELIGIBLE)
    later = 2 + LAG_MS
    state.appended(110, 110, later, ELIGIBLE)
    assert state.readmit_removed(later, ELIGIBLE) is None
    fetch(state, 2, 110, now_ms=later)
    proposal = state.readmit_removed(later, ELIGIBLE)
    assert proposal is not None
    assert proposal.ids == {1, 2}
