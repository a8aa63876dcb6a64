"""Heartbeats, sessions and departures of members.

Source: HeartbeatRequest, LeaveGroupRequest, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

import pytest

from kraft.broker.group.requests import DeleteRequest, Leaver
from kraft.wire.error_codes import ErrorCode
from tests.stages.group_bench import GROUP, REBALANCE_MS, SESSION_MS, Bench


def test_a_heartbeat_is_answered_by_the_state_of_the_group() -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    assert bench.heartbeat(follower, 2) is ErrorCode.NONE
    assert bench.heartbeat(follower, 1) is ErrorCode.ILLEGAL_GENERATION
    bench.rejoin(leader)
    assert bench.heartbeat(follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    bench.rejoin(follower)
    assert bench.heartbeat(follower, 3) is ErrorCode.NONE


def test_a_member_that_is_heard_of_stays_and_one_that_is_not_goes_when_its_session_is_over() -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    for _ in range(5):
        bench.sleep(SESSION_MS // 2 - 1)
        bench.heartbeat(leader, 2)
        if follower in bench.group.members:
            bench.heartbeat(follower, 2)
    bench.sleep(SESSION_MS // 2)
    bench.heartbeat(leader, 2)
    bench.sleep(SESSION_MS // 2 - 1)
    assert list(bench.group.members) == [leader, follower]
    bench.sleep(1)
    assert (list(bench.group.members), bench.state) == ([leader], "PreparingRebalance")


def test_while_a_join_is_parked_the_session_cannot_end() -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    waiting = bench.rejoin(leader)
    for _ in range(2):
        bench.sleep(SESSION_MS - 1)
        bench.heartbeat(follower, 2)
    assert waiting.is_parked
    assert leader in bench.group.members


def test_a_new_member_in_its_first_join_is_given_up_after_five_minutes() -> None:
    bench = Bench(session_timeout_ms_max=2_000_000)
    (first,) = bench.stable(None, rebalance_timeout_ms=1_000_000, session_timeout_ms=1_000_000)
    newcomer = bench.join()
    bench.sleep(299_999)
    assert newcomer.is_parked
    bench.sleep(1)
    assert (newcomer.error, newcomer.reply.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert list(bench.group.members) == [first]


def test_the_last_member_that_is_missing_need_not_come_if_it_leaves_or_expires() -> None:
    for expires in (True, False):
        bench = Bench()
        leader, follower = bench.stable(None, None)
        waiting = bench.rejoin(leader)
        if expires:
            bench.sleep(SESSION_MS)
        else:
            assert bench.leave(follower) == [ErrorCode.NONE]
        assert waiting.reply.generation == 3


def test_an_id_that_was_given_out_holds_the_join_phase_until_it_comes_back_or_expires() -> None:
    bench = Bench()
    (leader,) = bench.stable(None)
    pending = bench.join(requires_known_id=True).reply.member_id
    bench.sleep(1)
    waiting = bench.rejoin(leader)
    assert waiting.is_parked, "somebody is on the way"
    bench.sleep(SESSION_MS - 1)
    assert (waiting.error, pending in bench.group.pending_join) == (ErrorCode.NONE, False)


@pytest.mark.parametrize("phase", ["stable", "completing", "preparing"])
def test_an_id_that_was_given_out_leaves_without_a_rebalance(phase: str) -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    pending = bench.join(requires_known_id=True).reply.member_id
    waiting = bench.rejoin(leader) if phase != "stable" else None
    if phase == "completing":
        bench.sleep(SESSION_MS)  # the id and the follower are given up
        pending = bench.join(requires_known_id=True).reply.member_id
    before = (bench.state, bench.group.generation, set(bench.group.members))
    assert bench.leave(pending) == [ErrorCode.NONE]
    assert (bench.state, bench.group.generation, set(bench.group.members)) == before
    assert not bench.group.pending_join
    if phase == "preparing":
        assert waiting is not None
        assert waiting.is_parked
        bench.rejoin(follower)
        assert waiting.error is ErrorCode.NONE, "nobody else is waited for"


def test_nothing_is_left_of_a_deleted_group_although_an_id_was_given_out() -> None:
    bench = Bench()
    pending = bench.join(requires_known_id=True).reply.member_id
    assert bench.ask(DeleteRequest(GROUP)).error is ErrorCode.NONE
    assert not bench.machine.groups
    assert bench.join(member_id=pending).error is ErrorCode.UNKNOWN_MEMBER_ID
    bench.sleep(SESSION_MS)
    assert not bench.machine.groups


def test_the_join_phase_ends_without_those_that_do_not_come_but_keeps_static_members() -> None:
    bench = Bench()
    ids = bench.stable(None, None, "i1", session_timeout_ms=REBALANCE_MS * 10)
    waiting = bench.rejoin(ids[0], session_timeout_ms=REBALANCE_MS * 10)
    bench.sleep(REBALANCE_MS - 1)
    assert waiting.is_parked
    bench.sleep(1)
    assert waiting.error is ErrorCode.NONE
    assert list(bench.group.members) == [ids[0], ids[2]]


def test_a_group_of_which_only_absent_static_members_are_left_waits_for_one_of_them() -> None:
    bench = Bench()
    ids = bench.stable("i1", None, session_timeout_ms=REBALANCE_MS * 10)
    bench.leave(ids[1])
    assert bench.state == "PreparingRebalance"
    bench.sleep(REBALANCE_MS)
    assert (bench.state, bench.group.generation) == ("PreparingRebalance", 2)
    assert bench.rejoin(ids[0]).reply.generation == 3


def test_a_group_that_everybody_has_left_is_empty_and_that_is_written() -> None:
    bench = Bench()
    ids = bench.stable(None, None)
    assert bench.leave(*ids) == [ErrorCode.NONE] * 2
    assert (bench.state, bench.group.generation) == ("Empty", 3)
    value = bench.machine.newest.groups[GROUP]
    assert (value.generation, value.members, value.protocol_type) == (3, (), "consumer")
    bench.move()
    assert (bench.state, bench.group.generation) == ("Empty", 3)


@pytest.mark.parametrize("parked", ["join", "sync"])
def test_who_leaves_while_a_request_waits_is_told_that_it_is_unknown(parked: str) -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    waiting = bench.rejoin(leader)
    if parked == "sync":
        bench.rejoin(follower)
        waiting = bench.sync(follower, 3)
        assert bench.leave(follower) == [ErrorCode.NONE]
    else:
        assert bench.leave(leader) == [ErrorCode.NONE]
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_each_leaving_member_has_its_own_answer() -> None:
    bench = Bench()
    dynamic, static = bench.stable(None, "i1")
    leavers = (Leaver("nobody"), Leaver("", "i2"), Leaver("other", "i1"), Leaver(""), Leaver("", "i1"), Leaver(dynamic))
    assert bench.leave(*leavers) == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert static not in bench.group.members
    assert bench.state == "Empty"


def test_leaving_an_unknown_group_is_an_error_of_each_member() -> None:
    assert Bench().leave("nobody") == [ErrorCode.UNKNOWN_MEMBER_ID]


# the initial delay


def test_the_first_rebalance_waits_for_more_members_again_while_they_come() -> None:
    bench = Bench(initial_rebalance_delay_ms=3_000)
    first = bench.join()
    bench.sleep(2_999)
    second = bench.join()
    bench.sleep(3_000)
    assert first.is_parked, "somebody came: once more"
    bench.sleep(1)
    assert first.reply.generation == second.reply.generation == 1
    assert len(first.reply.members) == 2


def test_the_first_rebalance_ends_after_one_delay_if_nobody_else_comes() -> None:
    bench = Bench(initial_rebalance_delay_ms=3_000)
    first = bench.join()
    bench.sleep(2_999)
    assert first.is_parked
    bench.sleep(1)
    assert first.reply.generation == 1


def test_the_delays_of_the_first_rebalance_together_are_no_longer_than_the_rebalance_time() -> None:
    bench = Bench(initial_rebalance_delay_ms=3_000)
    first = bench.join(rebalance_timeout_ms=7_000)
    for _ in range(6):
        bench.sleep(1_000)
        bench.join(rebalance_timeout_ms=7_000)
    assert first.is_parked
    bench.sleep(1_000)
    assert first.reply.generation == 1


def test_a_group_whose_first_members_all_leave_before_the_delay_is_over_is_empty() -> None:
    bench = Bench(initial_rebalance_delay_ms=3_000)
    bench.join()
    (member_id,) = bench.group.members
    bench.leave(member_id)
    assert bench.state == "Empty"
    bench.sleep(10_000)
    assert bench.group.generation == 1
