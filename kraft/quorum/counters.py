"""What the driver of the quorum counts, for metrics. Source: Kafka's KafkaRaftMetrics (KIP-595)."""

from __future__ import annotations

from kraft.raft.ready import Leadership
from kraft.seam.measures import Histogram

NS_PER_MS = 1e6


class QuorumMeasures:
    """Counts only rise. Of appends that are not committed one is watched at a time."""

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
        """Records that this node appended as the leader."""
        self.fetched = 0
        """Records that this node appended as a follower."""
        self.commit_ms = Histogram()
        """From the append of a batch to its commit, on the leader."""
        self.election_ms = Histogram()
        """From when no leader was known to when one was."""
        self.snapshot_bytes = 0
        """Size of the last snapshot that this node wrote; 0 before."""
        self.snapshot_ms: int | None = None
        """When it was written (monotonic clock)."""
        self._watched: tuple[int, int] | None = None
        self._leaderless_since_ns: int | None = None

    def append(self, count: int, end_offset: int, now_ns: int) -> None:
        """The leader has appended `count` records up to `end_offset`."""
        self.appended += count
        if self._watched is None:
            self._watched = (end_offset, now_ns)

    def commit(self, high_watermark: int, now_ns: int) -> None:
        """The high watermark has moved."""
        watched = self._watched
        if watched is not None and watched[0] <= high_watermark:
            self.commit_ms.update((now_ns - watched[1]) / NS_PER_MS)
            self._watched = None

    def lead(self, leadership: Leadership, now_ns: int) -> None:
        """Another leader is known, or none."""
        if not leadership.is_local:
            self._watched = None
        since_ns = self._leaderless_since_ns
        if leadership.leader_id is None:
            self._leaderless_since_ns = now_ns if since_ns is None else since_ns
        elif since_ns is not None:
            self.election_ms.update((now_ns - since_ns) / NS_PER_MS)
            self._leaderless_since_ns = None
