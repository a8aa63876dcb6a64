"""RunData: everything that a report of one run is drawn from, with what is derived of it once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kraft.sim.chaos.history import HistoryEvent
from kraft.sim.chaos.judge import Gap, Verdict
from kraft.sim.chaos.report.operations import Operation, RateBin, operations_of, rates, thinned
from kraft.sim.chaos.report.steps import ClusterSteps, cluster_steps
from kraft.sim.chaos.run_folder import FaultRecord, OutputLine, RunInfo, Sample


@dataclass(frozen=True)
class RunData:
    """See the module. Times are those of the run folder."""

    info: RunInfo
    verdict: Verdict
    history: Sequence[HistoryEvent]
    faults: Sequence[FaultRecord]
    samples: Sequence[Sample]
    output: Sequence[OutputLine]

    @cached_property
    def from_ms(self) -> float:
        """Where the timeline begins: with the clients, or with a fault before them."""
        return min([0.0, *(fault.begin_ms for fault in self.faults)])

    @cached_property
    def to_ms(self) -> float:
        ends = [fault.end_ms or fault.begin_ms for fault in self.faults]
        last = [event.time_ms for event in self.history[-1:]]
        return max([self.from_ms + 1.0, self.info.end_ms, self.info.duration_ms, *ends, *last])

    @cached_property
    def operations(self) -> list[Operation]:
        return operations_of(self.history, self.to_ms)

    @cached_property
    def proving(self) -> frozenset[int]:
        """Indexes of the events that prove an anomaly."""
        return frozenset(index for anomaly in self.verdict.anomalies for index in anomaly.operations)

    @cached_property
    def points(self) -> list[Operation]:
        """The operations whose latency is drawn."""
        return thinned((each for each in self.operations if each.has_latency), self.proving)

    @cached_property
    def rates(self) -> list[RateBin]:
        return rates(self.operations, self.from_ms, self.to_ms)

    @cached_property
    def steps(self) -> ClusterSteps:
        return cluster_steps(self.samples, self.to_ms)

    @cached_property
    def time_by_index(self) -> dict[int, float]:
        """Event of the history → ms."""
        return {event.index: event.time_ms for event in self.history}

    def gaps_of(self, fault: int) -> list[Gap]:
        return [gap for gap in self.verdict.gaps if gap.fault == fault]

    def fault_end_ms(self, fault: FaultRecord) -> float:
        """Where its band ends."""
        return self.to_ms if fault.end_ms is None else max(fault.end_ms, fault.begin_ms)
