"""Gaps without a success after each fault, latencies in each phase, and numbers of successes.

A gap is the time between two consecutive successes of one partition. If no success follows, the gap lasts until the
period of its fault ends. That is when the clients stop trying, when the next fault begins, or GAP_WINDOW_MS after the
fault's end. A gap belongs to a fault if it begins at most GAP_BEGIN_MS after the fault's end. The part of a gap after
the begin of the next fault belongs to that fault.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil

from kraft.sim.chaos.history import FINAL_READER, Function, HistoryEventType
from kraft.sim.chaos.judge import Gap, PhaseStatistics
from kraft.sim.chaos.judge.operations import HistoryOperation, lineage_of, name_of
from kraft.sim.chaos.run.run_folder import FaultRecord, RunInfo

GAP_WINDOW_MS = 30_000
"""Time after the end of a fault during which the fault can be the cause of a gap, in ms."""
GAP_BEGIN_MS = 1_000
"""Maximum time in ms from a fault's end to the begin of a gap that the fault can have caused."""
GAP_FUNCTIONS = (Function.SEND, Function.CREATE_TOPIC, Function.POLL)
BEFORE, BETWEEN, AFTER_HEAL, WHOLE_RUN = "before faults", "between faults", "after heal", "whole run"

Window = tuple[float, float]


def find_gaps(info: RunInfo, operations: Sequence[HistoryOperation], faults: Sequence[FaultRecord]) -> list[Gap]:
    """Return the longest gap after each fault that was carried out, for each function that had a success."""
    activities = {function: activities_of(operations, function, info.duration_ms) for function in GAP_FUNCTIONS}
    found: list[Gap] = []
    for number, fault in enumerate(faults):
        if fault.missed or fault.begin_ms >= info.duration_ms:
            continue
        limit_ms = _limit_of(info, fault, faults)
        for function, by_place in activities.items():
            until_ms = min(limit_ms, _end_of(info, fault) + GAP_BEGIN_MS)
            gaps = {
                place: _longest(activity, fault.begin_ms, until_ms, limit_ms) for place, activity in by_place.items()
            }
            if gaps:
                longest_ms = max(gap_ms for gap_ms, _ in gaps.values())
                where = [place for place, (gap_ms, _) in gaps.items() if gap_ms == longest_ms]
                ended_ms = gaps[where[0]][1]
                found.append(
                    Gap(
                        fault=number,
                        f=function.value,
                        gap_ms=longest_ms,
                        first_success_ms=None if ended_ms is None else ended_ms - fault.begin_ms,
                        places=tuple(sorted(filter(None, where))),
                    )
                )
    return found


@dataclass(slots=True)
class Activity:
    """Times (ms) of successful operations in order, and the time until which any operation was in progress."""

    successes: list[float] = field(default_factory=list)
    tried_until_ms: float = float("-inf")


def activities_of(
    operations: Iterable[HistoryOperation], function: Function, duration_ms: float
) -> dict[str, Activity]:
    """Return partition ("" for functions without a partition) → its activity until the clients' work ended. A poll is a
    success in the partitions of which it returns records; a failed poll belongs to no partition. Polls of the final
    reader do not count."""
    found: dict[str, Activity] = defaultdict(Activity)
    for operation in operations:
        if operation.f is not function or operation.begin_ms > duration_ms:
            continue
        end_ms = min(duration_ms if operation.end_ms is None else operation.end_ms, duration_ms)
        for place in _places_of(operation):
            activity = found[place]
            activity.tried_until_ms = max(activity.tried_until_ms, end_ms)
            if operation.is_ok:
                activity.successes.append(end_ms)
    for activity in found.values():
        activity.successes.sort()
    return {place: activity for place, activity in found.items() if activity.successes}


def _places_of(operation: HistoryOperation) -> list[str]:
    if operation.f is Function.SEND:
        return [name_of(operation.place)]
    if operation.f is not Function.POLL:
        return [""]
    if not operation.is_ok or lineage_of(operation.process) == FINAL_READER:
        return []
    return list({name_of(place) for place, records in operation.records if records})


def _limit_of(info: RunInfo, fault: FaultRecord, faults: Sequence[FaultRecord]) -> float:
    """Return the time at which the period of a fault ends."""
    end_ms = _end_of(info, fault)
    later = [other.begin_ms for other in faults if other.begin_ms > end_ms and not other.missed]
    return min([info.duration_ms, end_ms + GAP_WINDOW_MS, *later])


def _end_of(info: RunInfo, fault: FaultRecord) -> float:
    return info.duration_ms if fault.end_ms is None else fault.end_ms


