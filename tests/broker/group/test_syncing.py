"""SyncGroup: its effect in each state of a group, and when a generation becomes durable.

Source: SyncGroupRequest, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

import pytest

from kraft.wire.error_codes import ErrorCode
from tests.stages.group_bench import REBALANCE_MS, SESSION_MS, Bench


def completing(*, commits_at_once: bool = False) -> tuple[Bench, str, str]:
    """Return a group of two in generation 3, in which no member has synced. Later writes stay uncommitted until the
    test commits them."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    bench.rejoin(leader)
    bench.rejoin(follower)
    bench.commits_at_once = commits_at_once
    return bench, leader, follower


def test_no_assignment_is_sent_before_it_is_committed() -> None:
    bench, leader, follower = completing()
    waiting = bench.sync(follower, 3)
    leading = bench.sync(leader, 3, (leader, b"L"), (follower, b"F"))
    assert (waiting.is_parked, leading.is_parked, bench.state) == (True, True, "CompletingRebalance")
    bench.commit()
    assert (waiting.reply.assignment, leading.reply.assignment, bench.state) == (b"F", b"L", "Stable")
    assert (waiting.reply.protocol_type, waiting.reply.protocol) == ("consumer", "range")


def test_a_member_that_syncs_after_the_leader_gets_its_own_assignment() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    bench.sync(leader, 3, (leader, b"L"), (follower, b"F"))
    assert bench.sync(follower, 3).reply.assignment == b"F"
    assert bench.sync(leader, 3).reply.assignment == b"L"


def test_a_member_without_assignment_from_the_leader_gets_an_empty_one() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    waiting = bench.sync(follower, 3)
    bench.sync(leader, 3, (leader, b"L"))
    assert (waiting.error, waiting.reply.assignment) == (ErrorCode.NONE, b"")


@pytest.mark.parametrize("appended", [True, False])
def test_all_members_rejoin_if_the_write_of_their_assignments_fails(appended: bool) -> None:
    bench, leader, follower = completing()
    waiting = bench.sync(follower, 3)
    if not appended:
        bench.refuses_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    leading = bench.sync(leader, 3, (leader, b"L"), (follower, b"F"))
    bench.lose()
    assert waiting.error is leading.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.state == "PreparingRebalance"


def test_committed_assignments_of_an_old_generation_are_ignored() -> None:
    bench, leader, follower = completing()
    leading = bench.sync(leader, 3, (leader, b"L"), (follower, b"F"))
    newcomer = bench.join()
    assert leading.error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.commit()
    assert (bench.state, newcomer.is_parked) == ("PreparingRebalance", True)


def test_a_sync_group_with_another_generation_or_during_a_join_phase_is_rejected() -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    assert bench.sync(follower, 1).error is ErrorCode.ILLEGAL_GENERATION
    assert bench.sync(follower, 3).error is ErrorCode.ILLEGAL_GENERATION
    bench.rejoin(leader)
    assert bench.sync(follower, 2).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("fields", [{"protocol_type": "connect"}, {"protocol": "roundrobin"}])
def test_a_sync_group_that_names_another_protocol_gets_inconsistent_group_protocol(fields: dict[str, str]) -> None:
    bench, _, follower = completing()
    assert bench.sync(follower, 3, **fields).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_second_sync_of_a_member_replaces_the_first() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    first, second = bench.sync(follower, 3), bench.sync(follower, 3)
    bench.sync(leader, 3, (follower, b"F"))
    assert (first.error, second.reply.assignment) == (ErrorCode.REBALANCE_IN_PROGRESS, b"F")


@pytest.mark.parametrize("is_first_lost", [False, True])
def test_the_second_of_two_assignments_sent_in_one_generation_is_used(*, is_first_lost: bool) -> None:
    bench, leader, follower = completing()
    first = bench.sync(leader, 3, (leader, b"1"), (follower, b"2"))
    if is_first_lost:
        lost, bench.waiting = bench.waiting, []
    second = bench.sync(leader, 3, (leader, b"2"), (follower, b"1"))
    if is_first_lost:
        bench.waiting, kept = lost, bench.waiting
        bench.lose()
        bench.waiting = kept
    bench.commit()
    assert (first.error, second.reply.assignment) == (ErrorCode.REBALANCE_IN_PROGRESS, b"2")
    assert bench.sync(follower, 3).reply.assignment == b"1"
    bench.move()
    assert [bench.sync(one, 3).reply.assignment for one in (leader, follower)] == [b"2", b"1"]


def test_members_that_never_sync_are_removed_at_the_timeout_and_the_others_rejoin() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    bench.sync(leader, 3, (leader, b"L"), (follower, b"F"))
    for _ in range(REBALANCE_MS // 5_000):
        bench.sleep(5_000)
        bench.heartbeat(leader, 3)
        bench.heartbeat(follower, 3)
    assert (list(bench.group.members), bench.state) == ([leader], "PreparingRebalance")


def test_a_leader_that_never_syncs_does_not_block_the_group_permanently() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    waiting = bench.sync(follower, 3)
    for _ in range(REBALANCE_MS // 5_000):
        bench.sleep(5_000)
        bench.heartbeat(leader, 3)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.rejoin(follower).reply.leader == follower


def test_a_session_does_not_expire_while_a_sync_is_parked() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    waiting = bench.sync(follower, 3)
    for _ in range(3):
        bench.sleep(SESSION_MS - 1)
        bench.heartbeat(leader, 3)
    assert waiting.is_parked
    bench.sync(leader, 3, (follower, b"F"))
    assert waiting.reply.assignment == b"F"
    bench.sleep(SESSION_MS - 1)
    assert bench.heartbeat(follower, 3) is ErrorCode.NONE, "the session restarts with the answer"


def test_a_coordinator_move_restores_the_group_as_its_last_sync_wrote_it() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    bench.sync(leader, 3, (leader, b"L"), (follower, b"F"))
    parked = bench.join()
    bench.move()
    assert parked.error is ErrorCode.NOT_COORDINATOR
    assert (bench.state, bench.group.generation) == ("Stable", 3)
    assert bench.heartbeat(follower, 3) is ErrorCode.NONE
    assert bench.sync(follower, 3).reply.assignment == b"F"
    assert bench.group.subscribed == {"orders"}


def test_an_unsynced_generation_number_is_used_again_after_a_coordinator_move() -> None:
    bench, leader, _ = completing()
    bench.move()
    assert bench.group.generation == 2
    assert bench.sync(leader, 3).error is ErrorCode.ILLEGAL_GENERATION
