"""A leader that is not in a replica's own set of voters, because its log ends before that voter was added: whoever asks
the voters that it knows learns where the leader is."""

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
    """One that followed `C` before its process ended: of a leader only its id is stored."""
    return Single(voters=voter_set(A, B), may_vote=False, stored=QuorumState(3, C))


def next_fetch(single: Single) -> Any:
    while not (sent := single.take_sent(MetadataFetchRequest)):
        single.tick_to_deadline()
    return sent[-1]


def names_the_leader(single: Single, asked: Any) -> None:
    single.answer(asked, MetadataFetchResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, **LEADER))


def test_an_observer_learns_where_the_leader_of_its_stored_epoch_is() -> None:
    single = observer()
    asked = next_fetch(single)
    assert asked.destination.node_id in (A, B)
    names_the_leader(single, asked)
    assert isinstance(single.raft.role, Follower)
    assert next_fetch(single).destination.node_id == C


def test_an_observer_asks_the_leader_again_that_it_could_not_reach() -> None:
    single = observer()
    names_the_leader(single, next_fetch(single))
    asked: list[int] = []
    for _ in range(12):
        sent = next_fetch(single)
        asked.append(sent.destination.node_id)
        if sent.destination.node_id == C:
            single.step(RequestFailed(sent.request_id, Failure.REFUSED))
        else:
            names_the_leader(single, sent)
    assert asked[0] == C
    assert {A, B, C} == set(asked[1:])


def test_an_observer_hears_that_its_leader_is_elsewhere() -> None:
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
def test_a_voter_that_was_taken_out_unheard_follows_whom_a_pre_vote_names(granted: bool) -> None:
    single = Single(stored=QuorumState(3, C))
    single.become_prospective()
    assert isinstance(single.raft.role, Prospective)
    asked = single.sent[-1]
    single.answer(asked, VoteResponse(error_code=ErrorCode.NONE, vote_granted=granted, **LEADER))
    assert isinstance(single.raft.role, Follower)
    assert next_fetch(single).destination.node_id == C
