"""A leader that is missing from a replica's voter set, because the replica's log ends before that voter was added. The
replica learns the leader's address from the voters that it knows.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft.raft.inputs import Failure, RequestFailed
from kraft.raft.ready import QuorumState
from kraft.raft.state import Follower, Prospective
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import MetadataFetchRequest, MetadataFetchResponse, VoteResponse
from tests.stages.single_core import A, B, C, Single, voter_set

LEADER = {"epoch": 3, "leader_id": C, "leader_host": "n4", "leader_port": 9000}


def observer() -> Single:
    """Return an observer that followed `C` before its restart; only the id of the leader is stored on disk."""
    return Single(voters=voter_set(A, B), may_vote=False, stored=QuorumState(3, C))


def next_fetch(single: Single) -> Any:
    while not (sent := single.take_sent(MetadataFetchRequest)):
        single.tick_to_deadline()
    return sent[-1]


def answer_with_the_leader(single: Single, asked: Any) -> None:
    single.answer(asked, MetadataFetchResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, **LEADER))


def test_observer_learns_the_address_of_its_stored_leader_from_a_voter() -> None:
    single = observer()
    asked = next_fetch(single)
    assert asked.destination.node_id in (A, B)
    answer_with_the_leader(single, asked)
    assert isinstance(single.raft.role, Follower)
    assert next_fetch(single).destination.node_id == C


def test_observer_with_an_unreachable_leader_fetches_from_leader_and_voters_in_turn() -> None:
    single = observer()
    answer_with_the_leader(single, next_fetch(single))
    asked: list[int] = []
    for _ in range(12):
        sent = next_fetch(single)
        asked.append(sent.destination.node_id)
        if sent.destination.node_id == C:
            single.step(RequestFailed(sent.request_id, Failure.REFUSED))
        else:
            answer_with_the_leader(single, sent)
    assert asked[0] == C
    assert {A, B, C} == set(asked[1:])


def test_observer_learns_the_new_address_of_its_leader() -> None:
    single = Single(voters=voter_set(A, B, C), may_vote=False, stored=QuorumState(3, C))
    single.step(RequestFailed(next_fetch(single).request_id, Failure.REFUSED))
    while (asked := next_fetch(single)).destination.node_id == C:
        single.step(RequestFailed(asked.request_id, Failure.REFUSED))
    single.answer(
        asked,
        MetadataFetchResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, **{**LEADER, "leader_port": 9999}),
    )
    while (asked := next_fetch(single)).destination.node_id != C or asked.destination.address.port != 9999:
        single.step(RequestFailed(asked.request_id, Failure.REFUSED))
        assert single.raft.leader_id == C


@pytest.mark.parametrize("granted", [False, True])
def test_removed_voter_follows_the_leader_named_in_a_pre_vote_response(granted: bool) -> None:
    single = Single(stored=QuorumState(3, C))
    single.become_prospective()
    assert isinstance(single.raft.role, Prospective)
    asked = single.sent[-1]
    single.answer(asked, VoteResponse(error_code=ErrorCode.NONE, vote_granted=granted, **LEADER))
    assert isinstance(single.raft.role, Follower)
    assert next_fetch(single).destination.node_id == C
