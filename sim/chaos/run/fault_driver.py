"""Injects a scenario's faults into a cluster of processes while clients run in trio.

The methods of such clusters block (see KafkaCluster), so each step runs in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import trio

from kraft.sim.breakable_cluster import BreakableCluster
from kraft.sim.chaos.run.run_clock import RunClock
from kraft.sim.chaos.run.run_folder import FaultRecord
from kraft.sim.chaos.scenarios.scenario import ScenarioFault
from kraft.sim.nemesis.on_clusters import FaultOccurrence, FaultRun


def require_faults(cluster: BreakableCluster, faults: Sequence[ScenarioFault]) -> None:
    """Raise ClusterError for a fault that this cluster cannot have."""
    FaultRun(cluster, [one.fault for one in faults], lambda: 0)


class FaultDriver:
    """Injects the faults of one run. `on_line` is called with each line of the log of what was done."""

    def __init__(
        self,
        cluster: BreakableCluster,
        faults: Sequence[ScenarioFault],
        clock: RunClock,
        on_line: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._on_line = on_line
        self._reported = 0
        self._evidence = {id(one.fault): one.evidence for one in faults}
        self._run = FaultRun(cluster, [one.fault for one in faults], lambda: int(clock.now_ms()))
        self._steps = self._run.steps()

    async def run(self) -> None:
        """Inject the faults until the last one is over. Cancelling ends the active faults, which may take seconds."""
        try:
            while True:
                at_ms = await trio.to_thread.run_sync(next, self._steps, None)
                self._report_lines()
                if at_ms is None:
                    return
                await trio.sleep(max(0.0, (at_ms - self._clock.now_ms()) / 1000))
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._steps.close)
            self._report_lines()

    def _report_lines(self) -> None:
        for line in self._run.history[self._reported :]:
            self._on_line(line)
        self._reported = len(self._run.history)

    def records(self) -> list[FaultRecord]:
        """Return a record of each fault whose scheduled time has come."""
        return records_of(self._run.windows, self._evidence)


def records_of(windows: Iterable[FaultOccurrence], evidence: dict[int, tuple[str, ...]]) -> list[FaultRecord]:
    """Convert the time windows of faults to records. `evidence`: id of a fault → names of the signs that prove it."""
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
