"""Connection driver of one incarnation of a node. Like the production driver, it reads, runs the callbacks at the end
of the pass, then flushes and closes connections.

A pass is one round of the event loop, and an event of the world. It starts a random time after its cause, so that code
that takes no virtual time still meets other nodes' messages in different orders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft.seam import NetworkStats
from kraft.sim.world.fabric import Fabric
from kraft.sim.world.host import Host
from kraft.sim.world.incarnation import Incarnation

if TYPE_CHECKING:
    from kraft.sim.world.endpoint import FakeEndpoint


class FakeDriver:
    """Queues of connection ends that are to be read and to be flushed, and the pass that handles them."""

    def __init__(self, incarnation: Incarnation, fabric: Fabric) -> None:
        self.host: Host = incarnation.host
        self.fabric = fabric
        self.stats = NetworkStats()
        self.check = incarnation.check
        self._incarnation = incarnation
        self._chance = incarnation.host.chance.stream("driver")
        self._readable: list[FakeEndpoint] = []
        self._marked: list[FakeEndpoint] = []
        self._end_of_pass: list[Callable[[], None]] = []
        self._scheduled = False

    def trace(self, kind: str, payload: bytes = b"") -> None:
        self.host.trace.add(self.fabric.schedule.now_ns, self.host.name, kind, payload)

    def queue(self, endpoint: FakeEndpoint) -> None:
        """Queue this end for reading."""
        if not endpoint.queued:
            endpoint.queued = True
            self._readable.append(endpoint)
            self.request_pass()

    def mark(self, endpoint: FakeEndpoint) -> None:
        """Settle this end (flush or close it) at the end of this pass, or of a pass that starts soon."""
        if not endpoint.marked:
            endpoint.marked = True
            self._marked.append(endpoint)
            self.request_pass()

    def request_pass(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            delay_ns = self._chance.below(self.fabric.options.pass_delay_ns + 1)
            self.fabric.schedule.after(delay_ns, self._start_pass)

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        self._end_of_pass.append(callback)

    def _start_pass(self) -> None:
        self._scheduled = False
        if not self._incarnation.paused:  # otherwise the pass is scheduled on resume
            self._incarnation.call(self._run_pass)

    def _run_pass(self) -> None:
        self._scheduled = True  # ends marked during the pass are settled at its end
        self.stats.passes += 1
        readable, self._readable = self._readable, []
        for endpoint in readable:
            endpoint.queued = False
            endpoint.read()
        for callback in self._end_of_pass:
            callback()
        if self.fabric.observer is not None:
            self.fabric.observer.handled(self.host.name)
        marked, self._marked = self._marked, []
        for endpoint in marked:
            endpoint.settle()
        self._scheduled = False
        if self._readable or self._marked:
            self.request_pass()
