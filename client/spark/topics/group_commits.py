"""Synchronous: the ends of micro-batches as committed offsets of a consumer group, so that Kafka's tools show the lag.

Spark's checkpoint stays the only thing that a query goes on from: a commit that fails is logged and changes nothing.
A commit names no member and generation -1, as Kafka's admin client does. Source: OffsetCommitRequest, Kafka's
KafkaAdminClient.
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
"""Between two commits, at least."""
AFTER_FAILURE_SECONDS = 10.0
"""Between a commit that failed and the next one: a query is not held up by a group that cannot be reached."""
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
    """Commits for one group, at most one a second; only offsets that have changed."""

    def __init__(self, cluster: SyncCluster, group_id: str, *, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._interval = interval_seconds
        self._waiting: dict[TopicPartition, CommittedOffset] = {}
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._next_at = float("-inf")
        self._warned: str | None = None

    def offer(self, offset: StreamOffset, note: str) -> None:
        """Commit these ends with this note as metadata: now, or by a later `commit_waiting` if the last commit was less
        than a second ago."""
        for tp, end in offset.ends.items():
            self._waiting[tp] = CommittedOffset(end, offset.epochs.get(tp, -1), note)
        self.commit_waiting()

    def commit_waiting(self) -> None:
        """Commit what waits, if it is time. Never raises for a cluster that refuses or does not answer."""
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
        """Commit what waits now, whenever the last commit was. Never raises, as `commit_waiting`."""
        self._next_at = float("-inf")
        self.commit_waiting()

    def _take(self, codes: Mapping[TopicPartition, ErrorCode]) -> None:
        for tp, code in codes.items():
            if code is ErrorCode.NONE and tp in self._waiting:
                self._committed[tp] = self._waiting.pop(tp)
            elif code in MISSING:  # deleted: there is nothing to commit any more
                self._waiting.pop(tp, None)
        refused = next((code for code in codes.values() if code is not ErrorCode.NONE and code not in MISSING), None)
        if refused is not None:
            self._fail(_ADVICE.get(refused, refused.name))
            return
        self._warned = None
        self._next_at = time.monotonic() + self._interval

    def _fail(self, reason: str) -> None:
        """Say each reason once, and wait before the next try."""
        if reason != self._warned:
            _LOG.warning("offsets of group %s are not committed: %s; the query goes on", self._group_id, reason)
            self._warned = reason
        self._next_at = time.monotonic() + AFTER_FAILURE_SECONDS


def _is_same(new: CommittedOffset, old: CommittedOffset | None) -> bool:
    """Whether a commit would change nothing but the note."""
    return old is not None and new.offset == old.offset
