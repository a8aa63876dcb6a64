"""Messages of the metadata quorum: Vote, BeginQuorumEpoch, EndQuorumEpoch, MetadataFetch and FetchSnapshot.

Each has every field of Kafka's message of that name that a safety check needs (KIP-595, KIP-630, KIP-853, KIP-996).
Offsets are exclusive ends unless the name says otherwise; -1 means "none" or "unknown". Each response gives the
answering node's epoch and the leader that it knows, with the leader's address, so that one round trip finds the leader.
The response to a node of another cluster (INCONSISTENT_CLUSTER_ID) gives only the answering node's cluster id.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kraft.wire.rpc import InternalKey, RpcMessage
from kraft.wire.rpc.field_codecs import Int16, Int32, Int64, PortOrNone

VOTE_BYTES_MAX = 4 * 1024
HOST_CHARACTERS_MAX = 255
"""Longest name in the DNS. The leader's host is in responses limited to VOTE_BYTES_MAX, and a longer name never
resolves."""
FETCH_BYTES_MAX = 8 * 1024 * 1024
"""Maximum record bytes requested in one MetadataFetch, and maximum bytes of a snapshot chunk."""
ANSWER_BYTES_MAX = FETCH_BYTES_MAX + 8 * 1024 * 1024 + 64 * 1024
"""Limit of an encoded response with records or a chunk: at least one whole batch, which may exceed the requested size.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteRequest(RpcMessage):
    """Request for a voter's vote in `epoch` or, with `pre_vote`, for whether it would vote for the sender in the next
    epoch."""

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
    """Announcement of the new leader of `epoch` to a voter."""

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
    """Resignation of the leader of `epoch`; `preferred_successors` are voter ids, the one with the longest log
    first."""

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
    """Fetch of the metadata log from `fetch_offset`. It also acknowledges that everything below is on the sender's
    disk."""

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
    """Response to MetadataFetch, with exactly one of: records (possibly none), a diverging epoch with its end offset, a
    snapshot id, an error."""

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
    """Fetch of `max_bytes` of the snapshot (end offset, epoch) from byte `position`."""

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
