"""SyncGroup: its effect in each state of a group, and when a generation is durable.

Source: SyncGroupRequest, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

import pytest

from kraft.wire.error_codes import ErrorCode
from tests.stages.group_bench import REBALANCE_MS, SESSION_MS, Bench


def completing(*, commits_at_once: bool = False) -> tuple[Bench, str, str]:
    """A group of two in generation 3: nobody has synced. What is written from here on waits."""
    bench = Bench()
    leader, follower = bench.stable(None, None)
    bench.rejoin(leader)
    bench.rejoin(follower)
    bench.commits_at_once = commits_at_once
    return bench, leader, follower


def test_nobody_is_told_an_assignment_before_it_is_committed() -> None:
    bench, leader, follower = completing()
    waiting = bench.sync(follower, 3)
    leading = bench.sync(leader, 3, (leader, b"L"), (follower, b"F"))
    assert (waiting.is_parked, leading.is_parked, bench.state) == (True, True, "CompletingRebalance")
    bench.commit()
    assert (waiting.reply.assignment, leading.reply.assignment, bench.state) == (b"F", b"L", "Stable")
    assert (waiting.reply.protocol_type, waiting.reply.protocol) == ("consumer", "range")


def test_a_follower_that_syncs_late_gets_its_own_assignment() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    bench.sync(leader, 3, (leader, b"L"), (follower, b"F"))
    assert bench.sync(follower, 3).reply.assignment == b"F"
    assert bench.sync(leader, 3).reply.assignment == b"L"


def test_a_member_that_the_leader_forgot_gets_nothing() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    waiting = bench.sync(follower, 3)
    bench.sync(leader, 3, (leader, b"L"))
    assert (waiting.error, waiting.reply.assignment) == (ErrorCode.NONE, b"")


@pytest.mark.parametrize("appended", [True, False])
def test_assignments_that_may_be_lost_send_everybody_back_to_join(appended: bool) -> None:
    bench, leader, follower = completing()
    waiting = bench.sync(follower, 3)
    if not appended:
        bench.refuses_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    leading = bench.sync(leader, 3, (leader, b"L"), (follower, b"F"))
    bench.lose()
    assert waiting.error is leading.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.state == "PreparingRebalance"


def test_assignments_of_a_generation_that_is_over_count_for_nothing() -> None:
    bench, leader, follower = completing()
    leading = bench.sync(leader, 3, (leader, b"L"), (follower, b"F"))
    newcomer = bench.join()
    assert leading.error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.commit()
    assert (bench.state, newcomer.is_parked) == ("PreparingRebalance", True)


def test_a_sync_from_another_generation_is_illegal_and_from_a_preparing_group_too_early() -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    assert bench.sync(follower, 1).error is ErrorCode.ILLEGAL_GENERATION
    assert bench.sync(follower, 3).error is ErrorCode.ILLEGAL_GENERATION
    bench.rejoin(leader)
    assert bench.sync(follower, 2).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("fields", [{"protocol_type": "connect"}, {"protocol": "roundrobin"}])
def test_a_sync_that_names_another_protocol_is_inconsistent(fields: dict[str, str]) -> None:
    bench, _, follower = completing()
    assert bench.sync(follower, 3, **fields).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_second_sync_of_a_member_takes_the_place_of_the_first() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    first, second = bench.sync(follower, 3), bench.sync(follower, 3)
    bench.sync(leader, 3, (follower, b"F"))
    assert (first.error, second.reply.assignment) == (ErrorCode.REBALANCE_IN_PROGRESS, b"F")


@pytest.mark.parametrize("is_first_lost", [False, True])
def test_of_what_a_leader_sends_twice_the_last_counts_as_it_does_after_a_move(*, is_first_lost: bool) -> None:
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


def test_members_that_never_sync_are_out_when_the_time_is_over_and_the_others_go_on() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    bench.sync(leader, 3, (leader, b"L"), (follower, b"F"))
    for _ in range(REBALANCE_MS // 5_000):
        bench.sleep(5_000)
        bench.heartbeat(leader, 3)
        bench.heartbeat(follower, 3)
    assert (list(bench.group.members), bench.state) == ([leader], "PreparingRebalance")


def test_a_leader_that_never_syncs_does_not_hold_the_group_for_ever() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    waiting = bench.sync(follower, 3)
    for _ in range(REBALANCE_MS // 5_000):
        bench.sleep(5_000)
        bench.heartbeat(leader, 3)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.rejoin(follower).reply.leader == follower


def test_while_a_sync_is_parked_the_session_cannot_end() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    waiting = bench.sync(follower, 3)
    for _ in range(3):
        bench.sleep(SESSION_MS - 1)
        bench.heartbeat(leader, 3)
    assert waiting.is_parked
    bench.sync(leader, 3, (follower, b"F"))
    assert waiting.reply.assignment == b"F"
    bench.sleep(SESSION_MS - 1)
    assert bench.heartbeat(follower, 3) is ErrorCode.NONE, "it begins anew with the answer"


def test_after_a_move_the_group_is_what_its_last_sync_wrote() -> None:
    bench, leader, follower = completing(commits_at_once=True)
    bench.sync(leader, 3, (leader, b"L"), (follower, b"F"))
    parked = bench.join()
    bench.move()
    assert parked.error is ErrorCode.NOT_COORDINATOR
    assert (bench.state, bench.group.generation) == ("Stable", 3)
    assert bench.heartbeat(follower, 3) is ErrorCode.NONE
    assert bench.sync(follower, 3).reply.assignment == b"F"
    assert bench.group.subscribed == {"orders"}


def test_a_generation_that_was_never_synced_is_handed_out_again_after_a_move() -> None:
    bench, leader, _ = completing()
    bench.move()
    assert bench.group.generation == 2
    assert bench.sync(leader, 3).error is ErrorCode.ILLEGAL_GENERATION
