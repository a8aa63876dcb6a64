"""Election campaigns: pre-vote rounds (prospective), then the real vote (candidate).

Epochs rise only after a majority has granted a pre-vote. A voter that knows no live leader (`FastCampaign`) repeats a
lost pre-vote round after 20 to 50 ms; the delay doubles with each lost round. A candidate that lost retries after about
20 ms * 2^n.
Source: KIP-595, KIP-996, Raft dissertation, section 9.6, docs/decisions/05-fast-fencing.md#voters.
"""

from __future__ import annotations

from kraft.raft.core import Core
from kraft.raft.fencing import adopt
from kraft.raft.inputs import Failure
from kraft.raft.leader import begin_leadership
from kraft.raft.state import NEVER, Candidate, Prospective
from kraft.raft.transitions import (
    resume_following,
    to_candidate,
    to_leader,
    to_prospective,
    to_unattached_same_epoch,
)
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import VoteRequest, VoteResponse


def start_round(core: Core) -> None:
    """Start a pre-vote round; a sole voter wins it immediately."""
    to_prospective(core)
    _request_votes(core)
    _count(core)


def restart_candidacy(core: Core) -> None:
    """Request votes again in the stored epoch, after a restart as a candidate."""
    _request_votes(core)
    _count(core)


def _request_votes(core: Core) -> None:
    role = core.role
    if not isinstance(role, Prospective | Candidate):
        return
    for node_id in role.tally.unrecorded:
        if not core.has_request_in_flight(node_id, VoteRequest):
            core.send_to_voter(node_id, _vote_request(core, node_id))


def _vote_request(core: Core, node_id: int) -> VoteRequest:
    voter = core.voters.find(node_id)
    key = core.identity.key
    return VoteRequest(
        cluster_id=core.identity.cluster_id,
        voter_id=node_id,
        voter_directory_id=None if voter is None else voter.key.directory_id,
        epoch=core.epoch,
        candidate_id=key.node_id,
        candidate_directory_id=key.directory_id,
        last_epoch=core.log.last_epoch,
        last_offset=core.log.end_offset,
        pre_vote=isinstance(core.role, Prospective),
    )


def handle_vote_response(core: Core, node_id: int, response: VoteResponse) -> None:
    role = core.role
    if not isinstance(role, Prospective | Candidate):
        return
    # A pre-vote does not change the epoch of the voter that grants it, so the epoch of the response may be lower than
    # ours.
    if not (isinstance(role, Prospective) and response.epoch < core.epoch and response.error_code == ErrorCode.NONE):
        is_current = adopt(core, response)
        if core.role is not role:
            return
        if not is_current:
            role.tally.record_unreachable(node_id)
            _count(core)
            return
    role.tally.record(node_id, granted=response.vote_granted and response.error_code == ErrorCode.NONE)
    _count(core)


def handle_vote_failure(core: Core, node_id: int, failure: Failure) -> None:
    """Handle a vote request that got no response. After a timeout it is sent again. After any other failure the voter
    counts as unreachable in this round."""
    role = core.role
    if not isinstance(role, Prospective | Candidate):
        return
    if failure is Failure.TIMED_OUT:
        core.send_to_voter(node_id, _vote_request(core, node_id))
        return
    role.tally.record_unreachable(node_id)
    _count(core)


def _count(core: Core) -> None:
    role = core.role
    if isinstance(role, Prospective):
        if role.tally.is_won and core.alert_if_last_epoch():
            end_round(core, role)
        elif role.tally.is_won:
            to_candidate(core)
            _request_votes(core)
            _count(core)
        elif role.tally.is_lost:
            end_round(core, role)
    elif isinstance(role, Candidate):
        if role.tally.is_won:
            begin_leadership(core, to_leader(core, role.tally.granting))
        elif role.tally.is_lost and role.retry_at_ms == NEVER:
            role.retry_at_ms = core.next_candidacy()


def end_round(core: Core, role: Prospective) -> None:
    """End a lost pre-vote round: return to the known leader, or wait unattached. Epoch and vote stay."""
    if role.follower is not None and core.leader_id is not None:
        follower = role.follower
        resume_following(core, follower)
        if follower.lost_since_ms is not None:
            follower.campaign_at_ms = core.next_fast_round()
    else:
        to_unattached_same_epoch(
            core, core.next_fast_round() if core.fast_campaign is not None else core.election_timeout()
        )
