"""Checks of every request and response before it is handled: cluster id, epoch, leader.

A message of an older epoch changes nothing but gets a response. A message of a newer epoch moves this replica to that
epoch. A replica learns nothing from a response of another cluster, or of a node other than the one that it asked. A
replica that has fetched from the leader of an epoch accepts no other leader of that epoch until it has lost that
leader.
Source: KIP-595, Raft paper, section 5.1.
"""

from __future__ import annotations

from uuid import UUID

from kraft.raft.core import Core
from kraft.raft.identity import ReplicaKey
from kraft.raft.ready import AlertKind
from kraft.raft.state import Follower, Leader, Prospective, Unattached
from kraft.raft.transitions import to_follower, to_unattached
from kraft.seam import Address
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import QuorumResponse

ERRORS_TO_LEARN_FROM = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.SNAPSHOT_NOT_FOUND,
        ErrorCode.POSITION_OUT_OF_RANGE,
    }
)
"""Error codes with which a replica of this quorum reports its epoch and leader. All other codes reject the request
itself."""


def check_claim(core: Core, epoch: int, leader_id: int | None = None) -> ErrorCode:
    """Check whether the epoch of a request, and the leader that it claims, may be adopted here."""
    if epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch - core.epoch > core.settings.epochs_ahead_max:
        ahead = core.settings.epochs_ahead_max
        text = f"a request of epoch {epoch} is rejected at epoch {core.epoch}: it may be {ahead} ahead"
        core.alert(AlertKind.EPOCH_TOO_FAR_AHEAD, f"{text}; only responses of the voters may be further ahead")
        return ErrorCode.INVALID_REQUEST
    if leader_id is not None and not accepts_leader(core, epoch, leader_id):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def accepts_leader(core: Core, epoch: int, leader_id: int) -> bool:
    """Return whether another node that claims to lead `epoch` (the current one, or a newer one) may be followed. Until
    a follower has fetched from its current leader, that leader's claim is unproven too, so another leader may replace
    it."""
    if epoch > core.epoch or core.leader_id in (None, leader_id):
        return True
    has_fetched = isinstance(core.role, Follower) and core.role.has_fetched
    if core.leader_id != core.node_id and not has_fetched:
        return True
    text = f"node {core.leader_id} leads epoch {epoch}; the claim that node {leader_id} leads it is ignored"
    core.alert(AlertKind.CONFLICTING_LEADER, text)
    return False


def is_other_cluster(core: Core, cluster_id: str) -> bool:
    """Return whether a request names another cluster. A request without a cluster id is accepted."""
    return cluster_id not in ("", core.identity.cluster_id)


def is_addressed_to_us(core: Core, voter_id: int, directory_id: UUID | None) -> bool:
    """Return whether a request is addressed to this replica. A request without a replica key is accepted."""
    return voter_id == -1 or ReplicaKey(voter_id, directory_id).matches(core.identity.key)


def check_fetch_epoch(core: Core, epoch: int) -> ErrorCode:
    """Return the error for a fetch of this epoch, or NONE: only the leader of exactly this epoch serves it."""
    if epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > core.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(core.role, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def address_in(response: QuorumResponse) -> Address | None:
    return Address(response.leader_host, response.leader_port) if response.leader_port > 0 else None


def adopt(core: Core, response: QuorumResponse) -> bool:
    """Learn epoch and leader from a response. Return whether it is of the current epoch, so that it may be acted on."""
    if response.epoch < core.epoch or response.error_code not in ERRORS_TO_LEARN_FROM:
        return False
    leader_id = response.leader_id
    if response.epoch > core.epoch:
        if leader_id >= 0 and leader_id != core.node_id:
            to_follower(core, response.epoch, leader_id, _address(core, response))
        else:
            to_unattached(core, response.epoch)
        return False
    if leader_id >= 0 and leader_id != core.node_id:
        if not accepts_leader(core, response.epoch, leader_id):
            return False
        _adopt_leader(core, leader_id, response)
    return True


def _adopt_leader(core: Core, leader_id: int, response: QuorumResponse) -> None:
    """Adopt the leader of the current epoch that a response named, or its new address. The leader may be missing from
    this node's voter set if that set is old, and this node's disk stores only the leader's id, not its address."""
    role, address = core.role, _address(core, response)
    follows_nobody = isinstance(role, Unattached) or (isinstance(role, Prospective) and role.follower is None)
    if leader_id != core.leader_id or (follows_nobody and address is not None):
        to_follower(core, response.epoch, leader_id, address)
    elif isinstance(role, Follower):
        core.leader_address = address_in(response) or core.leader_address


def _address(core: Core, response: QuorumResponse) -> Address | None:
    found = address_in(response)
    voter = core.voters.find(response.leader_id)
    return found if found is not None or voter is None else voter.address
