"""JoinGroup: admission of members, and its effect in each state of a group.

Source: JoinGroupRequest, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft.wire.error_codes import ErrorCode
from tests.stages.group_bench import RANGE, SESSION_MS, Bench

OTHER = (("roundrobin", b""),)
BOTH = (*RANGE, ("roundrobin", b""))


def preparing(*, commits_at_once: bool = True) -> tuple[Bench, list[str]]:
    """A group of two of which one waits for the next generation."""
    bench = Bench(commits_at_once=True)
    ids = bench.stable(None, None)
    bench.commits_at_once = commits_at_once
    bench.rejoin(ids[0])
    assert bench.state == "PreparingRebalance"
    return bench, ids


def completing() -> tuple[Bench, list[str]]:
    """A group of two that know their generation and have not synced."""
    bench, ids = preparing()
    bench.rejoin(ids[1])
    assert bench.state == "CompletingRebalance"
    return bench, ids


def test_the_first_member_of_a_group_leads_it_in_generation_one() -> None:
    bench = Bench()
    reply = bench.join().reply
    assert (reply.error, reply.generation, reply.leader) == (ErrorCode.NONE, 1, reply.member_id)
    assert reply.member_id.startswith("client-")
    assert [member[0] for member in reply.members] == [reply.member_id]
    assert (reply.protocol_type, reply.protocol) == ("consumer", "range")


def test_a_new_group_is_in_the_log_before_its_founder_is_answered() -> None:
    bench = Bench(commits_at_once=False)
    founder = bench.join()
    assert founder.is_parked
    assert len(bench.log) == 1
    bench.commit()
    assert founder.error is ErrorCode.NONE


def test_a_founder_is_refused_when_the_group_cannot_be_written_and_nothing_is_left_of_it() -> None:
    bench = Bench()
    bench.refuses_appends = ErrorCode.NOT_COORDINATOR
    assert bench.join().error is ErrorCode.NOT_COORDINATOR
    assert not bench.machine.groups


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "who", "protocols": ()}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_what_cannot_be_is_refused_and_founds_no_group(fields: dict[str, Any], error: ErrorCode) -> None:
    bench = Bench()
    assert bench.join(**fields).error is error
    assert not bench.log


def test_a_dynamic_member_gets_an_id_first_and_must_come_back_with_it() -> None:
    bench = Bench()
    reply = bench.join(requires_known_id=True).reply
    assert (reply.error, bench.state) == (ErrorCode.MEMBER_ID_REQUIRED, "Empty")
    known = bench.join(reply.member_id, requires_known_id=True)
    assert (known.error, known.reply.member_id) == (ErrorCode.NONE, reply.member_id)


def test_an_id_that_was_given_out_is_forgotten_after_its_session_time() -> None:
    bench = Bench()
    member_id = bench.join(requires_known_id=True).reply.member_id
    bench.sleep(SESSION_MS - 1)
    assert member_id in bench.group.pending_join
    bench.sleep(1)
    assert bench.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_is_let_in_without_an_id() -> None:
    reply = Bench().join(instance_id="i1", requires_known_id=True).reply
    assert reply.error is ErrorCode.NONE
    assert reply.member_id.startswith("i1-")


# a new member


def test_a_new_member_of_a_stable_group_begins_a_rebalance_and_waits() -> None:
    bench = Bench()
    (first,) = bench.stable(None)
    second = bench.join()
    assert (second.is_parked, bench.state) == (True, "PreparingRebalance")
    assert bench.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = bench.rejoin(first)
    assert (rejoined.reply.generation, second.reply.generation) == (2, 2)
    assert rejoined.reply.leader == second.reply.leader == first, "the leader stays if it has rejoined"
    assert len(rejoined.reply.members) == 2
    assert second.reply.members == (), "only the leader is told who is there"


def test_a_new_member_while_syncs_wait_sends_them_back_to_join() -> None:
    bench, ids = completing()
    follower = bench.sync(ids[1], 3)
    newcomer = bench.join()
    assert (follower.error, newcomer.is_parked) == (ErrorCode.REBALANCE_IN_PROGRESS, True)
    assert bench.state == "PreparingRebalance"


def test_a_new_member_of_a_group_that_prepares_waits_with_the_others() -> None:
    bench, _ = preparing()
    assert bench.join().is_parked


@pytest.mark.parametrize("phase", [preparing, completing])
def test_a_member_without_a_common_protocol_is_inconsistent(phase: Any) -> None:
    bench, _ = phase()
    assert bench.join(protocols=OTHER).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.join(protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_may_change_its_type() -> None:
    bench = Bench()
    bench.leave(*bench.stable(None))
    assert bench.state == "Empty"
    assert bench.join(protocol_type="connect", protocols=OTHER).reply.protocol_type == "connect"


# a member that joins again


def test_a_parked_join_of_the_same_member_gives_way_to_the_newer_one() -> None:
    bench, ids = preparing()
    again = bench.rejoin(ids[0])
    bench.rejoin(ids[1])
    assert (again.error, again.reply.generation) == (ErrorCode.NONE, 3)


def test_the_same_metadata_while_the_generation_completes_gives_it_again() -> None:
    bench, ids = completing()
    leader, follower = bench.rejoin(ids[0]).reply, bench.rejoin(ids[1]).reply
    assert (leader.generation, follower.generation, bench.state) == (3, 3, "CompletingRebalance")
    assert len(leader.members) == 2
    assert follower.members == ()


def test_new_metadata_while_the_generation_completes_begins_again() -> None:
    bench, ids = completing()
    assert bench.rejoin(ids[1], protocols=BOTH).is_parked
    assert bench.state == "PreparingRebalance"


def test_a_follower_that_rejoins_a_stable_group_unchanged_gets_its_generation() -> None:
    bench = Bench()
    _, follower = bench.stable(None, None)
    reply = bench.rejoin(follower).reply
    assert (reply.generation, bench.state) == (bench.group.generation, "Stable")


def test_the_leader_that_rejoins_a_stable_group_begins_a_rebalance() -> None:
    bench = Bench()
    leader, _ = bench.stable(None, None)
    assert bench.rejoin(leader).is_parked
    assert bench.state == "PreparingRebalance"


def test_new_metadata_in_a_stable_group_begins_a_rebalance() -> None:
    bench = Bench()
    _, follower = bench.stable(None, None)
    assert bench.rejoin(follower, protocols=BOTH).is_parked
    assert bench.state == "PreparingRebalance"


@pytest.mark.parametrize("state", ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"])
def test_an_unknown_member_is_told_so_in_every_state(state: str) -> None:
    bench = Bench()
    ids = bench.stable(None, None)
    if state == "Empty":
        bench.leave(*ids)
    elif state != "Stable":
        bench.rejoin(ids[0])
    if state == "CompletingRebalance":
        bench.rejoin(ids[1])
    assert bench.state == state
    assert bench.join("nobody").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat("nobody", bench.group.generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.sync("nobody", bench.group.generation).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.leave("nobody") == [ErrorCode.UNKNOWN_MEMBER_ID]
    known = bench.commit_offset(1, "nobody", bench.group.generation)
    assert known.reply.rows[0].error is ErrorCode.UNKNOWN_MEMBER_ID


# the vote and the leader


def test_the_protocol_that_most_prefer_among_those_that_all_support_is_chosen() -> None:
    bench = Bench()
    first = bench.join(protocols=(("a", b""), ("b", b""), ("c", b"")))
    others = [bench.join(protocols=(("b", b""), ("a", b""))) for _ in range(2)]
    reply = bench.rejoin(first.reply.member_id, protocols=(("a", b""), ("b", b""), ("c", b"")))
    assert reply.reply.protocol == "b"
    assert [asked.reply.protocol for asked in others] == ["b", "b"]


def test_a_leader_that_does_not_come_back_is_followed_by_one_who_did() -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    waiting = bench.rejoin(follower, protocols=BOTH)
    bench.sleep(SESSION_MS)
    assert waiting.reply.leader == follower
    assert list(bench.group.members) == [follower]
    assert bench.heartbeat(leader, 3) is ErrorCode.UNKNOWN_MEMBER_ID


# size


def test_a_full_group_takes_no_new_member_but_keeps_those_it_has() -> None:
    bench = Bench(members_max=2)
    ids = bench.stable(None, None)
    assert bench.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.state == "Stable"
    assert bench.rejoin(ids[1]).error is ErrorCode.NONE


def test_a_loaded_group_that_is_too_large_pushes_the_last_ones_out() -> None:
    bench = Bench()
    ids = bench.stable(None, None, None)
    bench.settings = Bench(members_max=2).settings
    bench.move()
    assert bench.state == "PreparingRebalance"
    kept = [bench.rejoin(ids[0]), bench.rejoin(ids[1])]
    assert bench.rejoin(ids[2]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [asked.error for asked in kept] == [ErrorCode.NONE] * 2, "who was pushed out was the last one missing"


def test_an_id_that_comes_back_to_a_full_group_is_waited_for_no_longer() -> None:
    bench = Bench(members_max=2)
    first, second = bench.stable(None, None)
    waiting = bench.rejoin(first)
    late = bench.join(requires_known_id=True).reply.member_id
    bench.leave(second)
    newcomer = bench.join()
    assert waiting.is_parked, "who was given an id may come"
    assert bench.join(late).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (waiting.error, newcomer.error, bench.group.generation) == (ErrorCode.NONE, ErrorCode.NONE, 3)


def test_a_static_member_returns_to_a_full_group() -> None:
    bench = Bench(members_max=1)
    bench.stable("i1")
    assert bench.join(instance_id="i1").error is ErrorCode.NONE
