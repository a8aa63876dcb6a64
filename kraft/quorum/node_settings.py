"""Settings that the quorum derives from a node's configuration: timeouts, voters, identity, log settings, TLS for
connections.
"""

from __future__ import annotations

from kraft.config import NodeConfig
from kraft.raft.identity import Identity, ReplicaKey, Voter, VoterSet
from kraft.raft.settings import RaftSettings
from kraft.seam import Address
from kraft.storage.log import LogConfig
from kraft.storage.meta_properties import MetaProperties


def raft_settings(config: NodeConfig) -> RaftSettings:
    election_timeout_ms = config.integer("controller.quorum.election.timeout.ms")
    fetch_timeout_ms = config.integer("controller.quorum.fetch.timeout.ms")
    defaults = RaftSettings()
    return RaftSettings(
        election_timeout_ms=election_timeout_ms,
        fetch_timeout_ms=fetch_timeout_ms,
        election_backoff_max_ms=config.integer("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=config.integer("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.integer("controller.quorum.retry.backoff.ms"),
        fetch_wait_ms=min(defaults.fetch_wait_ms, fetch_timeout_ms // 2),
        fetch_bytes_max=config.integer("controller.quorum.fetch.max.bytes"),
        snapshot_chunk_bytes=config.integer("controller.quorum.fetch.snapshot.max.bytes"),
        fast_round_max_ms=min(defaults.fast_round_max_ms, election_timeout_ms),
        fast_round_min_ms=min(defaults.fast_round_min_ms, election_timeout_ms),
    )


def configured_voters(config: NodeConfig) -> VoterSet:
    """Return the static voters, which match any directory of their node; an empty set if voters come only from
    the log."""
    return VoterSet(
        tuple(Voter(ReplicaKey(voter.node_id), Address(voter.host, voter.port)) for voter in config.quorum_voters)
    )


def bootstrap_addresses(config: NodeConfig) -> tuple[Address, ...]:
    return tuple(Address(host, port) for host, port in config.quorum_bootstrap_servers)


def raft_identity(config: NodeConfig, meta: MetaProperties) -> Identity:
    """Return this node's identity in the quorum. Its address is the one in the voter list, or else its advertised
    listener."""
    key = ReplicaKey(config.node_id, meta.directory_id)
    address = next(
        (Address(voter.host, voter.port) for voter in config.quorum_voters if voter.node_id == config.node_id), None
    )
    if address is None and config.is_controller:
        listener = controller_listener(config)
        named = [item for item in config.advertised_listeners if item.name == listener]
        address = Address(named[0].host, named[0].port) if named else None
    return Identity(key, meta.cluster_id, config.is_controller, address)


def controller_listener(config: NodeConfig) -> str:
    """Return the name of the listener of controllers."""
    return config.controller_listener_names[0]


def peer_tls(config: NodeConfig) -> object | None:
    """Return the TLS settings for connections to the controllers' listener."""
    return config.dial_tls(controller_listener(config))


def log_config(config: NodeConfig) -> LogConfig:
    """Return the segment settings of the metadata log. It has no retention here: the quorum removes only what a
    snapshot covers."""
    segment_bytes = config.integer("metadata.log.segment.bytes")
    if config.is_set("internal.metadata.log.segment.bytes"):
        segment_bytes = config.integer("internal.metadata.log.segment.bytes")
    return LogConfig(
        segment_bytes=segment_bytes,
        segment_ms=config.integer("metadata.log.segment.ms"),
        retention_ms=-1,
        retention_bytes=-1,
    )
