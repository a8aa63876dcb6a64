"""Changes of role. Each keeps the state that must survive it: the vote within an epoch, the remaining election time,
contact.

Only a prospective becomes candidate, only a candidate becomes leader, and observers are always unattached or followers.
Source: KIP-595, KIP-996, Kafka's QuorumState.
"""

from __future__ import annotations

from kraft.raft.core import Core
from kraft.raft.identity import ReplicaKey
from kraft.raft.ready import Reply
from kraft.raft.state import (
    NEVER,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from kraft.raft.votes import Tally
from kraft.seam import Address, require
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import MetadataFetchResponse


def to_unattached(core: Core, epoch: int) -> None:
    """Enter a higher epoch, with no vote and no leader in it yet."""
    require(epoch > core.epoch, f"epoch {core.epoch} cannot go to {epoch}")
    deadline = _carried_election_time(core)
    core.epoch = epoch
    core.voted = None
    core.leader_id = None
    core.leader_address = None
    _enter(core, Unattached(deadline))
    core.forget_requests()


def to_unattached_same_epoch(core: Core, election_deadline_ms: int) -> None:
    """Become unattached after a lost pre-vote round without a known leader; epoch and vote stay."""
    _enter(core, Unattached(election_deadline_ms))
    core.forget_all_requests_but_fetch()


def vote_for(core: Core, candidate: ReplicaKey) -> None:
    """Record the one vote of this epoch. The voter gives the candidate a fresh election timeout to win."""
    require(core.voted is None or core.voted == candidate, f"second vote in epoch {core.epoch}")
    core.voted = candidate
    core.fast_campaign = None
    _enter(core, Unattached(core.election_timeout() if core.is_voter else NEVER))
    core.forget_requests()


def to_follower(core: Core, epoch: int, leader_id: int, address: Address | None) -> None:
    """Follow `leader_id` as the leader of `epoch`, which is this one or a higher one; see `fencing.accepts_leader`."""
    require(epoch >= core.epoch, f"epoch {core.epoch} cannot go to {epoch}")
    require(leader_id != core.node_id, f"node {core.node_id} cannot follow itself in epoch {epoch}")
    if epoch > core.epoch:
        core.voted = None
    else:
        require(core.leader_id != core.node_id, f"epoch {epoch} has two leaders: {core.node_id} and {leader_id}")
    core.epoch = epoch
    core.leader_id = leader_id
    core.leader_address = address
    core.fast_campaign = None
    core.rounds_lost = 0
    _enter(core, Follower(core.now_ms + core.settings.fetch_timeout_ms))
    core.forget_requests()


def to_prospective(core: Core) -> None:
    """Become prospective: ask whether a majority would vote for this node, without raising the epoch."""
    require(core.is_voter, f"node {core.node_id} is no voter and cannot ask for pre-votes")
    follower = core.role if isinstance(core.role, Follower) else None
    if follower is not None:
        core.out.discard_download |= follower.download is not None
        follower.download = None
        follower.has_fetched = False
    core.forget_all_requests_but_fetch()
    tally = Tally(core.voters.ids)
    tally.record(core.node_id, granted=True)
    _enter(core, Prospective(tally, core.election_timeout(), follower))


def resume_following(core: Core, follower: Follower) -> None:
    """Return to the known leader after a lost pre-vote round, with a fresh fetch timeout."""
    follower.fetch_deadline_ms = core.now_ms + core.settings.fetch_timeout_ms
    _enter(core, follower)
    core.forget_all_requests_but_fetch()


def to_candidate(core: Core) -> None:
    """Become candidate in a new epoch, with a vote for this node itself."""
    require(isinstance(core.role, Prospective), f"only a prospective becomes candidate, not {core.role}")
    core.epoch += 1
    core.voted = core.identity.key
    core.leader_id = None
    core.leader_address = None
    _enter_candidacy(core)


def to_candidate_again(core: Core) -> None:
    """Become candidate again in the same epoch, after a restart that found a vote for this node and no leader."""
    _enter_candidacy(core)


def to_leader(core: Core, granting: tuple[int, ...]) -> Leader:
    require(isinstance(core.role, Candidate), f"only a candidate becomes leader, not {core.role}")
    core.leader_id = core.node_id
    core.leader_address = None
    core.fast_campaign = None
    core.rounds_lost = 0
    settings = core.settings
    leader = Leader(core.log.end_offset, granting, core.now_ms + settings.check_quorum_ms, core.now_ms)
    _enter(core, leader)
    core.forget_requests()
    return leader


def to_resigned(core: Core, *, unacked: set[int], successors: tuple[int, ...], deadline_ms: int) -> None:
    """Stop leading; the stored state still names this node as the leader of the epoch."""
    require(core.leader_id == core.node_id, f"node {core.node_id} does not lead epoch {core.epoch}")
    _enter(core, Resigned(deadline_ms, unacked, successors))
    core.forget_requests()


def _enter_candidacy(core: Core) -> None:
    tally = Tally(core.voters.ids)
    tally.record(core.node_id, granted=True)
    _enter(core, Candidate(tally, core.election_timeout()))
    core.forget_requests()


def _enter(core: Core, role: Role) -> None:
    left = core.role
    core.role = role
    if isinstance(left, Follower) and left is not role and left.download is not None:
        core.out.discard_download = True
        left.download = None
    if isinstance(left, Leader):
        for parked in left.parked.values():
            refuse_fetch(core, parked.token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if isinstance(role, Unattached):
        core.fetch.is_probing = False


def refuse_fetch(core: Core, token: int, error: ErrorCode) -> None:
    """Answer a fetch with an error, this node's epoch and the leader that it knows."""
    core.out.answers.append(Reply(token, core.answer_as(MetadataFetchResponse, error)))


def _carried_election_time(core: Core) -> int:
    """Return the election deadline that a move to a higher epoch keeps, or a short one if no leader can be reached."""
    if not core.is_voter:
        return NEVER
    role = core.role
    deadline = core.election_timeout()
    if isinstance(role, Unattached | Candidate | Prospective | Resigned) and role.election_deadline_ms < NEVER:
        deadline = role.election_deadline_ms
    if core.fast_campaign is not None:
        deadline = min(deadline, core.next_fast_round())
    return deadline
