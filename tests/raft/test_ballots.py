"""Tests of votes: tables over log, role and pre-vote, and the epoch check of each message. Raft sections 5.2 and 5.4;
KIP-595, KIP-996.
"""

from __future__ import annotations

import pytest

from kraft.raft.inputs import Failure, RequestFailed
from kraft.raft.ready import QuorumState
from kraft.raft.state import Candidate, Follower, Prospective, Resigned, Unattached
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    MetadataFetchRequest,
    MetadataFetchResponse,
    VoteRequest,
    VoteResponse,
)
from tests.stages.single_core import CLUSTER, ME, A, B, C, Single, directory, key, voter_set

# The log of the voter under test: epoch 3 begins at 10, the log ends at 20.
LOG = {"epochs": ((1, 0), (3, 10)), "end_offset": 20}
STORED = QuorumState(5)


def unattached(stored: QuorumState = STORED) -> Single:
    return Single(stored=stored, **LOG)  # type: ignore[arg-type]


def follower(*, has_fetched: bool = False, is_lost: bool = False) -> Single:
    single = unattached()
    single.follow(A, 5)
    fetch = single.take_sent(MetadataFetchRequest)[-1]
    if has_fetched:
        single.answer(fetch, MetadataFetchResponse(epoch=5, leader_id=A, high_watermark=-1))
        fetch = single.take_sent(MetadataFetchRequest)[-1]
    if is_lost:
        single.step(RequestFailed(fetch.request_id, Failure.REFUSED))
    assert isinstance(single.raft.role, Follower)
    return single


def prospective() -> Single:
    single = unattached()
    single.become_prospective()
    assert isinstance(single.raft.role, Prospective)
    return single


def candidate() -> Single:
    single = unattached()
    single.become_candidate()
    assert isinstance(single.raft.role, Candidate)
    return single


def leader() -> Single:
    single = unattached()
    single.become_leader()
    return single


def resigned() -> Single:
    single = unattached(QuorumState(5, ME, key(ME)))
    assert isinstance(single.raft.role, Resigned)
    return single


def pre_vote_of_a_follower(*, has_fetched: bool, is_lost: bool) -> bool:
    single = follower(has_fetched=has_fetched, is_lost=is_lost)
    return single.vote_of(B, 5, 3, 20, pre_vote=True).vote_granted


@pytest.mark.parametrize(
    ("last_epoch", "offset", "granted"),
    [(3, 20, True), (3, 21, True), (4, 1, True), (3, 19, False), (2, 100, False), (0, 0, False)],
)
@pytest.mark.parametrize("pre_vote", [False, True])
def test_vote_is_granted_only_to_a_log_up_to_date_by_epoch_then_offset(
    last_epoch: int, offset: int, granted: bool, pre_vote: bool
) -> None:
    response = unattached().vote_of(A, 6, last_epoch, offset, pre_vote=pre_vote)
    assert response.error_code == ErrorCode.NONE
    assert response.vote_granted is granted


ROLES = [unattached, follower, prospective, candidate, leader, resigned]


@pytest.mark.parametrize("make", ROLES)
def test_vote_in_a_newer_epoch_is_granted_in_every_role_and_persisted_first(make: object) -> None:
    single = make()  # type: ignore[operator]
    epoch = single.raft.epoch + 1
    last_epoch, end = single.raft.log.last_epoch, single.raft.log.end_offset
    assert single.vote_of(A, epoch, last_epoch, end).vote_granted
    assert single.last.quorum_state == QuorumState(epoch, None, key(A))
    assert isinstance(single.raft.role, Unattached)


@pytest.mark.parametrize(
    ("make", "granted"),
    [
        (unattached, True),
        (follower, False),
        (prospective, True),
        (candidate, False),
        (leader, False),
        (resigned, False),
    ],
)
def test_vote_in_the_current_epoch_depends_on_the_role(make: object, granted: bool) -> None:
    single = make()  # type: ignore[operator]
    last_epoch, end = single.raft.log.last_epoch, single.raft.log.end_offset
    # The log of a candidate of epoch e holds at most epoch e - 1.
    epoch = single.raft.epoch
    response = single.vote_of(B, epoch, min(last_epoch, epoch - 1), end + 5)
    assert response.vote_granted is granted


