"""Messages that no correct replica sends: they may cost an election, but never crash a replica or use up its epochs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.raft.identity import ReplicaKey, VoterSet
from kraft.raft.inputs import Tick
from kraft.raft.ready import AlertKind, QuorumState, Ready
from kraft.raft.settings import EPOCH_MAX
from kraft.raft.state import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kraft.seam import Address
from kraft.sim.cores.driver import CLUSTER
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc import encode_rpc
from kraft.wire.rpc.quorum_messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    MetadataFetchRequest,
    MetadataFetchResponse,
    VoteRequest,
    VoteResponse,
)
from tests.stages.single_core import ME, A, B, C, Single, committed, directory, fetch, following, leading, voter_set

FAR = 2_000_000
OTHER = "another-cluster"
REFUSED = {"error_code": ErrorCode.INCONSISTENT_CLUSTER_ID, "epoch": 9, "leader_id": B, "cluster_id": OTHER}


def alerts(ready: Ready) -> list[AlertKind]:
    return [alert.kind for alert in ready.alerts]


def candidate(**arguments: Any) -> Single:
    single = Single(**arguments)
    single.become_candidate()
    return single


def prospective(**arguments: Any) -> Single:
    single = Single(**arguments)
    single.become_prospective()
    return single


def resigned(**arguments: Any) -> Single:
    return Single(stored=QuorumState(3, ME), **arguments)


STATES = {
    Unattached: Single,
    Prospective: prospective,
    Candidate: candidate,
    Leader: leading,
    Follower: following,
    Resigned: resigned,
}
every_state = pytest.mark.parametrize("make", STATES.values(), ids=[role.__name__ for role in STATES])


# responses of another cluster


def test_observer_learns_nothing_from_controllers_of_another_cluster() -> None:
    observer = Single(voters=voter_set(A, B, C), stored=QuorumState(), may_vote=False, me=ME)
    ready = observer.answer(fetch(observer), MetadataFetchResponse(**REFUSED))
    assert ready.quorum_state is None
    assert (observer.raft.epoch, observer.raft.leader_id) == (0, None)
    observer.tick_to_deadline()
    observer.answer(fetch(observer), MetadataFetchResponse(epoch=1, leader_id=A, leader_host="a", leader_port=1))
    assert observer.raft.leader_id == A


def test_a_candidate_learns_nothing_from_the_voters_of_another_cluster() -> None:
    single = Single()
    asked = single.become_candidate()
    epoch = single.raft.epoch
    for send in asked:
        single.answer(send, VoteResponse(**REFUSED, vote_granted=True))
    assert isinstance(single.raft.role, Candidate)
    assert single.raft.epoch == epoch


@pytest.mark.parametrize(
    ("request_class", "response"),
    [
        (BeginQuorumEpochRequest, BeginQuorumEpochResponse(**REFUSED)),
        (EndQuorumEpochRequest, EndQuorumEpochResponse(**REFUSED)),
    ],
    ids=["begin", "end"],
)
def test_a_leader_learns_nothing_from_the_voters_of_another_cluster(request_class: Any, response: Any) -> None:
    single = leading() if request_class is BeginQuorumEpochRequest else resigned()
    epoch = single.raft.epoch
    single.answer(single.take_sent(request_class)[0], response)
    assert single.raft.epoch == epoch


@pytest.mark.parametrize(
    "error", [ErrorCode.INVALID_VOTER_KEY, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_follower_learns_nothing_from_a_response_that_rejects_the_request_itself(error: ErrorCode) -> None:
    single = following()
    single.answer(fetch(single), MetadataFetchResponse(error_code=error, epoch=9, leader_id=B))
    assert (single.raft.epoch, single.raft.leader_id) == (3, A)


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (VoteRequest(cluster_id=OTHER, epoch=9, candidate_id=A), VoteResponse),
        (BeginQuorumEpochRequest(cluster_id=OTHER, epoch=9, leader_id=A), BeginQuorumEpochResponse),
        (EndQuorumEpochRequest(cluster_id=OTHER, epoch=9, leader_id=A), EndQuorumEpochResponse),
        (MetadataFetchRequest(cluster_id=OTHER, epoch=9, replica_id=A), MetadataFetchResponse),
        (FetchSnapshotRequest(cluster_id=OTHER, epoch=9, replica_id=A, max_bytes=1), FetchSnapshotResponse),
    ],
    ids=["vote", "begin", "end", "fetch", "snapshot"],
)
@every_state
def test_request_from_another_cluster_gets_only_our_cluster_id(make: Any, request_: Any, response: Any) -> None:
    single = make()
    expected = response(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, cluster_id=CLUSTER)
    assert single.ask(request_) == expected


# a second leader of an epoch


def begin(single: Single, leader: int, epoch: int) -> BeginQuorumEpochResponse:
    request = BeginQuorumEpochRequest(cluster_id=CLUSTER, voter_id=ME, epoch=epoch, leader_id=leader)
    response = single.ask(request)
    assert isinstance(response, BeginQuorumEpochResponse)
    return response


def test_leader_ignores_a_claim_to_lead_its_epoch() -> None:
    single = leading()
    assert begin(single, B, single.raft.epoch).error_code == ErrorCode.INVALID_REQUEST
    assert single.raft.is_leader
    assert alerts(single.last) == [AlertKind.CONFLICTING_LEADER]


def test_former_leader_of_an_epoch_ignores_another_claim_to_lead_it() -> None:
    single = resigned()
    assert begin(single, B, 3).error_code == ErrorCode.INVALID_REQUEST
    assert isinstance(single.raft.role, Resigned)


def test_follower_that_has_fetched_ignores_another_claim_to_lead_the_epoch() -> None:
    single = following()
    single.answer(fetch(single), MetadataFetchResponse(epoch=3, leader_id=A))
    assert begin(single, B, 3).error_code == ErrorCode.INVALID_REQUEST
    assert single.raft.leader_id == A


def test_follower_of_a_false_leader_claim_finds_the_real_leader() -> None:
    """A node falsely claimed to lead the epoch, and the replica followed it without a successful fetch."""
    single = following(stored=QuorumState(3, C), voters=voter_set(ME, A, C))
    assert begin(single, A, 3).error_code == ErrorCode.NONE
    assert single.raft.leader_id == A


def test_observer_with_a_stored_leader_of_another_cluster_finds_its_own_leader() -> None:
    """Two clusters may have different leaders in the same epoch."""
    observer = Single(voters=voter_set(A, B), stored=QuorumState(3, C), epochs=((3, 0),), end_offset=5, may_vote=False)
    answer = MetadataFetchResponse(epoch=3, leader_id=A, leader_host="nA", leader_port=9000)
    observer.answer(fetch(observer), answer)
    assert observer.raft.leader_id == A


# epochs


@every_state
@pytest.mark.parametrize("kind", ["vote", "begin", "end"])
@pytest.mark.parametrize("epoch", [FAR, EPOCH_MAX])
def test_request_with_an_epoch_far_ahead_is_rejected(make: Any, kind: str, epoch: int) -> None:
    single = make()
    before = (type(single.raft.role), single.raft.epoch, single.raft.voted)
    if kind == "vote":
        response: Any = single.vote_of(B, epoch, epoch - 1, 1_000)
        assert not response.vote_granted
    elif kind == "begin":
        response = begin(single, B, epoch)
    else:
        response = single.ask(EndQuorumEpochRequest(cluster_id=CLUSTER, epoch=epoch, leader_id=B))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.epoch == single.raft.epoch
    assert (type(single.raft.role), single.raft.epoch, single.raft.voted) == before
    assert alerts(single.last) == [AlertKind.EPOCH_TOO_FAR_AHEAD]
    assert single.last.quorum_state is None


def test_request_with_an_epoch_slightly_ahead_is_accepted() -> None:
    single = following()
    ahead = single.settings.epochs_ahead_max
    assert begin(single, B, 3 + ahead).error_code == ErrorCode.NONE
    assert (single.raft.epoch, single.raft.leader_id) == (3 + ahead, B)


def test_voter_far_behind_learns_the_epoch_from_a_response() -> None:
    single = Single()
    single.become_prospective()
    send = single.take_sent(VoteRequest)[0]
    single.answer(send, VoteResponse(epoch=FAR, leader_id=A, leader_host="nA", leader_port=9000))
    assert (single.raft.epoch, single.raft.leader_id) == (FAR, A)


@pytest.mark.parametrize(
    "stored",
    [
        QuorumState(EPOCH_MAX),
        QuorumState(EPOCH_MAX, A),
        QuorumState(EPOCH_MAX, ME),
        QuorumState(EPOCH_MAX, None, ReplicaKey(ME, directory(ME))),
        QuorumState(EPOCH_MAX, None, ReplicaKey(A, directory(A))),
    ],
    ids=["unattached", "follower", "leader", "candidate", "voter"],
)
@pytest.mark.parametrize("voters", [(ME,), (ME, A, B)], ids=["alone", "three"])
def test_replica_in_the_last_epoch_starts_and_alerts_that_no_election_is_possible(
    stored: QuorumState, voters: tuple[int, ...]
) -> None:
    single = Single(stored=stored, voters=voter_set(*voters))
    heard = alerts(single.last)
    for _ in range(20):
        for send in single.take_sent(VoteRequest):
            if send.request.pre_vote:  # type: ignore[union-attr]
                single.answer(send, VoteResponse(epoch=EPOCH_MAX, vote_granted=True))
                heard += alerts(single.last)
        before = single.now
        single.tick_to_deadline()
        heard += alerts(single.last)
        assert single.raft.epoch == EPOCH_MAX
        assert not single.raft.is_leader
    assert single.now > before, "time passes between two tries"
    if stored.voted is None or stored.voted.node_id != ME or voters == (ME,):
        assert AlertKind.EPOCHS_USED_UP in heard


# a leader's address


def test_response_leaves_out_a_leader_host_that_is_too_long() -> None:
    """Such a host comes from a forged message, or is the address of a voter in the log."""
    host = "x" * 5_000
    voters = VoterSet(tuple(replace(voter, address=Address(host, 9000)) for voter in voter_set(ME, A, B).voters))
    restarted = Single(voters=voters, stored=QuorumState(3, A))
    told = Single(voters=voter_set(ME, A, B))
    told.ask(BeginQuorumEpochRequest(epoch=3, leader_id=A, leader_host=host, leader_port=9000))
    for single in (restarted, told):
        response = single.ask(VoteRequest(epoch=3, candidate_id=B, pre_vote=True))
        assert isinstance(response, VoteResponse)
        assert (response.leader_id, response.leader_host, response.leader_port) == (A, "", -1)
        encode_rpc(response)


# random sequences

NODES = st.sampled_from([ME, A, B, C, 99, -1, 0, -7, 2**31 - 1])
EPOCHS = st.one_of(st.integers(-1, 8), st.sampled_from([FAR, EPOCH_MAX - 1, EPOCH_MAX, -(2**31)]))
OFFSETS = st.one_of(st.integers(-1, 30), st.sampled_from([2**63 - 1, -(2**63)]))
DIRECTORIES = st.one_of(st.none(), st.sampled_from([directory(node_id) for node_id in (ME, A, B, 99)]))
CLUSTERS = st.sampled_from([CLUSTER, CLUSTER, CLUSTER, "", OTHER])
SIZES = st.sampled_from([0, 1, 500, -1, 2**31 - 1])
RECEIVER: dict[str, Any] = {
    "cluster_id": CLUSTERS,
    "voter_id": NODES,
    "voter_directory_id": DIRECTORIES,
    "epoch": EPOCHS,
}
LEADER: dict[str, Any] = {"leader_host": st.sampled_from(["", "n2"]), "leader_port": st.sampled_from([-1, 0, 9000])}
REPLICA: dict[str, Any] = {
    "cluster_id": CLUSTERS,
    "replica_id": NODES,
    "replica_directory_id": DIRECTORIES,
    "epoch": EPOCHS,
    "max_bytes": SIZES,
}
FORGED: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        VoteRequest,
        **RECEIVER,
        candidate_id=NODES,
        candidate_directory_id=DIRECTORIES,
        last_epoch=EPOCHS,
        last_offset=OFFSETS,
        pre_vote=st.booleans(),
    ),
    st.builds(BeginQuorumEpochRequest, **RECEIVER, **LEADER, leader_id=NODES),
    st.builds(
        EndQuorumEpochRequest,
        cluster_id=CLUSTERS,
        epoch=EPOCHS,
        leader_id=NODES,
        preferred_successors=st.lists(NODES, max_size=4).map(tuple),
    ),
    st.builds(
        MetadataFetchRequest,
        **REPLICA,
        fetch_offset=OFFSETS,
        last_fetched_epoch=EPOCHS,
        max_wait_ms=SIZES,
        high_watermark=OFFSETS,
    ),
    st.builds(FetchSnapshotRequest, **REPLICA, snapshot_end_offset=OFFSETS, snapshot_epoch=EPOCHS, position=OFFSETS),
)


@every_state
@given(data=st.data())
def test_random_forged_requests_never_crash_a_replica(make: Any, data: st.DataObject) -> None:
    """Each request is answered or parked, epoch and high watermark never decrease, and the epochs are not used up."""
    single = make()
    epoch, high_watermark = single.raft.epoch, committed(single) or 0
    for request in data.draw(st.lists(FORGED, max_size=12)):
        single.ask(request)
        if data.draw(st.booleans()):
            single.now += data.draw(st.sampled_from([1, 50, 1_000]))
            single.step(Tick())
        if data.draw(st.booleans()):
            single.sync()
        assert epoch <= single.raft.epoch <= epoch + single.settings.epochs_ahead_max + 2
        assert (committed(single) or 0) >= high_watermark
        epoch, high_watermark = single.raft.epoch, committed(single) or 0
