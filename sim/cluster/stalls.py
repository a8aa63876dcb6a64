"""Finds stalls: records that wait for the high watermark although every replica is alive, in sync and well connected.

A stall violates no invariant, and the time limit of the whole run is too long to find it. For example, a follower that
waits on a dead connection loses half a minute, and no other check notices.
"""

from __future__ import annotations

from collections.abc import Callable

from kraft.sim.cluster.cluster import SimCluster

LOOK_MS = 250
STALL_MS_MAX = 3_000

TopicPartition = tuple[str, int]


class StallWatch:
    """Checks all partitions periodically. `disturbed_ms` returns the time when the last fault began or ended."""

    def __init__(self, cluster: SimCluster, disturbed_ms: Callable[[], int]) -> None:
        self._cluster = cluster
        self._disturbed_ms = disturbed_ms
        self._whole_since_ms = 0
        self._waiting: dict[TopicPartition, tuple[int, int]] = {}
        """Partition → its high watermark, and the time since which the high watermark has been below the log end."""
        self._told: set[tuple[TopicPartition, int]] = set()

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self._cluster.world.sleep_ms(LOOK_MS)
            now_ms = self._cluster.world.now_ns // 1_000_000
            if self._cluster.loss():
                self._whole_since_ms = now_ms
            self._look(now_ms)

    def _look(self, now_ms: int) -> None:
        waiting: dict[TopicPartition, tuple[int, int]] = {}
        for topic in self._cluster.image.topics:
            for index, state in topic.partitions():
                marks = self._cluster.marks(state.leader, topic.name, index)
                if marks is not None and marks[0] < marks[1]:
                    place = (self._cluster.watch.labels.of(topic.topic_id, topic.name), index)
                    known = self._waiting.get(place)
                    waiting[place] = known if known is not None and known[0] == marks[0] else (marks[0], now_ms)
        self._waiting = waiting
        calm_since_ms = max(self._whole_since_ms, self._disturbed_ms())
        for place, (high_watermark, since_ms) in waiting.items():
            is_stalled = now_ms - max(since_ms, calm_since_ms) > STALL_MS_MAX
            if is_stalled and (place, high_watermark) not in self._told:
                self._told.add((place, high_watermark))
                self._cluster.report.fail(
                    "L6",
                    "records wait although all replicas are in sync and nothing is wrong",
                    partition=place,
                    high_watermark=high_watermark,
                    since_ms=since_ms,
                )
