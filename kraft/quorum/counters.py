"""Metrics of the quorum's driver. Source: Kafka's KafkaRaftMetrics (KIP-595)."""

from __future__ import annotations

from kraft.raft.ready import Leadership
from kraft.seam.measures import Histogram

NS_PER_MS = 1e6


class QuorumMeasures:
    """Counters and histograms of the driver. Commit latency is measured for one uncommitted append at a time."""

    __slots__ = (
        "_leaderless_since_ns",
        "_watched",
        "appended",
        "commit_ms",
        "election_ms",
        "fetched",
        "snapshot_bytes",
        "snapshot_ms",
    )

    def __init__(self) -> None:
        self.appended = 0
        """Number of records that this node appended as the leader."""
        self.fetched = 0
        """Number of records that this node appended as a follower."""
        self.commit_ms = Histogram()
        """Histogram of the milliseconds from the append of a batch to its commit, on the leader."""
        self.election_ms = Histogram()
        """Histogram of the milliseconds during which no leader was known."""
        self.snapshot_bytes = 0
        """Size of the last snapshot that this node wrote; 0 before the first."""
        self.snapshot_ms: int | None = None
        """Time in ms at which the last snapshot was written (monotonic clock); None before the first."""
        self._watched: tuple[int, int] | None = None
        self._leaderless_since_ns: int | None = None

    def append(self, count: int, end_offset: int, now_ns: int) -> None:
        """Count `count` records that the leader has appended up to `end_offset`."""
        self.appended += count
        if self._watched is None:
            self._watched = (end_offset, now_ns)

    def commit(self, high_watermark: int, now_ns: int) -> None:
        """Record that the high watermark has moved."""
        watched = self._watched
        if watched is not None and watched[0] <= high_watermark:
            self.commit_ms.update((now_ns - watched[1]) / NS_PER_MS)
            self._watched = None

    def lead(self, leadership: Leadership, now_ns: int) -> None:
        """Record that another leader became known, or that no leader is known any more."""
        if not leadership.is_local:
            self._watched = None
        since_ns = self._leaderless_since_ns
        if leadership.leader_id is None:
            self._leaderless_since_ns = now_ns if since_ns is None else since_ns
        elif since_ns is not None:
            self.election_ms.update((now_ns - since_ns) / NS_PER_MS)
            self._leaderless_since_ns = None