@pytest.mark.parametrize(
    ("make", "granted"),
    [
        (unattached, True),
        (prospective, True),
        (candidate, True),
        (leader, False),
        (resigned, True),
    ],
)
def test_pre_vote_depends_on_the_role_and_changes_no_state(make: object, granted: bool) -> None:
    single = make()  # type: ignore[operator]
    before = (single.raft.epoch, single.raft.voted, single.raft.role)
    last_epoch, end = single.raft.log.last_epoch, single.raft.log.end_offset
    response = single.vote_of(B, single.raft.epoch, last_epoch, end, pre_vote=True)
    assert response.vote_granted is granted
    assert (single.raft.epoch, single.raft.voted, single.raft.role) == before
    assert single.last.quorum_state is None


@pytest.mark.parametrize(
    ("has_fetched", "is_lost", "granted"),
    [(False, False, True), (True, False, False), (True, True, True), (False, True, True)],
)
def test_follower_grants_a_pre_vote_only_without_contact_to_its_leader(
    has_fetched: bool, is_lost: bool, granted: bool
) -> None:
    assert pre_vote_of_a_follower(has_fetched=has_fetched, is_lost=is_lost) is granted


def test_pre_vote_request_of_a_newer_epoch_does_not_raise_the_epoch() -> None:
    single = follower(has_fetched=True)
    response = single.vote_of(B, 9, 3, 20, pre_vote=True)
    assert not response.vote_granted
    assert single.raft.epoch == 5
    assert isinstance(single.raft.role, Follower)


def test_vote_is_granted_once_per_epoch_and_again_only_to_the_same_candidate() -> None:
    single = unattached()
    assert single.vote_of(A, 6, 3, 20).vote_granted
    assert not single.vote_of(B, 6, 3, 20).vote_granted
    assert single.vote_of(A, 6, 3, 20).vote_granted
    again = Single(stored=QuorumState(6, None, key(A)), **LOG)  # type: ignore[arg-type]
    assert not again.vote_of(B, 6, 3, 20).vote_granted
    assert again.vote_of(A, 6, 3, 20).vote_granted


def second_vote_after_a_lost_pre_vote_round() -> bool:
    """Return whether B gets a vote in an epoch in which A has it already, after this node lost a pre-vote round of its
    own."""
    single = unattached()
    assert single.vote_of(A, 6, 3, 20).vote_granted
    single.become_prospective()
    for send in single.take_sent(VoteRequest):
        single.answer(send, VoteResponse(epoch=6, vote_granted=False))
    assert isinstance(single.raft.role, Unattached)
    return single.vote_of(B, 6, 3, 20).vote_granted


def test_vote_of_the_epoch_is_kept_after_a_lost_pre_vote_round() -> None:
    assert not second_vote_after_a_lost_pre_vote_round()


def test_candidate_with_another_directory_id_is_another_candidate() -> None:
    single = unattached()
    assert single.vote_of(A, 6, 3, 20).vote_granted
    assert not single.vote_of(A, 6, 3, 20, candidate_directory_id=directory(99)).vote_granted


def test_candidate_that_lost_unsynced_records_does_not_get_the_vote_again() -> None:
    """The candidate had not synced the records with which it got the vote, and lost them in a crash (R13)."""
    single = unattached()
    assert single.vote_of(A, 6, 3, 20).vote_granted
    assert not single.vote_of(A, 6, 3, 19).vote_granted


def test_node_outside_its_voter_set_grants_its_vote() -> None:
    single = Single(voters=voter_set(A, B, C), stored=STORED, **LOG)  # type: ignore[arg-type]
    assert single.vote_of(A, 6, 3, 20).vote_granted


