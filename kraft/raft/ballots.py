"""Handlers of other nodes' election requests: Vote and pre-vote, BeginQuorumEpoch, EndQuorumEpoch.

A node answers even if it is not a voter in its own voter set, or the candidate is not one: counting votes is the
candidate's job. A vote (as opposed to a pre-vote) is granted as in Kafka. A pre-vote changes no state here but may
start a redial of the leader (invariant K4). A follower grants a pre-vote only if it has not fetched from its leader in
this epoch or cannot reach it (`leader_contact`).
Source: KIP-595, KIP-996, Raft paper, section 5.4.1, docs/decisions/05-fast-fencing.md#voters.
"""

from __future__ import annotations

from kraft.raft.core import Core
from kraft.raft.fencing import check_claim, is_addressed_to_us, is_other_cluster
from kraft.raft.follower import lose_contact, redial_leader
from kraft.raft.identity import ReplicaKey
from kraft.raft.ready import Reply
from kraft.raft.state import FastCampaign, Follower, Leader, Prospective, Unattached
from kraft.raft.transitions import to_follower, to_unattached, vote_for
from kraft.seam import Address
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)


def handle_vote(core: Core, token: int, request: VoteRequest) -> None:
    error = _check_vote(core, request)
    granted = False
    if error is ErrorCode.NONE and request.epoch > core.epoch and not request.pre_vote:
        to_unattached(core, request.epoch)
    if error is ErrorCode.NONE and not is_addressed_to_us(core, request.voter_id, request.voter_directory_id):
        error = ErrorCode.INVALID_VOTER_KEY
    if error is ErrorCode.NONE:
        candidate = ReplicaKey(request.candidate_id, request.candidate_directory_id)
        is_up_to_date = core.log.is_up_to_date(request.last_epoch, request.last_offset)
        if request.pre_vote:
            redial_leader(core)
            granted = is_up_to_date and grants_pre_vote(core)
        else:
            granted = is_up_to_date and grants_vote(core, candidate)
            if granted:
                vote_for(core, candidate)
            elif not is_up_to_date:
                _campaign_soon(core)
    core.out.answers.append(Reply(token, core.answer_as(VoteResponse, error, vote_granted=granted)))


def _check_vote(core: Core, request: VoteRequest) -> ErrorCode:
    if is_other_cluster(core, request.cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    last_epoch_max = request.epoch if request.pre_vote else request.epoch - 1
    if request.last_offset < 0 or not 0 <= request.last_epoch <= last_epoch_max:
        return ErrorCode.INVALID_REQUEST
    if request.candidate_id < 0 or request.candidate_id == core.node_id:
        return ErrorCode.INVALID_REQUEST
    return check_claim(core, request.epoch)


def _campaign_soon(core: Core) -> None:
    """Schedule an election of this node soon, after it has refused its vote to a candidate whose log is behind. If no
    leader is known, that candidate may well lose, and this node would otherwise wait for its election timeout."""
    role = core.role
    if isinstance(role, Unattached) and core.is_voter and core.voted is None and core.leader_id is None:
        core.fast_campaign = core.fast_campaign or FastCampaign()
        role.election_deadline_ms = min(role.election_deadline_ms, core.first_fast_round())


def grants_vote(core: Core, candidate: ReplicaKey) -> bool:
    """Return whether an up-to-date candidate gets this node's vote in this epoch. If this node has voted in the epoch
    already, only the same candidate gets the vote again."""
    if not isinstance(core.role, Unattached | Prospective):
        return False
    if core.voted is not None:
        return core.voted == candidate
    return core.leader_id is None


def grants_pre_vote(core: Core) -> bool:
    """Return whether an up-to-date candidate gets a pre-vote. It does not while this node leads, or is a follower that
    can reach its leader."""
    role = core.role
    if isinstance(role, Leader):
        return False
    if isinstance(role, Follower):
        return not role.has_fetched or role.lost_since_ms is not None
    return True


def handle_begin(core: Core, token: int, request: BeginQuorumEpochRequest) -> None:
    """Handle the announcement of the leader of `request.epoch`: follow it."""
    error = ErrorCode.NONE
    if is_other_cluster(core, request.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
    elif request.leader_id < 0 or request.leader_id == core.node_id:
        error = ErrorCode.INVALID_REQUEST
    else:
        error = check_claim(core, request.epoch, request.leader_id)
    if error is ErrorCode.NONE:
        address = Address(request.leader_host, request.leader_port) if request.leader_port > 0 else None
        _follow(core, request.epoch, request.leader_id, address)
        if not is_addressed_to_us(core, request.voter_id, request.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
    core.out.answers.append(Reply(token, core.answer_as(BeginQuorumEpochResponse, error)))


def _follow(core: Core, epoch: int, leader_id: int, address: Address | None) -> None:
    role = core.role
    is_known = epoch == core.epoch and core.leader_id == leader_id
    if is_known and isinstance(role, Follower):
        core.leader_address = address or core.leader_address
        core.fetch.not_before_ms = core.now_ms
        return
    to_follower(core, epoch, leader_id, address)


def handle_end(core: Core, token: int, request: EndQuorumEpochRequest) -> None:
    """Handle the resignation of the leader of `request.epoch`: its followers start an election without waiting for a
    timeout."""
    error = ErrorCode.NONE
    if is_other_cluster(core, request.cluster_id):
        error = ErrorCode.INCONSISTENT_CLUSTER_ID
    elif request.leader_id < 0 or request.leader_id == core.node_id:
        error = ErrorCode.INVALID_REQUEST
    else:
        error = check_claim(core, request.epoch)
    if error is ErrorCode.NONE:
        _handle_resignation(core, request)
    core.out.answers.append(Reply(token, core.answer_as(EndQuorumEpochResponse, error)))


def _handle_resignation(core: Core, request: EndQuorumEpochRequest) -> None:
    if request.epoch > core.epoch or core.leader_id is None:
        address = core.address_of(request.leader_id)
        to_follower(core, request.epoch, request.leader_id, address)
    if not isinstance(core.role, Follower) or core.leader_id != request.leader_id:
        return
    lose_contact(core, core.role)
    if not core.is_voter:
        return
    successors = request.preferred_successors
    position = successors.index(core.node_id) if core.node_id in successors else len(successors)
    settings = core.settings
    backoff = settings.election_backoff_max_ms
    if 0 < position < len(successors):
        # Kafka's bound: each successor waits twice as long as the one before it.
        backoff = min(backoff, (backoff >> (len(successors) - 1)) << (position - 1))
    wait = 0 if position == 0 and successors else min(backoff, (position + 1) * settings.rank_step_ms)
    core.role.campaign_at_ms = core.now_ms + wait
