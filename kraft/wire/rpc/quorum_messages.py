"""The messages of the metadata quorum: Vote, BeginQuorumEpoch, EndQuorumEpoch, MetadataFetch and FetchSnapshot.

Each keeps every field of its Kafka namesake that carries a safety check (KIP-595, KIP-630, KIP-853, KIP-996). Offsets
are exclusive ends unless the name says otherwise; -1 stands for "none" or "unknown". Each answer names the answering
node's epoch and the leader that it knows, with the leader's address, so that one round trip finds the leader; an answer
to another cluster (INCONSISTENT_CLUSTER_ID) names the cluster of the answering node, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kraft.wire.rpc import InternalKey, RpcMessage
from kraft.wire.rpc.field_codecs import Int16, Int32, Int64, PortOrNone

VOTE_BYTES_MAX = 4 * 1024
HOST_CHARACTERS_MAX = 255
"""Of a name in the DNS. The leader's host is named in answers of VOTE_BYTES_MAX; a longer one leads nowhere."""
FETCH_BYTES_MAX = 8 * 1024 * 1024
"""Most record bytes asked for in one MetadataFetch, and most bytes of a snapshot chunk."""
ANSWER_BYTES_MAX = FETCH_BYTES_MAX + 8 * 1024 * 1024 + 64 * 1024
"""A fetch answer holds at least one whole batch, which may be larger than what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest(RpcMessage):
    """Asks a voter for its vote in `epoch` or, with `pre_vote`, whether it would give one in the next epoch."""

    api_key = InternalKey.VOTE
    min_version = 0
    max_version = 0
    bytes_max = VOTE_BYTES_MAX

    cluster_id: str = ""
    voter_id: Int32 = -1
    voter_directory_id: UUID | None = None
    epoch: Int32 = 0
    candidate_id: Int32 = -1
    candidate_directory_id: UUID | None = None
    last_epoch: Int32 = 0
    last_offset: Int64 = 0
    pre_vote: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse(RpcMessage):
    api_key = InternalKey.VOTE
    min_version = 0
    max_version = 0
    bytes_max = VOTE_BYTES_MAX

    error_code: Int16 = 0
    epoch: Int32 = 0
    leader_id: Int32 = -1
    leader_host: str = ""
    leader_port: PortOrNone = -1
    vote_granted: bool = False
    cluster_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochRequest(RpcMessage):
    """The new leader of `epoch` announces itself to a voter."""

    api_key = InternalKey.BEGIN_QUORUM_EPOCH
    min_version = 0
    max_version = 0
    bytes_max = VOTE_BYTES_MAX

    cluster_id: str = ""
    voter_id: Int32 = -1
    voter_directory_id: UUID | None = None
    epoch: Int32 = 0
    leader_id: Int32 = -1
    leader_host: str = ""
    leader_port: PortOrNone = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginQuorumEpochResponse(RpcMessage):
    api_key = InternalKey.BEGIN_QUORUM_EPOCH
    min_version = 0
    max_version = 0
    bytes_max = VOTE_BYTES_MAX

    error_code: Int16 = 0
    epoch: Int32 = 0
    leader_id: Int32 = -1
    leader_host: str = ""
    leader_port: PortOrNone = -1
    cluster_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochRequest(RpcMessage):
    """The leader of `epoch` resigned; `preferred_successors` are voter ids, the one with the longest log first."""

    api_key = InternalKey.END_QUORUM_EPOCH
    min_version = 0
    max_version = 0
    bytes_max = VOTE_BYTES_MAX

    cluster_id: str = ""
    epoch: Int32 = 0
    leader_id: Int32 = -1
    preferred_successors: tuple[Int32, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndQuorumEpochResponse(RpcMessage):
    api_key = InternalKey.END_QUORUM_EPOCH
    min_version = 0
    max_version = 0
    bytes_max = VOTE_BYTES_MAX

    error_code: Int16 = 0
    epoch: Int32 = 0
    leader_id: Int32 = -1
    leader_host: str = ""
    leader_port: PortOrNone = -1
    cluster_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFetchRequest(RpcMessage):
    """Pulls the metadata log from `fetch_offset`, and so says that everything below it is on the sender's disk."""

    api_key = InternalKey.METADATA_FETCH
    min_version = 0
    max_version = 0
    bytes_max = VOTE_BYTES_MAX

    cluster_id: str = ""
    replica_id: Int32 = -1
    replica_directory_id: UUID | None = None
    epoch: Int32 = 0
    fetch_offset: Int64 = 0
    last_fetched_epoch: Int32 = 0
    max_wait_ms: Int32 = 0
    max_bytes: Int32 = 0
    high_watermark: Int64 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFetchResponse(RpcMessage):
    """Exactly one of: records (possibly none), a diverging epoch with its end offset, a snapshot id, an error."""

    api_key = InternalKey.METADATA_FETCH
    min_version = 0
    max_version = 0
    bytes_max = ANSWER_BYTES_MAX

    error_code: Int16 = 0
    epoch: Int32 = 0
    leader_id: Int32 = -1
    leader_host: str = ""
    leader_port: PortOrNone = -1
    high_watermark: Int64 = -1
    log_start_offset: Int64 = -1
    diverging_epoch: Int32 = -1
    diverging_end_offset: Int64 = -1
    snapshot_end_offset: Int64 = -1
    snapshot_epoch: Int32 = -1
    records: bytes = b""
    cluster_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotRequest(RpcMessage):
    """Pulls `max_bytes` of the snapshot (end offset, epoch) from byte `position`."""

    api_key = InternalKey.FETCH_SNAPSHOT
    min_version = 0
    max_version = 0
    bytes_max = VOTE_BYTES_MAX

    cluster_id: str = ""
    replica_id: Int32 = -1
    replica_directory_id: UUID | None = None
    epoch: Int32 = 0
    snapshot_end_offset: Int64 = 0
    snapshot_epoch: Int32 = 0
    position: Int64 = 0
    max_bytes: Int32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshotResponse(RpcMessage):
    api_key = InternalKey.FETCH_SNAPSHOT
    min_version = 0
    max_version = 0
    bytes_max = ANSWER_BYTES_MAX

    error_code: Int16 = 0
    epoch: Int32 = 0
    leader_id: Int32 = -1
    leader_host: str = ""
    leader_port: PortOrNone = -1
    snapshot_end_offset: Int64 = -1
    snapshot_epoch: Int32 = -1
    size: Int64 = 0
    position: Int64 = 0
    data: bytes = b""
    cluster_id: str = ""


QuorumRequest = (
    VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | MetadataFetchRequest | FetchSnapshotRequest
)
QuorumResponse = (
    VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | MetadataFetchResponse | FetchSnapshotResponse
)
