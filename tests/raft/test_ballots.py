"""Vote matrices: log x role x pre-vote, and fencing per message. Raft sections 5.2 and 5.4; KIP-595, KIP-996."""

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

# The log of the node that is asked: epoch 3 begins at 10, the log ends at 20.
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
def test_a_vote_needs_a_log_that_is_up_to_date_by_epoch_then_offset(
    last_epoch: int, offset: int, granted: bool, pre_vote: bool
) -> None:
    response = unattached().vote_of(A, 6, last_epoch, offset, pre_vote=pre_vote)
    assert response.error_code == ErrorCode.NONE
    assert response.vote_granted is granted


ROLES = [unattached, follower, prospective, candidate, leader, resigned]


@pytest.mark.parametrize("make", ROLES)
def test_a_vote_of_a_newer_epoch_is_given_in_every_role_and_is_in_the_state_to_be_written_first(make: object) -> None:
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
def test_a_vote_in_the_present_epoch_depends_on_the_role(make: object, granted: bool) -> None:
    single = make()  # type: ignore[operator]
    last_epoch, end = single.raft.log.last_epoch, single.raft.log.end_offset
    # A candidate of epoch e has a log of at most epoch e - 1.
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
def test_a_pre_vote_depends_on_the_role_and_changes_nothing(make: object, granted: bool) -> None:
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
def test_a_follower_grants_a_pre_vote_only_without_contact(has_fetched: bool, is_lost: bool, granted: bool) -> None:
    assert pre_vote_of_a_follower(has_fetched=has_fetched, is_lost=is_lost) is granted


def test_a_pre_vote_of_a_newer_epoch_leaves_the_epoch_as_it_is() -> None:
    single = follower(has_fetched=True)
    response = single.vote_of(B, 9, 3, 20, pre_vote=True)
    assert not response.vote_granted
    assert single.raft.epoch == 5
    assert isinstance(single.raft.role, Follower)


def test_a_vote_is_given_once_per_epoch_and_again_to_the_same_candidate_only() -> None:
    single = unattached()
    assert single.vote_of(A, 6, 3, 20).vote_granted
    assert not single.vote_of(B, 6, 3, 20).vote_granted
    assert single.vote_of(A, 6, 3, 20).vote_granted
    again = Single(stored=QuorumState(6, None, key(A)), **LOG)  # type: ignore[arg-type]
    assert not again.vote_of(B, 6, 3, 20).vote_granted
    assert again.vote_of(A, 6, 3, 20).vote_granted


def second_vote_after_a_lost_pre_vote_round() -> bool:
    """Whether B gets a vote in the epoch in which A has got it, after a pre-vote round of our own was lost."""
    single = unattached()
    assert single.vote_of(A, 6, 3, 20).vote_granted
    single.become_prospective()
    for send in single.take_sent(VoteRequest):
        single.answer(send, VoteResponse(epoch=6, vote_granted=False))
    assert isinstance(single.raft.role, Unattached)
    return single.vote_of(B, 6, 3, 20).vote_granted


def test_a_vote_survives_a_lost_pre_vote_round() -> None:
    assert not second_vote_after_a_lost_pre_vote_round()


def test_the_same_candidate_with_another_directory_is_another_candidate() -> None:
    single = unattached()
    assert single.vote_of(A, 6, 3, 20).vote_granted
    assert not single.vote_of(A, 6, 3, 20, candidate_directory_id=directory(99)).vote_granted


def test_a_candidate_that_lost_its_tail_does_not_get_the_vote_again() -> None:
    """R13: what it had when it was given the vote was not synced, and is gone."""
    single = unattached()
    assert single.vote_of(A, 6, 3, 20).vote_granted
    assert not single.vote_of(A, 6, 3, 19).vote_granted


def test_a_node_that_is_no_voter_still_gives_its_vote() -> None:
    single = Single(voters=voter_set(A, B, C), stored=STORED, **LOG)  # type: ignore[arg-type]
    assert single.vote_of(A, 6, 3, 20).vote_granted


def test_a_voter_that_refuses_a_lagging_candidate_stands_soon_itself() -> None:
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
def test_a_vote_request_is_checked_in_order(changes: dict[str, object], error: ErrorCode, pre_vote: bool) -> None:
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


def test_messages_of_an_older_epoch_change_nothing_and_name_the_newer_one() -> None:
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
def test_a_leader_that_cannot_be_is_refused(leader_id: int) -> None:
    single = unattached()
    for kind in (BeginQuorumEpochRequest, EndQuorumEpochRequest):
        assert (
            single.ask(kind(cluster_id=CLUSTER, epoch=6, leader_id=leader_id)).error_code == ErrorCode.INVALID_REQUEST
        )
    assert single.raft.epoch == 5


def test_begin_quorum_epoch_makes_a_follower_even_if_it_was_meant_for_another_directory() -> None:
    """The transition comes first, then the check of the voter key."""
    single = unattached()
    request = BeginQuorumEpochRequest(
        cluster_id=CLUSTER, voter_id=ME, voter_directory_id=directory(99), epoch=6, leader_id=A
    )
    assert single.ask(request).error_code == ErrorCode.INVALID_VOTER_KEY
    assert single.raft.leader_id == A
    assert single.last.quorum_state == QuorumState(6, A, None)


def test_the_preferred_successor_asks_at_once_and_the_others_in_order() -> None:
    waits = []
    for successors in ((ME, A, B), (A, ME, B), (A, B, ME), (A, B)):
        single = follower(has_fetched=True)
        single.ask(EndQuorumEpochRequest(cluster_id=CLUSTER, epoch=5, leader_id=A, preferred_successors=successors))
        assert single.last.deadline_ms is not None
        waits.append(single.last.deadline_ms - single.now)
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert waits[-1] < 100
