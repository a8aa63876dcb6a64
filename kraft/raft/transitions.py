"""Changes of role. Each keeps what must survive it: the vote within an epoch, the remaining election time, contact.

Only a prospective becomes candidate, only a candidate becomes leader, observers are only ever unattached or followers.
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
    """A higher epoch was seen: no vote and no leader in it yet."""
    require(epoch > core.epoch, f"epoch {core.epoch} cannot go to {epoch}")
    deadline = _carried_election_time(core)
    core.epoch = epoch
    core.voted = None
    core.leader_id = None
    core.leader_address = None
    _enter(core, Unattached(deadline))
    core.forget_requests()


def to_unattached_same_epoch(core: Core, election_deadline_ms: int) -> None:
    """A lost pre-vote round without a known leader: epoch and vote stay."""
    _enter(core, Unattached(election_deadline_ms))
    core.forget_ballots()


def vote_for(core: Core, candidate: ReplicaKey) -> None:
    """Record the one vote of this epoch; the voter gives the candidate a fresh election time-out to win."""
    require(core.voted is None or core.voted == candidate, f"second vote in epoch {core.epoch}")
    core.voted = candidate
    core.hurry = None
    _enter(core, Unattached(core.election_timeout() if core.is_voter else NEVER))
    core.forget_requests()


def to_follower(core: Core, epoch: int, leader_id: int, address: Address | None) -> None:
    """`leader_id` leads `epoch`, which is this one or a higher one; see `fencing.believes`."""
    require(epoch >= core.epoch, f"epoch {core.epoch} cannot go to {epoch}")
    require(leader_id != core.node_id, f"node {core.node_id} cannot follow itself in epoch {epoch}")
    if epoch > core.epoch:
        core.voted = None
    else:
        require(core.leader_id != core.node_id, f"epoch {epoch} has two leaders: {core.node_id} and {leader_id}")
    core.epoch = epoch
    core.leader_id = leader_id
    core.leader_address = address
    core.hurry = None
    core.rounds_lost = 0
    _enter(core, Follower(core.now_ms + core.settings.fetch_timeout_ms))
    core.forget_requests()


def to_prospective(core: Core) -> None:
    """Ask whether a majority would vote for us, without raising the epoch."""
    require(core.is_voter, f"node {core.node_id} is no voter and cannot ask for pre-votes")
    follower = core.role if isinstance(core.role, Follower) else None
    if follower is not None:
        core.out.discard_download |= follower.download is not None
        follower.download = None
        follower.has_fetched = False
    core.forget_ballots()
    tally = Tally(core.voters.ids)
    tally.record(core.node_id, granted=True)
    _enter(core, Prospective(tally, core.election_timeout(), follower))


def resume_following(core: Core, follower: Follower) -> None:
    """A lost pre-vote round while the leader is known: back to it, with a fresh fetch time-out."""
    follower.fetch_deadline_ms = core.now_ms + core.settings.fetch_timeout_ms
    _enter(core, follower)
    core.forget_ballots()


def to_candidate(core: Core) -> None:
    """A new epoch with the vote for ourselves."""
    require(isinstance(core.role, Prospective), f"only a prospective becomes candidate, not {core.role}")
    core.epoch += 1
    core.voted = core.identity.key
    core.leader_id = None
    core.leader_address = None
    _enter_candidacy(core)


def to_candidate_again(core: Core) -> None:
    """After a restart that found the vote for ourselves and no leader: the same epoch."""
    _enter_candidacy(core)


def to_leader(core: Core, granting: tuple[int, ...]) -> Leader:
    require(isinstance(core.role, Candidate), f"only a candidate becomes leader, not {core.role}")
    core.leader_id = core.node_id
    core.leader_address = None
    core.hurry = None
    core.rounds_lost = 0
    settings = core.settings
    leader = Leader(core.log.end_offset, granting, core.now_ms + settings.check_quorum_ms, core.now_ms)
    _enter(core, leader)
    core.forget_requests()
    return leader


def to_resigned(core: Core, *, unacked: set[int], successors: tuple[int, ...], deadline_ms: int) -> None:
    """We led this epoch and do so no more; the stored state still names us as its leader."""
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
    """Answer a fetch with an error, our epoch and the leader that we know."""
    core.out.answers.append(Reply(token, core.answer_as(MetadataFetchResponse, error)))


def _carried_election_time(core: Core) -> int:
    """Return the election deadline that a move to a higher epoch keeps, or a short one if no leader can be reached."""
    if not core.is_voter:
        return NEVER
    role = core.role
    deadline = core.election_timeout()
    if isinstance(role, Unattached | Candidate | Prospective | Resigned) and role.election_deadline_ms < NEVER:
        deadline = role.election_deadline_ms
    if core.hurry is not None:
        deadline = min(deadline, core.next_hurried_round())
    return deadline
