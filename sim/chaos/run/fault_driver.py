"""Carries a scenario's faults out on a cluster of processes, beside clients that live in trio.

Verbs of such clusters block (see KafkaCluster), so each step runs in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import trio

from kraft.sim.breakable_cluster import BreakableCluster
from kraft.sim.chaos.run.run_clock import RunClock
from kraft.sim.chaos.run.run_folder import FaultRecord
from kraft.sim.chaos.scenarios.scenario import ScenarioFault
from kraft.sim.nemesis.on_clusters import FaultRun, FaultWindow


def require_faults(cluster: BreakableCluster, faults: Sequence[ScenarioFault]) -> None:
    """ClusterError names a fault that this cluster cannot have."""
    FaultRun(cluster, [one.fault for one in faults], lambda: 0)


class FaultDriver:
    """The faults of one run. `on_line` is called with each line of what was done."""

    def __init__(
        self,
        cluster: BreakableCluster,
        faults: Sequence[ScenarioFault],
        clock: RunClock,
        on_line: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._on_line = on_line
        self._told = 0
        self._evidence = {id(one.fault): one.evidence for one in faults}
        self._run = FaultRun(cluster, [one.fault for one in faults], lambda: int(clock.now_ms()))
        self._steps = self._run.steps()

    async def run(self) -> None:
        """Until the last fault is over. A cancel ends what the faults have begun, which may take seconds."""
        try:
            while True:
                at_ms = await trio.to_thread.run_sync(next, self._steps, None)
                self._tell()
                if at_ms is None:
                    return
                await trio.sleep(max(0.0, (at_ms - self._clock.now_ms()) / 1000))
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._steps.close)
            self._tell()

    def _tell(self) -> None:
        for line in self._run.history[self._told :]:
            self._on_line(line)
        self._told = len(self._run.history)

    def records(self) -> list[FaultRecord]:
        """What came of each fault whose turn has come."""
        return records_of(self._run.windows, self._evidence)


def records_of(windows: Iterable[FaultWindow], evidence: dict[int, tuple[str, ...]]) -> list[FaultRecord]:
    """`evidence`: id of a fault → by what one sees it."""
    return [
        FaultRecord(
            kind=window.fault.kind,
            text=window.text or window.fault.kind,
            begin_ms=float(window.fault.at_ms if window.begin_ms is None else window.begin_ms),
            end_ms=None if window.end_ms is None else float(window.end_ms),
            nodes=tuple(window.nodes),
            role=window.fault.role,
            missed=window.missed,
            evidence=evidence.get(id(window.fault), ()),
        )
        for window in windows
    ]
