"""AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter, as the leader carries them out (KIP-853).

Adding: the leader checks that the new voter is at the given address, by BeginQuorumEpoch, which names the leader and
harms no node. The new voter must have caught up with the log as an observer. Then the record is appended, and the
response waits until a majority of the *new* set holds it. Removing needs no response from the removed voter, which may
be dead. A leader that removes itself continues to lead, without counting itself, until the removal is committed, and
then resigns.

Invariants: one change at a time, and none before a record of this epoch and the last change are committed. Success is
reported only for committed changes. After REQUEST_TIMED_OUT, NOT_CONTROLLER or UNKNOWN_SERVER_ERROR the change may
still have happened.
Source: KIP-853, Kafka's AddVoterHandler, RemoveVoterHandler, UpdateVoterHandler, docs/deviations.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog
import trio

from kraft.config import NodeConfig
from kraft.node.peers import PeerRequestFailed, Peers
from kraft.quorum.node_settings import controller_listener, peer_tls
from kraft.quorum.quorum import NotLeader, Quorum
from kraft.raft.identity import ReplicaKey, Voter, VoterSet
from kraft.raft.state import replica_name
from kraft.raft.voter_changes import VotersRefused, refuse_newcomer, with_address, with_voter, without_voter
from kraft.seam import Address, Clock, Peer
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.quorum_messages import BeginQuorumEpochRequest

log = structlog.get_logger("kraft.quorum")

PROBE_TIMEOUT_MS = 2_000
PROBE_PURPOSE = "voter-probe"

DONE = VotersRefused(ErrorCode.NONE, "")
NOT_LEADER = VotersRefused(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")


def change_failed(problem: Exception) -> VotersRefused:
    """Return the error response for a change that failed because of an internal error."""
    text = f"the controller failed during the change: {problem!r}; describe the quorum to see whether it was made"
    return VotersRefused(ErrorCode.UNKNOWN_SERVER_ERROR, text)


@dataclass(frozen=True, slots=True)
class AddVoter:
    voter: Voter
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    key: ReplicaKey
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class UpdateVoter:
    voter: Voter
    epoch: int


VoterChange = AddVoter | RemoveVoter | UpdateVoter


class VoterChanges:
    """Carries out voter changes, one at a time; `change` may be called concurrently."""

    def __init__(self, config: NodeConfig, quorum: Quorum, peers: Peers, clock: Clock, cluster_id: str) -> None:
        self._quorum = quorum
        self._peers = peers
        self._clock = clock
        self._cluster_id = cluster_id
        self._node_id = config.node_id
        self._listener = controller_listener(config)
        self._tls = peer_tls(config)
        self._is_busy = False

    async def change(self, asked: VoterChange) -> VotersRefused:
        """Carry out a change, and return its outcome once it is committed (an address update: once it is appended). The
        code is NONE on success."""
        if not self._quorum.is_leader:
            return NOT_LEADER
        if self._is_busy:
            return VotersRefused(ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is in progress")
        self._is_busy = True
        try:
            if isinstance(asked, AddVoter):
                return await self._add(asked)
            if isinstance(asked, RemoveVoter):
                return await self._remove(asked)
            await trio.lowlevel.checkpoint()
            return self._update(asked)
        except NotLeader:
            return NOT_LEADER
        finally:
            self._is_busy = False

    async def _add(self, asked: AddVoter) -> VotersRefused:
        deadline_ms = self._clock.monotonic_ms() + asked.timeout_ms
        changed = with_voter(self._quorum.voters, asked.voter)
        if isinstance(changed, VotersRefused):
            return changed
        refusal = await self._probe(asked.voter, min(asked.timeout_ms, PROBE_TIMEOUT_MS))
        if refusal is None:
            refusal = self._refuse_newcomer(asked.voter.key)
        if refusal is not None:
            return refusal
        return await self._append(lambda voters: with_voter(voters, asked.voter), deadline_ms)

    async def _remove(self, asked: RemoveVoter) -> VotersRefused:
        deadline_ms = self._clock.monotonic_ms() + asked.timeout_ms
        return await self._append(lambda voters: without_voter(voters, asked.key), deadline_ms)

    def _update(self, asked: UpdateVoter) -> VotersRefused:
        epoch = self._quorum.leader_and_epoch[1]
        if asked.epoch != epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH if asked.epoch < epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
            return VotersRefused(code, f"the epoch is {epoch}, not {asked.epoch}")
        voters = self._quorum.voters
        changed = with_address(voters, asked.voter)
        if isinstance(changed, VotersRefused):
            return changed
        if changed != voters:
            offset = self._quorum.change_voters(changed)
            if isinstance(offset, str):
                return VotersRefused(ErrorCode.REQUEST_TIMED_OUT, offset)
            log.info("voter moved", node_id=asked.voter.key.node_id, address=str(asked.voter.address))
        return DONE

    async def _append(self, make: Callable[[VoterSet], VoterSet | VotersRefused], deadline_ms: int) -> VotersRefused:
        """Append the set that `make` returns for the current set, and wait for the majority."""
        changed = make(self._quorum.voters)
        if isinstance(changed, VotersRefused):
            return changed
        offset = self._quorum.change_voters(changed)
        if isinstance(offset, str):
            return VotersRefused(ErrorCode.REQUEST_TIMED_OUT, offset)
        log.info("voters change", voters=list(changed.ids), offset=offset)
        is_committed = await self._quorum.wait_committed(offset, deadline_ms)
        if is_committed is None:
            text = "the change is not committed yet: too few of the new voters answer"
            return VotersRefused(ErrorCode.REQUEST_TIMED_OUT, text)
        return DONE if is_committed else NOT_LEADER

    def _refuse_newcomer(self, key: ReplicaKey) -> VotersRefused | None:
        replica = self._quorum.replica
        progress = None if replica is None else replica.progress().get(replica_name(key))
        return refuse_newcomer(key, progress, self._clock.monotonic_ms())

    async def _probe(self, voter: Voter, timeout_ms: int) -> VotersRefused | None:
        """Check that the new voter answers at its address, and is the expected replica."""
        host, port = voter.address.host, voter.address.port
        leader = self._own_address()
        request = BeginQuorumEpochRequest(
            cluster_id=self._cluster_id,
            voter_id=voter.key.node_id,
            voter_directory_id=voter.key.directory_id,
            epoch=self._quorum.leader_and_epoch[1],
            leader_id=self._node_id,
            leader_host=leader.host,
            leader_port=leader.port,
        )
        peer = Peer(voter.key.node_id, self._listener, voter.address, self._tls)
        try:
            answer = await self._peers.request(peer, request, timeout_ms=timeout_ms, purpose=PROBE_PURPOSE)
        except PeerRequestFailed as failure:
            text = f"node {voter.key.node_id} cannot be reached at {host}:{port}: {failure.outcome.value}"
            return VotersRefused(ErrorCode.REQUEST_TIMED_OUT, text)
        finally:
            self._peers.forget(peer, PROBE_PURPOSE)
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.NONE:
            return None
        if code in (ErrorCode.INVALID_VOTER_KEY, ErrorCode.INCONSISTENT_CLUSTER_ID):
            expected = f"node {voter.key.node_id} of this cluster with this directory"
            text = f"the server at {host}:{port} is not {expected} ({code.name})"
            return VotersRefused(ErrorCode.INVALID_REQUEST, text)
        return VotersRefused(ErrorCode.REQUEST_TIMED_OUT, f"node {voter.key.node_id} answered {code.name}")

    def _own_address(self) -> Address:
        known = self._quorum.own_address
        return Address("", -1) if known is None else known
