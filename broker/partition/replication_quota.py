"""Replication throttles: limit the bandwidth of replicas that are not in sync (KIP-73).

A replica is throttled if the topic's leader.replication.throttled.replicas (on the leader's side) or
follower.replication.throttled.replicas (on the follower's side) names it, and only while it is out of sync. So a
throttle never delays an acknowledgement. The bytes of all named replicas are counted, in sync or not. The rate is
measured over replication.quota.window.num windows of replication.quota.window.size.seconds. Source: KIP-73, Kafka's
ReplicationQuotaManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.config import NodeConfig
    from kraft.seam import Clock

EVERY_REPLICA = "*"
UNLIMITED = 2**63 - 1
SECOND_MS = 1_000


def is_throttled(replicas: Sequence[str], index: int, broker_id: int) -> bool:
    """Return whether `replicas`, a list of `partition:broker` pairs or `*`, names this partition's replica on this
    broker."""
    return EVERY_REPLICA in replicas or f"{index}:{broker_id}" in replicas


class ReplicationQuota:
    """The throttle of one direction. `rate_key` is leader.replication.throttled.rate,
    follower.replication.throttled.rate, or the key for moves between log directories, which has separate keys for its
    windows."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        rate_key: str,
        window_key: str = "replication.quota.window.size.seconds",
        windows_key: str = "replication.quota.window.num",
    ) -> None:
        self._clock = clock
        self._rate_key = rate_key
        self._window_ms = config.integer(window_key) * SECOND_MS
        self._windows_max = config.integer(windows_key)
        self._windows: deque[list[int]] = deque()
        """Lists of [window number, bytes in the window], oldest window first."""
        self.configure(config)

    def configure(self, config: NodeConfig) -> None:
        """Apply a changed rate."""
        self.bytes_per_second = config.integer(self._rate_key)

    def record(self, size_bytes: int) -> None:
        """Count bytes that were sent or received."""
        number = self._clock.monotonic_ms() // self._window_ms
        self._drop_old(number)
        if self._windows and self._windows[-1][0] == number:
            self._windows[-1][1] += size_bytes
        else:
            self._windows.append([number, size_bytes])

    def holds_back(self, partition: Partition, replica_id: int) -> bool:
        """Return whether a throttle names this replica and the replica must wait: the rate is exceeded, and the replica
        is out of sync."""
        return self.is_exceeded and partition.is_out_of_sync(replica_id)

    @property
    def is_exceeded(self) -> bool:
        """Return whether the measured rate is above the limit."""
        if self.bytes_per_second >= UNLIMITED:
            return False
        measured = self.measured_rate
        return measured > self.bytes_per_second or (not self._windows and self.bytes_per_second == 0)

    @property
    def measured_rate(self) -> float:
        """Return the bytes per second of the throttled replicas, measured over the windows."""
        now_ms = self._clock.monotonic_ms()
        self._drop_old(now_ms // self._window_ms)
        if not self._windows:
            return 0.0
        elapsed_ms = max(now_ms - self._windows[0][0] * self._window_ms, self._window_ms)
        return sum(size for _, size in self._windows) * SECOND_MS / elapsed_ms

    def _drop_old(self, number: int) -> None:
        while self._windows and self._windows[0][0] <= number - self._windows_max:
            self._windows.popleft()
