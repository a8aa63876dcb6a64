"""A controller's own entry among the voters (KIP-853): it updates its address after a move, and joins if configured to.

A controller that is not a voter asks to become one if controller.quorum.auto.join.enable is set. A node that returned
with an empty disk is another replica: its old key is removed first, then it joins. Static voter sets from the
configuration are left alone. Source: KIP-853.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import structlog

from kraft.node.peers import PeerRequestFailed
from kraft.quorum.node_settings import controller_listener, peer_tls
from kraft.raft.identity import Voter
from kraft.seam import Address, Peer, WireError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import ForwardRequest

if TYPE_CHECKING:
    from kraft.config import NodeConfig
    from kraft.node.peers import Peers
    from kraft.quorum.quorum import Quorum
    from kraft.seam import Clock

log = structlog.get_logger("kraft.quorum")

PURPOSE = "voter-membership"
UPDATE_PERIODS = 3
"""Number of fetch timeouts between two reports of its address, by a voter whose address in the voter set is outdated.
"""
JOIN_PERIOD_MS = 1_000
TIMEOUT_MS = 10_000
KRAFT_VERSIONS = MappingProxyType({"min_supported_version": 0, "max_supported_version": 1})


class VoterMembership:
    """Keeps this controller's own entry in the voter set up to date; `run` runs until cancelled."""

    def __init__(self, config: NodeConfig, clock: Clock, quorum: Quorum, peers: Peers, cluster_id: str) -> None:
        self._clock = clock
        self._quorum = quorum
        self._peers = peers
        self._cluster_id = cluster_id
        self._tls = peer_tls(config)
        self._node_id = config.node_id
        self._listener = controller_listener(config)
        self._is_static = bool(config.quorum_voters)
        self._joins = config.boolean("controller.quorum.auto.join.enable")
        self._update_ms = UPDATE_PERIODS * config.integer("controller.quorum.fetch.timeout.ms")

    async def run(self) -> None:
        """Check periodically, and repeat refused requests. With static voters, do nothing."""
        while not self._is_static:
            await self._clock.sleep_ms(JOIN_PERIOD_MS if self._joins else self._update_ms)
            wish = self._needed_change()
            leader = self._leader()
            if wish is not None and leader is not None:
                await self._ask(leader, *wish)

    def _needed_change(self) -> tuple[ApiKey, dict[str, Any]] | None:
        """Return the request that must be sent to the leader; None if the voter set has the right entry for this
        controller."""
        quorum = self._quorum
        voters, own = quorum.voters, quorum.own_address
        leader_id, epoch = quorum.leader_and_epoch
        if voters.is_configured or own is None or leader_id in (None, self._node_id) or not own.host or own.port <= 0:
            return None
        key = quorum.own_key
        known = voters.find(self._node_id)
        listener = {"name": self._listener, "host": own.host, "port": own.port}
        named = {"cluster_id": self._cluster_id, "voter_id": self._node_id}
        if known == Voter(key, own):
            return None
        if known is not None and known.key == key:
            moved = {"voter_directory_id": key.directory_id, "listeners": (listener,), "current_leader_epoch": epoch}
            return ApiKey.UPDATE_RAFT_VOTER, {**named, **moved, "k_raft_version_feature": KRAFT_VERSIONS}
        if not self._joins:
            return None
        if known is not None:
            return ApiKey.REMOVE_RAFT_VOTER, {**named, "voter_directory_id": known.key.directory_id}
        joining = {"voter_directory_id": key.directory_id, "listeners": (listener,)}
        return ApiKey.ADD_RAFT_VOTER, {**named, **joining, "timeout": TIMEOUT_MS}

    def _leader(self) -> Peer | None:
        leader_id = self._quorum.leader_and_epoch[0]
        for node_id, host, port in self._quorum.describe().endpoints:
            if node_id == leader_id:
                return Peer(node_id, self._listener, Address(host, port), self._tls)
        return None

    async def _ask(self, leader: Peer, api_key: ApiKey, fields: dict[str, Any]) -> None:
        version = messages.newest_version(api_key)
        body = messages.encode_request(api_key, version, messages.build(messages.request_class(api_key), **fields))
        envelope = ForwardRequest(
            forwarded_key=api_key,
            forwarded_version=version,
            body=body,
            client_id=f"controller-{self._node_id}",
            timeout_ms=TIMEOUT_MS,
        )
        try:
            answer = await self._peers.request(leader, envelope, timeout_ms=TIMEOUT_MS, purpose=PURPOSE)
        except PeerRequestFailed as failure:
            log.info("voters are not changed", asked=api_key.name, outcome=failure.outcome.value)
            return
        code, text = ErrorCode.of(answer.error_code), None
        if code is ErrorCode.NONE:
            try:
                response: Any = messages.decode_response(api_key, version, answer.body)
            except WireError as problem:
                log.warning("voters are not changed", asked=api_key.name, why=str(problem))
                return
            code, text = ErrorCode.of(int(response.error_code)), getattr(response, "error_message", None)
        log.info("voters", asked=api_key.name, answer=code.name, why=text)
