"""Static members that return after a restart (B52). Source: KIP-345."""

from __future__ import annotations

import pytest

from kraft.broker.group.requests import Leaver
from kraft.wire.error_codes import ErrorCode
from tests.stages.group_bench import GROUP, RANGE, SESSION_MS, Bench


def test_a_static_member_that_returns_to_a_stable_group_causes_no_rebalance() -> None:
    bench = Bench()
    leader, follower = bench.stable("i1", "i2")
    reply = bench.join(instance_id="i2").reply
    assert reply.member_id != follower
    assert (reply.error, reply.generation, reply.leader, bench.state) == (ErrorCode.NONE, 2, leader, "Stable")
    assert reply.members == ()
    assert bench.sync(reply.member_id, 2, instance_id="i2").reply.assignment == follower.encode()


def test_a_returning_static_leader_gets_the_members_and_skips_the_assignment() -> None:
    bench = Bench()
    bench.stable("i1", "i2")
    reply = bench.join(instance_id="i1").reply
    assert (reply.skip_assignment, reply.leader, len(reply.members)) == (True, reply.member_id, 2)


def test_a_returning_static_leader_whose_client_cannot_skip_assignment_is_not_named_leader() -> None:
    bench = Bench()
    old_leader, _ = bench.stable("i1", "i2")
    reply = bench.join(instance_id="i1", can_skip_assignment=False).reply
    assert (reply.leader, reply.members, reply.skip_assignment) == (old_leader, (), False)


def test_the_old_member_id_of_a_returned_static_member_is_fenced_at_once() -> None:
    bench = Bench(commits_at_once=True)
    _, old = bench.stable("i1", "i2")
    bench.commits_at_once = False
    assert bench.join(instance_id="i2").is_parked
    assert bench.heartbeat(old, 2, "i2") is ErrorCode.FENCED_INSTANCE_ID
    assert bench.heartbeat(old, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.sync(old, 2, instance_id="i2").error is ErrorCode.FENCED_INSTANCE_ID
    assert bench.join(old, instance_id="i2").error is ErrorCode.FENCED_INSTANCE_ID
    commit = bench.commit_offset(1, old, 2, instance_id="i2")
    assert commit.reply.rows[0].error is ErrorCode.FENCED_INSTANCE_ID


def test_a_returned_static_members_new_id_is_committed_before_it_is_sent() -> None:
    bench = Bench(commits_at_once=True)
    _, old = bench.stable("i1", "i2")
    bench.commits_at_once = False
    returning = bench.join(instance_id="i2")
    assert returning.is_parked
    bench.commit()
    bench.move()
    assert bench.heartbeat(returning.reply.member_id, 2, "i2") is ErrorCode.NONE
    assert bench.heartbeat(old, 2, "i2") is ErrorCode.FENCED_INSTANCE_ID


def test_the_return_of_a_static_member_is_undone_if_its_new_id_cannot_be_written() -> None:
    bench = Bench()
    _, old = bench.stable("i1", "i2")
    bench.refuses_appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.join(instance_id="i2", session_timeout_ms=SESSION_MS + 1).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.heartbeat(old, 2, "i2") is ErrorCode.NONE
    assert bench.group.members[old].session_timeout_ms == SESSION_MS


def test_a_parked_request_of_a_replaced_static_member_is_fenced() -> None:
    bench = Bench()
    _, old = bench.stable(None, "i2")
    parked = bench.rejoin(old, protocols=(*RANGE, ("sticky", b"")))
    assert bench.join(instance_id="i2").is_parked
    assert (parked.error, parked.reply.member_id) == (ErrorCode.FENCED_INSTANCE_ID, old)


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_a_static_member_returning_during_a_rebalance_waits_for_the_next_generation(state: str) -> None:
    bench = Bench()
    leader, follower = bench.stable(None, "i2")
    bench.rejoin(leader)
    if state == "CompletingRebalance":
        bench.rejoin(follower)
    assert bench.state == state
    returning = bench.join(instance_id="i2")
    if state == "CompletingRebalance":
        assert returning.is_parked
        bench.rejoin(leader)
    assert returning.reply.generation == bench.group.generation


def test_a_returning_static_member_that_changes_the_chosen_protocol_causes_a_rebalance() -> None:
    bench = Bench()
    both = (("a", b""), ("b", b""))
    (only,) = bench.stable("i1", protocols=both)
    assert only
    assert bench.join(instance_id="i1", protocols=(("b", b""),)).reply.protocol == "b"
    assert bench.group.generation == 2


def test_a_returned_static_members_new_timeouts_apply() -> None:
    bench = Bench()
    bench.stable("i1")
    returned = bench.join(instance_id="i1", session_timeout_ms=SESSION_MS * 2).reply.member_id
    bench.sleep(SESSION_MS * 2 - 1)
    assert returned in bench.group.members
    bench.sleep(1)
    assert bench.state == "Empty"


@pytest.mark.parametrize("is_written", [True, False])
def test_a_returned_static_members_new_subscription_applies_at_once(*, is_written: bool) -> None:
    bench = Bench()
    bench.stable("i1")
    bench.refuses_appends = None if is_written else ErrorCode.NOT_COORDINATOR
    bench.join(instance_id="i1", protocols=(("range", b"\0\0\0\0\0\1\0\5bills\0\0\0\0"),))
    bench.refuses_appends = None
    assert (bench.state, bench.group.generation) == ("Stable", 1)
    expected = {"bills" if is_written else "orders"}
    assert bench.group.subscribed == expected
    bench.move()
    assert bench.group.subscribed == expected


def test_the_record_for_a_returned_static_member_contains_all_assignments() -> None:
    bench = Bench()
    leader, follower = bench.stable("i1", "i2")
    new_id = bench.join(instance_id="i2").reply.member_id
    members = bench.machine.newest.groups[GROUP].members
    assert [(member.member_id, member.assignment) for member in members] == [
        (leader, leader.encode()),
        (new_id, follower.encode()),
    ]


def test_a_returning_static_member_is_answered_once_if_a_rebalance_begins_before_the_write() -> None:
    bench = Bench()
    leader, _ = bench.stable(None, "i2")
    bench.commits_at_once = False
    returning = bench.join(instance_id="i2")
    bench.rejoin(leader)
    assert returning.reply.generation == 3
    bench.commit()
    assert len(returning.replies) == 1


@pytest.mark.parametrize("ends", ["left", "unloaded"])
def test_a_returning_static_member_is_answered_once_if_it_is_removed_before_the_write(ends: str) -> None:
    bench = Bench()
    bench.stable(None, "i2")
    bench.commits_at_once = False
    returning = bench.join(instance_id="i2")
    assert returning.is_parked
    if ends == "left":
        bench.leave(Leaver("", "i2"))
        assert returning.error is ErrorCode.UNKNOWN_MEMBER_ID
        bench.lose()
    else:
        bench.move()
        assert returning.error is ErrorCode.NOT_COORDINATOR
    assert len(returning.replies) == 1
