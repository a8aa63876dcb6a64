"""From a node's configuration to what the quorum needs: time-outs, voters, identity, log settings, dialling."""

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
        hurry_max_ms=min(defaults.hurry_max_ms, election_timeout_ms),
        hurry_min_ms=min(defaults.hurry_min_ms, election_timeout_ms),
    )


def configured_voters(config: NodeConfig) -> VoterSet:
    """The static voters, who stand for any directory of their node; empty if voters come from the log alone."""
    return VoterSet(
        tuple(Voter(ReplicaKey(voter.node_id), Address(voter.host, voter.port)) for voter in config.quorum_voters)
    )


def bootstrap_addresses(config: NodeConfig) -> tuple[Address, ...]:
    return tuple(Address(host, port) for host, port in config.quorum_bootstrap_servers)


def raft_identity(config: NodeConfig, meta: MetaProperties) -> Identity:
    """Who this node is in the quorum; its address is that which the voters, or its advertised listeners, name."""
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
    """The listener on which controllers are reached."""
    return config.controller_listener_names[0]


def peer_tls(config: NodeConfig) -> object | None:
    """TLS settings for dialling the controllers' listener."""
    return config.dial_tls(controller_listener(config))


def log_config(config: NodeConfig) -> LogConfig:
    """Segments of the metadata log. Retention is the quorum's own business: it cuts only behind snapshots."""
    segment_bytes = config.integer("metadata.log.segment.bytes")
    if config.is_set("internal.metadata.log.segment.bytes"):
        segment_bytes = config.integer("internal.metadata.log.segment.bytes")
    return LogConfig(
        segment_bytes=segment_bytes,
        segment_ms=config.integer("metadata.log.segment.ms"),
        retention_ms=-1,
        retention_bytes=-1,
    )
