"""Periodic work of an active controller: fence brokers whose sessions have expired, move leadership back to preferred
replicas, and elect leaders for partitions without one.

Invariant: all brokers with expired sessions are fenced in one plan, so that none of them becomes leader for another.
Source: KIP-631, Kafka's QuorumController (leader.imbalance.check.interval.seconds,
unclean.leader.election.interval.ms).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft.control import ElectLeaderless, FenceBrokers, FenceCause, RebalanceLeaders
from kraft.control.partitions.elections import is_imbalanced

if TYPE_CHECKING:
    from kraft.config import NodeConfig
    from kraft.controller.broker_sessions import Sessions
    from kraft.controller.command_queue import CommandQueue
    from kraft.image import MetadataImage

FENCE_AGAIN_MS = 1_000
"""Milliseconds before expired sessions are checked again, after the decision to fence a broker has failed."""


class PeriodicWork:
    """Deadlines of the periodic work. All times are ms of the controller's clock."""

    def __init__(
        self, config: NodeConfig, queue: CommandQueue, sessions: Sessions, image: Callable[[], MetadataImage]
    ) -> None:
        """`image()` returns the image on which the active controller decides."""
        self._config = config
        self._queue = queue
        self._sessions = sessions
        self._image = image
        self._rebalance_ms: int | None = None
        self._unclean_ms: int | None = None
        self._fence_ms = 0
        """Time before which expired sessions are not fenced, in ms."""
        self.sessions_expired = 0

    def begin(self, now_ms: int) -> None:
        """Set the first deadlines, when this controller becomes active."""
        self._rebalance_ms = now_ms + self._rebalance_interval_ms
        self._unclean_ms = now_ms + self._unclean_interval_ms

    def fence_failed(self, now_ms: int) -> None:
        """Delay the next fence after a failed one."""
        self._fence_ms = now_ms + FENCE_AGAIN_MS

    def deadlines_ms(self) -> list[int]:
        """Return the times at which work falls due; none on a standby."""
        image = self._queue.image
        if image is None:
            return []
        times = [at for at in (self._rebalance_ms, self._unclean_ms) if at is not None]
        sessions_ms = self._sessions.next_deadline_ms(image, self._queue.brokers_being_fenced())
        if sessions_ms is not None:
            times.append(max(sessions_ms, self._fence_ms))
        return times

    def run_due(self, now_ms: int) -> None:
        """Carry out due work, on an active controller whose command queue is free."""
        self._fence_expired(now_ms)
        if self._sessions.end_recent_fences(now_ms):
            self._queue.submit(ElectLeaderless())
        if self._rebalance_ms is not None and self._rebalance_ms <= now_ms:
            self._rebalance_ms = now_ms + self._rebalance_interval_ms
            if self._config.boolean("auto.leader.rebalance.enable") and is_imbalanced(self._image()):
                self._queue.submit(RebalanceLeaders())
        if self._unclean_ms is not None and self._unclean_ms <= now_ms:
            self._unclean_ms = now_ms + self._unclean_interval_ms
            self._queue.submit(ElectLeaderless())

    @property
    def _rebalance_interval_ms(self) -> int:
        return 1000 * self._config.integer("leader.imbalance.check.interval.seconds")

    @property
    def _unclean_interval_ms(self) -> int:
        return self._config.integer("unclean.leader.election.interval.ms")

    def _fence_expired(self, now_ms: int) -> None:
        if now_ms < self._fence_ms:
            return
        being_fenced = self._queue.brokers_being_fenced()
        expired = self._sessions.expired(self._image(), now_ms)
        targets = tuple(target for target in expired if target.broker_id not in being_fenced)
        if targets:
            self.sessions_expired += len(targets)
            self._queue.submit_first(FenceBrokers(targets=targets, cause=FenceCause.SESSION_EXPIRED))
