"""JoinGroup: which members are admitted, and the effect in each state of a group.

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
    """Return a group of two members in PreparingRebalance: one of them waits for the next generation."""
    bench = Bench(commits_at_once=True)
    ids = bench.stable(None, None)
    bench.commits_at_once = commits_at_once
    bench.rejoin(ids[0])
    assert bench.state == "PreparingRebalance"
    return bench, ids


def completing() -> tuple[Bench, list[str]]:
    """Return a group of two members in CompletingRebalance: they have joined the generation and have not synced."""
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


def test_a_new_group_is_committed_to_the_log_before_its_first_member_gets_a_join_response() -> None:
    bench = Bench(commits_at_once=False)
    founder = bench.join()
    assert founder.is_parked
    assert len(bench.log) == 1
    bench.commit()
    assert founder.error is ErrorCode.NONE


def test_the_first_join_is_rejected_and_no_group_remains_if_the_group_cannot_be_written() -> None:
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
def test_an_invalid_first_join_is_rejected_and_creates_no_group(fields: dict[str, Any], error: ErrorCode) -> None:
    bench = Bench()
    assert bench.join(**fields).error is error
    assert not bench.log


def test_a_dynamic_member_is_issued_an_id_and_must_join_again_with_it() -> None:
    bench = Bench()
    reply = bench.join(requires_known_id=True).reply
    assert (reply.error, bench.state) == (ErrorCode.MEMBER_ID_REQUIRED, "Empty")
    known = bench.join(reply.member_id, requires_known_id=True)
    assert (known.error, known.reply.member_id) == (ErrorCode.NONE, reply.member_id)


def test_an_issued_member_id_expires_after_its_session_timeout() -> None:
    bench = Bench()
    member_id = bench.join(requires_known_id=True).reply.member_id
    bench.sleep(SESSION_MS - 1)
    assert member_id in bench.group.pending_join
    bench.sleep(1)
    assert bench.join(member_id).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_joins_without_a_member_id() -> None:
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
    assert second.reply.members == (), "only the leader gets the list of members"


def test_a_new_member_makes_the_members_with_parked_syncs_rejoin() -> None:
    bench, ids = completing()
    follower = bench.sync(ids[1], 3)
    newcomer = bench.join()
    assert (follower.error, newcomer.is_parked) == (ErrorCode.REBALANCE_IN_PROGRESS, True)
    assert bench.state == "PreparingRebalance"


def test_a_new_member_during_a_join_phase_waits_with_the_others() -> None:
    bench, _ = preparing()
    assert bench.join().is_parked


@pytest.mark.parametrize("phase", [preparing, completing])
def test_a_joining_member_without_a_common_protocol_gets_inconsistent_group_protocol(phase: Any) -> None:
    bench, _ = phase()
    assert bench.join(protocols=OTHER).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert bench.join(protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_may_change_its_protocol_type() -> None:
    bench = Bench()
    bench.leave(*bench.stable(None))
    assert bench.state == "Empty"
    assert bench.join(protocol_type="connect", protocols=OTHER).reply.protocol_type == "connect"


# a member that joins again


def test_a_newer_join_of_a_member_replaces_its_parked_join() -> None:
    bench, ids = preparing()
    again = bench.rejoin(ids[0])
    bench.rejoin(ids[1])
    assert (again.error, again.reply.generation) == (ErrorCode.NONE, 3)


def test_a_member_that_rejoins_with_unchanged_metadata_before_its_sync_gets_the_same_generation() -> None:
    bench, ids = completing()
    leader, follower = bench.rejoin(ids[0]).reply, bench.rejoin(ids[1]).reply
    assert (leader.generation, follower.generation, bench.state) == (3, 3, "CompletingRebalance")
    assert len(leader.members) == 2
    assert follower.members == ()


def test_a_member_that_rejoins_with_new_metadata_before_its_sync_starts_another_rebalance() -> None:
    bench, ids = completing()
    assert bench.rejoin(ids[1], protocols=BOTH).is_parked
    assert bench.state == "PreparingRebalance"


def test_a_non_leader_that_rejoins_a_stable_group_unchanged_gets_the_current_generation() -> None:
    bench = Bench()
    _, follower = bench.stable(None, None)
    reply = bench.rejoin(follower).reply
    assert (reply.generation, bench.state) == (bench.group.generation, "Stable")


def test_the_leader_that_rejoins_a_stable_group_begins_a_rebalance() -> None:
    bench = Bench()
    leader, _ = bench.stable(None, None)
    assert bench.rejoin(leader).is_parked
    assert bench.state == "PreparingRebalance"


def test_a_rejoin_with_new_metadata_in_a_stable_group_begins_a_rebalance() -> None:
    bench = Bench()
    _, follower = bench.stable(None, None)
    assert bench.rejoin(follower, protocols=BOTH).is_parked
    assert bench.state == "PreparingRebalance"


@pytest.mark.parametrize("state", ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"])
def test_requests_with_an_unknown_member_id_are_rejected_in_every_group_state(state: str) -> None:
    bench = Bench()
    ids = bench.stable(None, None)
    if state == "Empty":
        bench.leave(*ids)
    elif state != "Stable":
        bench.rejoin(ids[0])
    if state == "CompletingRebalance":
        bench.rejoin(ids[1])
    assert bench.state == state
    assert bench.join("unknown").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.heartbeat("unknown", bench.group.generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.sync("unknown", bench.group.generation).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.leave("unknown") == [ErrorCode.UNKNOWN_MEMBER_ID]
    known = bench.commit_offset(1, "unknown", bench.group.generation)
    assert known.reply.rows[0].error is ErrorCode.UNKNOWN_MEMBER_ID


# the vote and the leader


def test_the_group_chooses_the_most_preferred_protocol_that_all_members_support() -> None:
    bench = Bench()
    first = bench.join(protocols=(("a", b""), ("b", b""), ("c", b"")))
    others = [bench.join(protocols=(("b", b""), ("a", b""))) for _ in range(2)]
    reply = bench.rejoin(first.reply.member_id, protocols=(("a", b""), ("b", b""), ("c", b"")))
    assert reply.reply.protocol == "b"
    assert [asked.reply.protocol for asked in others] == ["b", "b"]


def test_a_leader_that_does_not_rejoin_is_replaced_by_a_member_that_did() -> None:
    bench = Bench()
    leader, follower = bench.stable(None, None)
    waiting = bench.rejoin(follower, protocols=BOTH)
    bench.sleep(SESSION_MS)
    assert waiting.reply.leader == follower
    assert list(bench.group.members) == [follower]
    assert bench.heartbeat(leader, 3) is ErrorCode.UNKNOWN_MEMBER_ID


# size


def test_a_full_group_rejects_new_members_but_lets_its_own_members_rejoin() -> None:
    bench = Bench(members_max=2)
    ids = bench.stable(None, None)
    assert bench.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert bench.state == "Stable"
    assert bench.rejoin(ids[1]).error is ErrorCode.NONE


def test_a_loaded_group_above_the_size_limit_rejects_the_last_members_to_rejoin() -> None:
    bench = Bench()
    ids = bench.stable(None, None, None)
    bench.settings = Bench(members_max=2).settings
    bench.move()
    assert bench.state == "PreparingRebalance"
    kept = [bench.rejoin(ids[0]), bench.rejoin(ids[1])]
    assert bench.rejoin(ids[2]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [asked.error for asked in kept] == [ErrorCode.NONE] * 2, "the refused member was the last one missing"


def test_a_full_group_that_rejects_an_issued_member_id_no_longer_waits_for_that_id() -> None:
    bench = Bench(members_max=2)
    first, second = bench.stable(None, None)
    waiting = bench.rejoin(first)
    late = bench.join(requires_known_id=True).reply.member_id
    bench.leave(second)
    newcomer = bench.join()
    assert waiting.is_parked, "who was given an id may come"
    assert bench.join(late).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (waiting.error, newcomer.error, bench.group.generation) == (ErrorCode.NONE, ErrorCode.NONE, 3)


def test_a_full_group_accepts_a_returning_static_member() -> None:
    bench = Bench(members_max=1)
    bench.stable("i1")
    assert bench.join(instance_id="i1").error is ErrorCode.NONE
