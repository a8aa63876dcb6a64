"""Heartbeats, session expiry and departures of group members.

Source: HeartbeatRequest, LeaveGroupRequest, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

import pytest

from kraft.broker.group.requests import DeleteRequest, Leaver
from kraft.wire.error_codes import ErrorCode
from tests.stages.group_bench import GROUP, REBALANCE_MS, SESSION_MS, Bench


def test_the_error_code_of_a_heartbeat_response_depends_on_the_group_state() -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    assert bench.heartbeat(follower, 2) is ErrorCode.NONE
    assert bench.heartbeat(follower, 1) is ErrorCode.ILLEGAL_GENERATION
    bench.rejoin(leader)
    assert bench.heartbeat(follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    bench.rejoin(follower)
    assert bench.heartbeat(follower, 3) is ErrorCode.NONE


def test_a_silent_member_is_removed_at_its_session_timeout_but_not_one_that_sends_requests() -> None:
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


def test_a_session_does_not_expire_while_a_join_is_parked() -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    waiting = bench.rejoin(leader)
    for _ in range(2):
        bench.sleep(SESSION_MS - 1)
        bench.heartbeat(follower, 2)
    assert waiting.is_parked
    assert leader in bench.group.members


def test_a_new_member_in_its_first_join_is_removed_after_five_minutes() -> None:
    bench = Bench(session_timeout_ms_max=2_000_000)
    (first,) = bench.stable(None, rebalance_timeout_ms=1_000_000, session_timeout_ms=1_000_000)
    newcomer = bench.join()
    bench.sleep(299_999)
    assert newcomer.is_parked
    bench.sleep(1)
    assert (newcomer.error, newcomer.reply.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert list(bench.group.members) == [first]


def test_a_join_phase_ends_when_its_last_missing_member_leaves_or_expires() -> None:
    for expires in (True, False):
        bench = Bench()
        leader, follower = bench.stable(None, None)
        waiting = bench.rejoin(leader)
        if expires:
            bench.sleep(SESSION_MS)
        else:
            assert bench.leave(follower) == [ErrorCode.NONE]
        assert waiting.reply.generation == 3


def test_the_join_phase_waits_for_an_issued_member_id_until_it_joins_or_expires() -> None:
    bench = Bench()
    (leader,) = bench.stable(None)
    pending = bench.join(requires_known_id=True).reply.member_id
    bench.sleep(1)
    waiting = bench.rejoin(leader)
    assert waiting.is_parked, "an issued member id is outstanding"
    bench.sleep(SESSION_MS - 1)
    assert (waiting.error, pending in bench.group.pending_join) == (ErrorCode.NONE, False)


@pytest.mark.parametrize("phase", ["stable", "completing", "preparing"])
def test_leave_group_of_an_issued_member_id_causes_no_rebalance(phase: str) -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    pending = bench.join(requires_known_id=True).reply.member_id
    waiting = bench.rejoin(leader) if phase != "stable" else None
    if phase == "completing":
        bench.sleep(SESSION_MS)  # the issued id and the follower are removed
        pending = bench.join(requires_known_id=True).reply.member_id
    before = (bench.state, bench.group.generation, set(bench.group.members))
    assert bench.leave(pending) == [ErrorCode.NONE]
    assert (bench.state, bench.group.generation, set(bench.group.members)) == before
    assert not bench.group.pending_join
    if phase == "preparing":
        assert waiting is not None
        assert waiting.is_parked
        bench.rejoin(follower)
        assert waiting.error is ErrorCode.NONE, "no other member is waited for"


def test_deleting_a_group_also_removes_its_issued_member_ids() -> None:
    bench = Bench()
    pending = bench.join(requires_known_id=True).reply.member_id
    assert bench.ask(DeleteRequest(GROUP)).error is ErrorCode.NONE
    assert not bench.machine.groups
    assert bench.join(member_id=pending).error is ErrorCode.UNKNOWN_MEMBER_ID
    bench.sleep(SESSION_MS)
    assert not bench.machine.groups


def test_the_join_timeout_removes_missing_dynamic_members_and_keeps_static_ones() -> None:
    bench = Bench()
    ids = bench.stable(None, None, "i1", session_timeout_ms=REBALANCE_MS * 10)
    waiting = bench.rejoin(ids[0], session_timeout_ms=REBALANCE_MS * 10)
    bench.sleep(REBALANCE_MS - 1)
    assert waiting.is_parked
    bench.sleep(1)
    assert waiting.error is ErrorCode.NONE
    assert list(bench.group.members) == [ids[0], ids[2]]


def test_a_join_phase_in_which_all_static_members_are_missing_waits_for_one_of_them() -> None:
    bench = Bench()
    ids = bench.stable("i1", None, session_timeout_ms=REBALANCE_MS * 10)
    bench.leave(ids[1])
    assert bench.state == "PreparingRebalance"
    bench.sleep(REBALANCE_MS)
    assert (bench.state, bench.group.generation) == ("PreparingRebalance", 2)
    assert bench.rejoin(ids[0]).reply.generation == 3


def test_a_group_whose_members_have_all_left_becomes_empty_and_is_written_as_empty() -> None:
    bench = Bench()
    ids = bench.stable(None, None)
    assert bench.leave(*ids) == [ErrorCode.NONE] * 2
    assert (bench.state, bench.group.generation) == ("Empty", 3)
    value = bench.machine.newest.groups[GROUP]
    assert (value.generation, value.members, value.protocol_type) == (3, (), "consumer")
    bench.move()
    assert (bench.state, bench.group.generation) == ("Empty", 3)


@pytest.mark.parametrize("parked", ["join", "sync"])
def test_a_parked_request_of_a_member_that_leaves_gets_unknown_member_id(parked: str) -> None:
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


def test_each_leaving_member_gets_its_own_error_code() -> None:
    bench = Bench()
    dynamic, static = bench.stable(None, "i1")
    leavers = (
        Leaver("unknown"),
        Leaver("", "i2"),
        Leaver("other", "i1"),
        Leaver(""),
        Leaver("", "i1"),
        Leaver(dynamic),
    )
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


def test_leaving_an_unknown_group_gives_an_error_for_each_member() -> None:
    assert Bench().leave("unknown") == [ErrorCode.UNKNOWN_MEMBER_ID]


# the initial delay


def test_the_initial_rebalance_delay_is_extended_while_new_members_join() -> None:
    bench = Bench(initial_rebalance_delay_ms=3_000)
    first = bench.join()
    bench.sleep(2_999)
    second = bench.join()
    bench.sleep(3_000)
    assert first.is_parked, "a new member joined: another delay"
    bench.sleep(1)
    assert first.reply.generation == second.reply.generation == 1
    assert len(first.reply.members) == 2


def test_the_initial_rebalance_ends_after_one_delay_if_no_other_member_joins() -> None:
    bench = Bench(initial_rebalance_delay_ms=3_000)
    first = bench.join()
    bench.sleep(2_999)
    assert first.is_parked
    bench.sleep(1)
    assert first.reply.generation == 1


def test_the_initial_rebalance_delays_sum_to_at_most_the_rebalance_timeout() -> None:
    bench = Bench(initial_rebalance_delay_ms=3_000)
    first = bench.join(rebalance_timeout_ms=7_000)
    for _ in range(6):
        bench.sleep(1_000)
        bench.join(rebalance_timeout_ms=7_000)
    assert first.is_parked
    bench.sleep(1_000)
    assert first.reply.generation == 1


def test_a_group_whose_first_members_leave_before_the_initial_delay_ends_is_empty() -> None:
    bench = Bench(initial_rebalance_delay_ms=3_000)
    bench.join()
    (member_id,) = bench.group.members
    bench.leave(member_id)
    assert bench.state == "Empty"
    bench.sleep(10_000)
    assert bench.group.generation == 1