def _longest(activity: Activity, begin_ms: float, until_ms: float, limit_ms: float) -> tuple[float, float | None]:
    """Return the longest of the gaps that end after `begin_ms` and begin before `until_ms`, and its end (None: it had
    not ended at `limit_ms`)."""
    times = activity.successes
    edges = times[max(bisect_right(times, begin_ms) - 1, 0) :]
    gaps: list[tuple[float, float | None]] = [
        (min(later, limit_ms) - earlier, later) for earlier, later in pairwise(edges) if earlier <= until_ms
    ]
    if edges[-1] <= until_ms or not gaps:
        gaps.append((min(limit_ms, activity.tried_until_ms) - edges[-1], None))
    return max(gaps, key=lambda gap: gap[0])


# phases


def find_phases(
    info: RunInfo, operations: Sequence[HistoryOperation], faults: Sequence[FaultRecord]
) -> list[PhaseStatistics]:
    """Return statistics of the operations that were invoked in each phase, function by function."""
    by_function = {function: [each for each in operations if each.f is function] for function in Function}
    return [
        _statistics(phase, (windows[0][0], windows[-1][1]), function, inside)
        for phase, windows in phases_of(info, faults).items()
        if windows
        for function, every in by_function.items()
        for inside in [[each for each in every if _is_in(each.begin_ms, windows)]]
        if inside
    ]


def phases_of(info: RunInfo, faults: Sequence[FaultRecord]) -> dict[str, list[Window]]:
    """Return phase → its time windows. Windows of one phase do not overlap; windows of two faults may."""
    happened = {number: fault for number, fault in enumerate(faults) if not fault.missed}
    if not happened:
        return {WHOLE_RUN: [(0.0, info.duration_ms)]}
    windows = {
        number: (fault.begin_ms, info.duration_ms if fault.end_ms is None else max(fault.end_ms, fault.begin_ms))
        for number, fault in happened.items()
    }
    first_ms = min(begin_ms for begin_ms, _ in windows.values())
    phases: dict[str, list[Window]] = {BEFORE: [(0.0, first_ms)]}
    phases |= {f"fault {number + 1}": [window] for number, window in windows.items()}
    phases[BETWEEN] = list(_holes(sorted(windows.values()), info.healed_ms))
    phases[AFTER_HEAL] = [(info.healed_ms, info.duration_ms)]
    return {phase: [(begin, end) for begin, end in times if end > begin] for phase, times in phases.items()}


def _holes(windows: Sequence[Window], end_ms: float) -> Iterator[Window]:
    covered_ms = windows[0][1]
    for begin_ms, until_ms in (*windows[1:], (end_ms, end_ms)):
        if begin_ms > covered_ms:
            yield covered_ms, begin_ms
        covered_ms = max(covered_ms, until_ms)


def _is_in(time_ms: float, windows: Sequence[Window]) -> bool:
    return any(begin_ms <= time_ms < end_ms for begin_ms, end_ms in windows)


def _statistics(phase: str, hull: Window, function: Function, inside: Sequence[HistoryOperation]) -> PhaseStatistics:
    outcomes = Counter(operation.outcome for operation in inside)
    took = sorted(operation.took_ms for operation in inside if operation.is_ok and operation.took_ms is not None)
    return PhaseStatistics(
        phase=phase,
        begin_ms=hull[0],
        end_ms=hull[1],
        f=function.value,
        ok=outcomes[HistoryEventType.OK],
        fail=outcomes[HistoryEventType.FAIL],
        info=outcomes[HistoryEventType.INFO],
        p50_ms=quantile(took, 0.5),
        p95_ms=quantile(took, 0.95),
        p99_ms=quantile(took, 0.99),
        max_ms=took[-1] if took else None,
    )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the quantile: the smallest value such that at least this share of all values are not larger. None if there
    are no values."""
    return ordered[max(ceil(share * len(ordered)) - 1, 0)] if ordered else None


# over the run


def throughput_of(info: RunInfo, operations: Iterable[HistoryOperation]) -> tuple[tuple[float, float], ...]:
    """Return (begin in ms, acknowledged records) of each second of the clients' work, including seconds without any."""
    seconds: Counter[int] = Counter()
    for operation in operations:
        if operation.f is Function.SEND and operation.is_ok and operation.end_ms is not None:
            seconds[int(operation.end_ms // 1000)] += 1
    return tuple((number * 1000.0, float(seconds[number])) for number in range(ceil(info.duration_ms / 1000)))


def counts_of(operations: Iterable[HistoryOperation]) -> dict[str, Mapping[str, int]]:
    """Return function → ok, fail, info → number of operations."""
    found: dict[str, Counter[str]] = {}
    for operation in operations:
        found.setdefault(operation.f.value, Counter())[operation.outcome.value] += 1
    return {function: dict(counts) for function, counts in found.items()}


def errors_of(operations: Iterable[HistoryOperation]) -> dict[str, int]:
    """Return the reason of a fail or info → number of operations, the most frequent first."""
    found = Counter(operation.error or "no reason given" for operation in operations if not operation.is_ok)
    return dict(found.most_common())
