"""Causes for which a transactional producer may be fenced or have another fatal error.

A coordinator fences a producer when it gives the transactional id to another producer, and when it aborts a transaction
that has been open for its timeout. It carries out a late InitProducerId, too: one of a producer that was killed, or the
first one of a producer that sent it twice. Without such a cause, a fatal error is a bug.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import host_name

ONE_REQUEST_MS_MAX = 500
"""Maximum time in ms of an initialization that sent InitProducerId once. A longer initialization may have repeated the
request."""
LATE_REQUEST_MS_MAX = 30_000
"""Maximum time in ms after which a coordinator may still carry out a request that its sender has abandoned."""
CLOCKS_MS_MAX = 500
"""Maximum difference in ms between two brokers' clocks, if no fault has stepped a clock."""


class FencingCauses:
    """The causes for fatal errors of the producers of one transactional id. `timeout_ms` is the transactions'
    timeout."""

    def __init__(self, cluster: SimCluster, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._begun = 0
        """Number of initializations that have begun."""
        self._in_progress = 0
        self._late_until_ms = 0
        """Virtual time until which a late InitProducerId may be carried out."""

    def _now_ms(self) -> int:
        return self._cluster.world.now_ns // 1_000_000

    @contextmanager
    def initializing(self) -> Iterator[None]:
        """Context in which a producer gets its producer id. If that fails, takes long, or another producer begins to do
        the same meanwhile, an InitProducerId may be carried out later."""
        self._begun += 1
        self._in_progress += 1
        number, begun_ms, has_succeeded = self._begun, self._now_ms(), False
        try:
            yield
            has_succeeded = True
        finally:
            self._in_progress -= 1
            took_ms = self._now_ms() - begun_ms
            if not has_succeeded or took_ms > ONE_REQUEST_MS_MAX or number != self._begun:
                self._late_until_ms = self._now_ms() + LATE_REQUEST_MS_MAX

    def has_any(self, begun_ms: int | None) -> bool:
        """Whether a producer that has not been replaced may have a fatal error now. `begun_ms` is the virtual time when
        its last transaction began; None before the first one."""
        now_ms = self._now_ms()
        is_timed_out = begun_ms is not None and now_ms - begun_ms >= self._timeout_ms - CLOCKS_MS_MAX
        return bool(self._in_progress) or now_ms < self._late_until_ms or is_timed_out or self._has_stepped_clock()

    def _has_stepped_clock(self) -> bool:
        """Whether a fault has stepped a broker's wall clock. A coordinator that has loaded a transaction measures its
        time with that clock."""
        world = self._cluster.world
        offsets = (world.host(host_name(broker)).clock.wall_offset_ms for broker in self._cluster.shape.broker_ids)
        return any(abs(offset_ms) > world.options.wall_offset_ms_max for offset_ms in offsets)