def test_voter_that_rejects_a_lagging_candidate_soon_starts_its_own_campaign() -> None:
    single = unattached()
    single.follow(A, 5)
    assert not single.vote_of(B, 6, 3, 19).vote_granted
    assert single.last.deadline_ms is not None
    assert single.last.deadline_ms - single.now <= 60


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"cluster_id": ""}, ErrorCode.NONE),
        ({"last_offset": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ({"last_epoch": 6}, ErrorCode.INVALID_REQUEST),
        ({"candidate_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 4, "last_epoch": 3}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"voter_id": 9}, ErrorCode.INVALID_VOTER_KEY),
        ({"voter_directory_id": directory(99)}, ErrorCode.INVALID_VOTER_KEY),
        ({"voter_id": -1, "voter_directory_id": None}, ErrorCode.NONE),
        ({"voter_directory_id": None}, ErrorCode.NONE),
    ],
)
@pytest.mark.parametrize("pre_vote", [False, True])
def test_vote_request_with_an_invalid_field_gets_the_matching_error(
    changes: dict[str, object], error: ErrorCode, pre_vote: bool
) -> None:
    fields: dict[str, object] = {"epoch": 6, "last_epoch": 5, "last_offset": 99, "pre_vote": pre_vote}
    if pre_vote and changes == {"last_epoch": 6}:
        fields["epoch"] = 5
    fields |= changes
    single = unattached()
    names = {"epoch": "epoch", "last_epoch": "last_epoch", "last_offset": "offset"}
    arguments = {names.get(name, name): value for name, value in fields.items()}
    response = single.vote_of(arguments.pop("candidate_id", A), **arguments)  # type: ignore[arg-type]
    assert response.error_code == error
    assert response.vote_granted is (error is ErrorCode.NONE)


def test_messages_of_an_older_epoch_change_nothing_and_get_the_current_epoch() -> None:
    single = follower(has_fetched=True)
    before = (single.raft.epoch, single.raft.voted, single.raft.leader_id, single.raft.role)
    requests = [
        BeginQuorumEpochRequest(cluster_id=CLUSTER, voter_id=ME, epoch=4, leader_id=B),
        EndQuorumEpochRequest(cluster_id=CLUSTER, epoch=4, leader_id=B, preferred_successors=(ME,)),
        MetadataFetchRequest(cluster_id=CLUSTER, replica_id=B, epoch=4, fetch_offset=0, last_fetched_epoch=0),
        FetchSnapshotRequest(cluster_id=CLUSTER, replica_id=B, epoch=4, max_bytes=1),
    ]
    for request in requests:
        response = single.ask(request)
        assert response.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (response.epoch, response.leader_id) == (5, A)
        assert single.last.quorum_state is None
    assert (single.raft.epoch, single.raft.voted, single.raft.leader_id, single.raft.role) == before


@pytest.mark.parametrize(
    "kind", [BeginQuorumEpochRequest, EndQuorumEpochRequest, MetadataFetchRequest, FetchSnapshotRequest]
)
def test_messages_of_another_cluster_change_nothing(kind: type) -> None:
    single = unattached()
    names = {"leader_id": A} if kind in (BeginQuorumEpochRequest, EndQuorumEpochRequest) else {"replica_id": A}
    response = single.ask(kind(cluster_id="another", epoch=9, **names))
    assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert single.raft.epoch == 5


@pytest.mark.parametrize("leader_id", [-1, ME])
def test_begin_and_end_quorum_epoch_with_an_impossible_leader_id_are_rejected(leader_id: int) -> None:
    single = unattached()
    for kind in (BeginQuorumEpochRequest, EndQuorumEpochRequest):
        assert (
            single.ask(kind(cluster_id=CLUSTER, epoch=6, leader_id=leader_id)).error_code == ErrorCode.INVALID_REQUEST
        )
    assert single.raft.epoch == 5


def test_begin_quorum_epoch_for_another_directory_id_makes_the_replica_a_follower() -> None:
    """The replica first becomes a follower, and then checks the voter key in the request."""
    single = unattached()
    request = BeginQuorumEpochRequest(
        cluster_id=CLUSTER, voter_id=ME, voter_directory_id=directory(99), epoch=6, leader_id=A
    )
    assert single.ask(request).error_code == ErrorCode.INVALID_VOTER_KEY
    assert single.raft.leader_id == A
    assert single.last.quorum_state == QuorumState(6, A, None)


def test_preferred_successor_campaigns_at_once_and_the_others_later_in_order() -> None:
    waits = []
    for successors in ((ME, A, B), (A, ME, B), (A, B, ME), (A, B)):
        single = follower(has_fetched=True)
        single.ask(EndQuorumEpochRequest(cluster_id=CLUSTER, epoch=5, leader_id=A, preferred_successors=successors))
        assert single.last.deadline_ms is not None
        waits.append(single.last.deadline_ms - single.now)
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert waits[-1] < 100
