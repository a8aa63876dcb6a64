"""RunData: the input for a report of one run, and values that are derived from the input once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kraft.sim.chaos.history import HistoryEvent, HistoryEventType
from kraft.sim.chaos.judge import Gap, RunVerdict
from kraft.sim.chaos.report.formats import longest_gap
from kraft.sim.chaos.report.operations import DrawnOperation, RateBin, operations_of, rates, thinned
from kraft.sim.chaos.report.state_spans import ClusterSpans, cluster_spans
from kraft.sim.chaos.run.run_folder import ClusterSample, FaultRecord, OutputLine, RunInfo

GAP_SHOWN_MS = 100.0
"""Minimum length in ms of a gap that is drawn; shorter gaps appear in tables only."""

SAME_MS = 0.001
"""Difference in ms below which two times count as equal."""


@dataclass(frozen=True, slots=True)
class GapSpan:
    """Begin and end of the longest gap of a fault. `has_room`: nothing else is drawn where the gap's text would be."""

    fault: int
    gap: Gap
    begin_ms: float
    end_ms: float
    has_room: bool


@dataclass(frozen=True)
class RunData:
    """Data of one run for reports; see the module. Times are those of the run folder."""

    info: RunInfo
    verdict: RunVerdict
    history: Sequence[HistoryEvent]
    faults: Sequence[FaultRecord]
    samples: Sequence[ClusterSample]
    output: Sequence[OutputLine]

    @cached_property
    def from_ms(self) -> float:
        """Where the timeline begins: at the clients' start, or at an earlier fault."""
        return min([0.0, *(fault.begin_ms for fault in self.faults)])

    @cached_property
    def to_ms(self) -> float:
        ends = [fault.end_ms or fault.begin_ms for fault in self.faults]
        last = [event.time_ms for event in self.history[-1:]]
        return max([self.from_ms + 1.0, self.info.end_ms, self.info.duration_ms, *ends, *last])

    @property
    def is_drawable(self) -> bool:
        """Whether the timeline has anything to show."""
        return bool(self.history or self.faults or self.samples or self.output)

    @cached_property
    def operations(self) -> list[DrawnOperation]:
        return operations_of(self.history, self.to_ms)

    @cached_property
    def proving(self) -> frozenset[int]:
        """Indexes of the events that prove an anomaly."""
        return frozenset(index for anomaly in self.verdict.anomalies for index in anomaly.operations)

    @cached_property
    def points(self) -> list[DrawnOperation]:
        """The operations whose latency is drawn."""
        return thinned((each for each in self.operations if each.has_latency), self.proving)

    @cached_property
    def rates(self) -> list[RateBin]:
        return rates(self.operations, self.from_ms, self.to_ms)

    @cached_property
    def steps(self) -> ClusterSpans:
        return cluster_spans(self.samples, self.to_ms)

    @cached_property
    def time_by_index(self) -> dict[int, float]:
        """Index of a history event → ms."""
        return {event.index: event.time_ms for event in self.history}

    def gap_spans(self, text_share: float) -> list[GapSpan]:
        """Return the gaps to draw. `text_share`: share of the timeline's width that the text after a gap takes."""
        found = []
        for number, fault in enumerate(self.faults):
            gap = longest_gap(self.gaps_of(number))
            if gap is not None and gap.gap_ms >= GAP_SHOWN_MS:
                begin_ms = self._gap_begin_ms(gap, fault)
                found.append((begin_ms, begin_ms + gap.gap_ms, number, gap))
        room_ms = text_share * (self.to_ms - self.from_ms)
        spans, free_ms = [], self.from_ms
        for begin_ms, end_ms, number, gap in sorted(found, key=lambda each: each[1:3]):
            is_covered = any(begin < end_ms + room_ms and end > end_ms for begin, end, _, _ in found)
            has_room = free_ms <= end_ms <= self.to_ms - room_ms and not is_covered
            free_ms = end_ms + room_ms if has_room else free_ms
            spans.append(GapSpan(number, gap, begin_ms, end_ms, has_room))
        return spans

    def _gap_begin_ms(self, gap: Gap, fault: FaultRecord) -> float:
        """Return the time of the success before the gap. A gap counts only until the period of its fault ends, which
        may be before the next success."""
        end_ms = self.info.duration_ms if gap.first_success_ms is None else fault.begin_ms + gap.first_success_ms
        before = (
            each.end_ms
            for each in self.operations
            if each.outcome is HistoryEventType.OK
            and each.f == gap.f
            and (not gap.places or each.place == gap.places[0])
            if each.end_ms < end_ms - SAME_MS or (gap.first_success_ms is None and each.end_ms <= end_ms)
        )
        return max(before, default=end_ms - gap.gap_ms)

    def gaps_of(self, fault: int) -> list[Gap]:
        return [gap for gap in self.verdict.gaps if gap.fault == fault]

    def fault_end_ms(self, fault: FaultRecord) -> float:
        """Return where a fault's band ends."""
        return self.to_ms if fault.end_ms is None else max(fault.end_ms, fault.begin_ms)
