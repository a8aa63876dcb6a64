"""Values of Fetch requests and responses, for all versions from 4 to 18. The codecs are in `fetch` and
`fetch_response`.

Each version adds: 5 log start offset, 7 sessions, 9 leader epoch, 11 rack, 12 flexible and last fetched epoch, 13 topic
ids, 15 replica state in a tag, 16 node endpoints, 17 directory id, 18 high watermark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from kraft.seam import Chunk
from kraft.wire.messages.tagged import CurrentLeader, NodeEndpoint

FIRST_VERSION_WITH_LOG_START = 5
FIRST_VERSION_WITH_SESSION = 7
FIRST_VERSION_WITH_LEADER_EPOCH = 9
FIRST_VERSION_WITH_RACK = 11
FIRST_FLEXIBLE = 12
FIRST_VERSION_WITH_TOPIC_ID = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
FIRST_VERSION_WITH_DIRECTORY_ID = 17
FIRST_VERSION_WITH_HIGH_WATERMARK = 18

NO_HIGH_WATERMARK = 2**63 - 1
"""Value that a replica sends if it does not report its high watermark."""
BYTES_MAX = 2**31 - 1


class ReplicaTags(NamedTuple):
    """Fields of a partition that only followers send."""

    replica_directory_id: UUID | None = None
    high_watermark: int = NO_HIGH_WATERMARK


class FetchPartition(NamedTuple):
    """One partition of a request; -1 for absent values. `tags` is 0 if there are no tagged fields."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    tags: ReplicaTags | int = 0

    @property
    def replica_directory_id(self) -> UUID | None:
        return self.tags.replica_directory_id if isinstance(self.tags, ReplicaTags) else None

    @property
    def high_watermark(self) -> int:
        return self.tags.high_watermark if isinstance(self.tags, ReplicaTags) else NO_HIGH_WATERMARK


FetchTopic = tuple[str | None, UUID | None, Sequence[FetchPartition]]
"""A topic of a request: (name, topic id, partitions). The name is None from v13 on, the id is None before."""
ForgottenTopic = tuple[str | None, UUID | None, Sequence[int]]
"""A topic that a fetch session forgets: (name, topic id, partition numbers)."""


@dataclass(slots=True)
class FetchRequest:
    """A request, of any version. `replica_id` is -1 for a consumer; `session_epoch` -1 means no session."""

    max_wait_ms: int
    min_bytes: int
    topics: Sequence[FetchTopic]
    max_bytes: int = BYTES_MAX
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    replica_id: int = -1
    replica_epoch: int = -1
    cluster_id: str | None = None


class FetchResult(NamedTuple):
    """The result for one partition. `aborted_transactions` is None for read_uncommitted, else a sequence of (producer
    id, first offset). In a decoded response, `records` is one view or empty."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    records: Sequence[Chunk] = ()
    diverging_epoch: tuple[int, int] | None = None
    current_leader: CurrentLeader | None = None
    snapshot_id: tuple[int, int] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the result is only records, possibly none: no error, no truncation, no preferred read replica."""
        return not self.error_code and self.diverging_epoch is None and self.preferred_read_replica < 0


FetchTopicResult = tuple[str | None, UUID | None, Sequence[FetchResult]]
"""Results for one topic: (name, topic id, results). Of name and id, the one that the version does not use is ignored.
"""


class FetchResponse(NamedTuple):
    topics: Sequence[FetchTopicResult]
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()
