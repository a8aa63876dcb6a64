"""Synchronous: commit the ends of a stream's micro-batches to a consumer group, so that Kafka's tools show the stream's
lag.

A query resumes only from Spark's checkpoint, so a failed commit is logged and has no other effect. A commit has no
member id and generation -1, like one of Kafka's admin client. Source: OffsetCommitRequest, Kafka's KafkaAdminClient.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from types import MappingProxyType

from kraft.client.core.records import CommittedOffset, KafkaError, TopicPartition
from kraft.client.spark.blocking.cluster import SyncCluster
from kraft.client.spark.blocking.link import LinkFailed, VersionMismatch
from kraft.client.spark.blocking.retries import MISSING, ClusterUnreachable
from kraft.client.spark.topics.stream_offsets import StreamOffset
from kraft.seam import WireError
from kraft.wire.error_codes import ErrorCode

INTERVAL_SECONDS = 1.0
"""Minimum seconds between two commits."""
AFTER_FAILURE_SECONDS = 10.0
"""Minimum seconds between a failed commit and the next one, so that an unreachable coordinator does not delay the
query."""
TIMEOUT_MS = 2_000
_LOG = logging.getLogger("kraft.spark")
_ADVICE = MappingProxyType(
    {
        ErrorCode.UNKNOWN_MEMBER_ID: "it has live members: give commitGroup a group that no consumer is in",
        ErrorCode.GROUP_AUTHORIZATION_FAILED: "READ on the group is not allowed",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: "READ on the topic is not allowed",
        ErrorCode.INVALID_GROUP_ID: "brokers do not take this name",
    }
)


class GroupCommits:
    """Commits a stream's offsets to one group: at most once a second, and only offsets that have changed."""

    def __init__(self, cluster: SyncCluster, group_id: str, *, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._interval = interval_seconds
        self._waiting: dict[TopicPartition, CommittedOffset] = {}
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._next_at = float("-inf")
        self._warned: str | None = None

    def offer(self, offset: StreamOffset, note: str) -> None:
        """Commit these offsets, with `note` as their metadata text. If the last commit was less than a second ago, keep
        them for a later `commit_waiting`."""
        for tp, end in offset.ends.items():
            self._waiting[tp] = CommittedOffset(end, offset.epochs.get(tp, -1), note)
        self.commit_waiting()

    def commit_waiting(self) -> None:
        """Commit the pending offsets if the time for the next commit has come. Never raises if the cluster rejects the
        commit or does not respond."""
        changed = {tp: at for tp, at in self._waiting.items() if not _is_same(at, self._committed.get(tp))}
        self._waiting = changed
        if not changed or time.monotonic() < self._next_at:
            return
        try:
            codes = self._cluster.offset_commit(self._group_id, changed, timeout_ms=TIMEOUT_MS)
        except (KafkaError, LinkFailed, ClusterUnreachable, VersionMismatch, WireError) as problem:
            self._fail(str(problem))
            return
        self._take(codes)

    def flush(self) -> None:
        """Commit the pending offsets now, however recent the last commit was. Never raises, like `commit_waiting`."""
        self._next_at = float("-inf")
        self.commit_waiting()

    def _take(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        for tp, code in codes.items():
            if code is ErrorCode.NONE and tp in self._waiting:
                self._committed[tp] = self._waiting.pop(tp)
            elif code in MISSING:  # the topic was deleted: there is nothing to commit
                self._waiting.pop(tp, None)
        refused = next((code for code in codes.values() if code is not ErrorCode.NONE and code not in MISSING), None)
        if refused is not None:
            self._fail(_ADVICE.get(refused, refused.name))
            return
        self._warned = None
        self._next_at = time.monotonic() + self._interval

    def _fail(self, reason: str) -> None:
        """Log each new reason for a failure once, and back off before the next commit."""
        if reason != self._warned:
            _LOG.warning("offsets of group %s are not committed: %s; the query continues", self._group_id, reason)
            self._warned = reason
        self._next_at = time.monotonic() + AFTER_FAILURE_SECONDS


def _is_same(new: CommittedOffset, old: CommittedOffset | None) -> bool:
    """Whether two commits have the same offset; their metadata texts may differ."""
    return old is not None and new.offset == old.offset
