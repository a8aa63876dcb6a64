"""Roles, one message at a time: campaigns, how a node starts, how a leader resigns, and changes of the voter set."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.raft.inputs import (
    Failure,
    RequestFailed,
    ResignRequested,
    ResponseReceived,
    ShutdownRequested,
    VotersChangeRequested,
)
from kraft.raft.ready import (
    AppendVoters,
    QuorumState,
)
from kraft.raft.settings import RaftSettings
from kraft.raft.state import Candidate, Follower, Prospective, Resigned, Unattached
from kraft.seam import InvariantError
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from tests.stages.single_core import (
    ME,
    A,
    B,
    C,
    Single,
    committed,
    directory,
    fetch,
    following,
    key,
    leading,
    voter_set,
)

# campaigns


def test_lost_pre_vote_round_keeps_epoch_and_vote_and_returns_to_the_leader() -> None:
    single = following()
    single.now += 2000
    single.tick()
    for send in single.take_sent(VoteRequest):
        single.answer(send, VoteResponse(epoch=3, leader_id=A, vote_granted=False))
    assert isinstance(single.raft.role, Follower)
    assert single.raft.epoch == 3


def test_pre_vote_round_without_responses_ends_at_the_election_timeout() -> None:
    single = following()
    single.now += 2000
    single.tick()
    single.tick_to_deadline()
    assert isinstance(single.raft.role, Follower)


def test_vote_request_is_resent_after_a_timeout_but_not_after_a_refused_connection() -> None:
    single = Single()
    asked = single.become_candidate()
    single.step(RequestFailed(asked[0].request_id, Failure.TIMED_OUT))
    (again,) = single.take_sent(VoteRequest)
    assert again.destination.node_id == asked[0].destination.node_id
    single.step(RequestFailed(again.request_id, Failure.REFUSED))
    ready = single.step(RequestFailed(asked[1].request_id, Failure.REFUSED))
    assert isinstance(single.raft.role, Candidate)
    assert ready.deadline_ms is not None
    assert ready.deadline_ms - single.now <= 100
    single.tick_to_deadline()
    assert isinstance(single.raft.role, Prospective)
    assert single.raft.voted == key(ME)


def test_pre_vote_response_with_a_lower_epoch_counts() -> None:
    single = Single(stored=QuorumState(5))
    single.become_prospective()
    send = single.take_sent(VoteRequest)[0]
    single.answer(send, VoteResponse(epoch=4, vote_granted=True))
    assert isinstance(single.raft.role, Candidate)


def test_response_with_a_newer_epoch_ends_a_campaign() -> None:
    single = Single()
    single.become_prospective()
    single.answer(single.take_sent(VoteRequest)[0], VoteResponse(epoch=8, leader_id=B))
    assert isinstance(single.raft.role, Follower)
    assert (single.raft.epoch, single.raft.leader_id) == (8, B)
    other = Single(stored=QuorumState(5))
    other.become_prospective()
    refusal = VoteResponse(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, epoch=5)
    other.answer(other.take_sent(VoteRequest)[0], refusal)
    assert isinstance(other.raft.role, Prospective)


# starting


def test_node_starts_in_the_role_that_its_stored_state_allows() -> None:
    log: dict[str, Any] = {"epochs": ((1, 0), (4, 5)), "end_offset": 9}
    behind = Single(stored=QuorumState(2, A, key(A)), **log)
    assert (behind.raft.epoch, behind.raft.voted, behind.raft.leader_id) == (4, None, None)
    assert isinstance(behind.raft.role, Unattached)
    led = Single(stored=QuorumState(4, ME, key(ME)), **log)
    assert isinstance(led.raft.role, Resigned)
    assert led.take_sent(EndQuorumEpochRequest)
    stood = Single(stored=QuorumState(5, None, key(ME)), **log)
    assert isinstance(stood.raft.role, Candidate)
    assert stood.raft.epoch == 5
    assert len(stood.take_sent(VoteRequest)) == 2
    followed = Single(stored=QuorumState(5, A), **log)
    assert isinstance(followed.raft.role, Follower)
    voted = Single(stored=QuorumState(5, None, key(B)), **log)
    assert isinstance(voted.raft.role, Unattached)
    assert voted.raft.voted == key(B)
    unknown = Single(stored=QuorumState(5, 77), may_vote=False, voters=voter_set(A, B), **log)
    assert isinstance(unknown.raft.role, Unattached)


def test_restarted_leader_campaigns_again_in_a_new_epoch() -> None:
    single = Single(stored=QuorumState(4, ME, key(ME)), epochs=((4, 0),), end_offset=9)
    assert single.last.deadline_ms is not None
    assert single.last.deadline_ms - single.now <= 100
    single.become_prospective()
    assert single.raft.epoch == 5


# ending


def test_stopping_leader_prefers_the_successor_with_the_longest_log_and_waits_for_acknowledgements() -> None:
    single = leading()
    single.append(3)
    single.fetch_of(A, 1, 1)
    single.fetch_of(B, 4, 1)
    ready = single.step(ShutdownRequested())
    ends = single.take_sent(EndQuorumEpochRequest)
    assert [end.request.preferred_successors for end in ends] == [(B, A), (B, A)]  # type: ignore[union-attr]
    assert not ready.may_stop
    assert ready.leadership is not None
    assert not ready.leadership.is_local
    single.answer(ends[0], EndQuorumEpochResponse(epoch=1))
    assert not single.last.may_stop
    assert single.step(RequestFailed(ends[1].request_id, Failure.REFUSED)).may_stop
    assert single.append().refusal is not None


def test_stopping_leader_waits_for_silent_voters_at_most_its_timeout() -> None:
    single = leading()
    ready = single.step(ShutdownRequested())
    assert not ready.may_stop
    assert single.tick(1000).may_stop
    assert following().step(ShutdownRequested()).may_stop


def test_resign_request_of_another_epoch_has_no_effect() -> None:
    single = leading()
    single.step(ResignRequested(0))
    assert single.raft.is_leader
    single.step(ResignRequested(1))
    assert isinstance(single.raft.role, Resigned)
    assert single.raft.leader_id is None
    assert single.fetch_of(A, 0, 0).leader_id == -1


def test_leader_without_a_majority_resigns_after_one_and_a_half_fetch_timeouts() -> None:
    single = leading()
    single.fetch_of(A, 1, 1)
    single.now += 2999
    single.tick()
    assert single.raft.is_leader
    single.now += 1
    single.tick()
    assert isinstance(single.raft.role, Resigned)


def test_leader_sends_begin_quorum_epoch_until_followers_fetch() -> None:
    single = leading()
    begun = single.take_sent(BeginQuorumEpochRequest)
    assert [send.destination.node_id for send in begun] == [A, B]
    for send in begun:
        single.step(RequestFailed(send.request_id, Failure.TIMED_OUT))
    single.now += 900
    single.fetch_of(A, 1, 1)
    single.now += 100
    single.tick()
    assert [send.destination.node_id for send in single.take_sent(BeginQuorumEpochRequest)] == [B]


def test_leader_forgets_an_observer_that_has_not_fetched_for_its_session_timeout() -> None:
    single = leading(settings=RaftSettings(observer_session_ms=1000))
    single.fetch_of(C, 1, 1)
    assert (C, directory(C)) in single.raft.progress()
    single.now += 1001
    single.fetch_of(A, 1, 1)
    single.tick()
    assert (C, directory(C)) not in single.raft.progress()
    assert (A, directory(A)) in single.raft.progress()


def test_acknowledgements_of_a_forgotten_observer_do_not_count_once_it_is_a_voter() -> None:
    single = leading(settings=RaftSettings(observer_session_ms=1000))
    single.append(3)
    single.fetch_of(C, 4, 1)
    single.fetch_of(A, 1, 1)
    single.fetch_of(B, 1, 1)
    assert committed(single) == 1
    single.now += 1001
    single.fetch_of(A, 1, 1)
    single.tick()
    single.step(VotersChangeRequested(voter_set(ME, A, B, C)))
    single.sync()
    single.fetch_of(A, 4, 1)
    assert committed(single) == 1


# voter changes


def test_voter_change_takes_effect_when_appended_and_only_one_may_be_uncommitted() -> None:
    single = leading()
    grown = voter_set(ME, A, B, C)
    assert single.step(VotersChangeRequested(grown)).refusal is not None
    single.sync()
    single.fetch_of(A, 1, 1)
    ready = single.step(VotersChangeRequested(grown))
    assert ready.log == (AppendVoters(1, 1, grown),)
    assert single.raft.voters == grown
    assert single.step(VotersChangeRequested(voter_set(ME, A, B))).refusal is not None
    single.sync()
    single.fetch_of(A, 2, 1)
    assert committed(single) == 1
    single.fetch_of(C, 2, 1)
    assert committed(single) == 2
    for refused in (voter_set(), voter_set(ME)):
        assert single.step(VotersChangeRequested(refused)).refusal is not None
    assert following().step(VotersChangeRequested(grown)).refusal is not None


def test_leader_that_removed_itself_resigns_once_the_removal_is_committed() -> None:
    single = leading()
    single.sync()
    single.fetch_of(A, 1, 1)
    single.step(VotersChangeRequested(voter_set(A, B)))
    single.sync()
    assert single.raft.is_leader
    single.fetch_of(A, 2, 1)
    assert single.raft.is_leader
    single.fetch_of(B, 2, 1)
    assert committed(single) == 2
    assert isinstance(single.raft.role, Resigned)


def test_response_of_another_kind_than_the_request_raises_an_invariant_error() -> None:
    single = following()
    with pytest.raises(InvariantError, match="was answered with"):
        single.step(ResponseReceived(fetch(single).request_id, VoteResponse()))


def test_contradictory_raft_settings_are_rejected() -> None:
    with pytest.raises(ValueError, match="fast_round"):
        RaftSettings(election_timeout_ms=10)
    with pytest.raises(ValueError, match="fetch_wait_ms"):
        RaftSettings(fetch_timeout_ms=400)
