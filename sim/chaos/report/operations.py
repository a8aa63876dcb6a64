"""Operations of a history for drawing: each invocation is paired with its completion, and the operations are thinned
out and counted over time.

A malformed history is drawn too, so its events are paired here without the checks of
`kraft.sim.chaos.judge.operations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kraft.sim.chaos.history import Function, HistoryEvent, HistoryEventType

POINTS_MAX = 5_000
SLOWEST_SHARE = 0.2
"""Share of the points that show the slowest operations; the other points are an even sample."""
BINS_MAX = 200
BINS_MS = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000)
WAITING = frozenset({Function.POLL, Function.ASSIGN})
"""Functions whose duration is not the cluster's latency, such as a poll, which waits for records."""


@dataclass(frozen=True, slots=True)
class DrawnOperation:
    """An operation as it is drawn. `outcome` is OK, FAIL or INFO. An operation that never completed is INFO and ends
    with the run."""

    process: str
    f: Function
    outcome: HistoryEventType
    begin_ms: float
    end_ms: float
    index: int
    """History index of the operation's invocation."""
    end_index: int
    """History index of the operation's completion; -1 if it has none."""
    place: str
    error: str

    @property
    def latency_ms(self) -> float:
        return max(0.0, self.end_ms - self.begin_ms)

    @property
    def has_latency(self) -> bool:
        """Whether the operation's duration shows the cluster's latency."""
        return self.f not in WAITING or self.outcome is not HistoryEventType.OK


def operations_of(history: Sequence[HistoryEvent], end_ms: float) -> list[DrawnOperation]:
    """Return the operations in the order of their invocations."""
    open_by_process: dict[str, HistoryEvent] = {}
    found: list[DrawnOperation] = []
    for event in history:
        invocation = open_by_process.pop(event.process, None)
        if event.type is HistoryEventType.INVOKE:
            if invocation is not None:
                found.append(_open_operation(invocation, end_ms))
            open_by_process[event.process] = event
        elif invocation is not None:
            found.append(_operation(invocation, event.type, event.time_ms, event.index, event.error))
    found += [_open_operation(invocation, end_ms) for invocation in open_by_process.values()]
    return sorted(found, key=lambda operation: operation.index)


def _open_operation(invocation: HistoryEvent, end_ms: float) -> DrawnOperation:
    return _operation(invocation, HistoryEventType.INFO, max(end_ms, invocation.time_ms), -1, "never completed")


def _operation(
    invocation: HistoryEvent, outcome: HistoryEventType, end_ms: float, end_index: int, error: str
) -> DrawnOperation:
    place = subject_of(invocation.values)
    begin_ms = invocation.time_ms
    return DrawnOperation(
        invocation.process, invocation.f, outcome, begin_ms, end_ms, invocation.index, end_index, place, error
    )


def subject_of(values: Any) -> str:
    """Return the TOPIC-PARTITION, topic, group or node of an operation, "" if it has none."""
    place = values.get("place")
    if isinstance(place, list | tuple) and len(place) == 2:
        return f"{place[0]}-{place[1]}"
    for name in ("topic", "group", "node"):
        if name in values:
            return str(values[name])
    return ""


def thinned(operations: Iterable[DrawnOperation], kept: frozenset[int] = frozenset()) -> list[DrawnOperation]:
    """Reduce the operations to about POINTS_MAX. All that failed or are unknown stay, and all of `kept` (indexes of
    events). Of the others, the slowest stay and an even sample. The same input gives the same points."""
    ordered = list(operations)
    if len(ordered) <= POINTS_MAX:
        return ordered
    must = [
        operation
        for operation in ordered
        if operation.outcome is not HistoryEventType.OK or operation.index in kept or operation.end_index in kept
    ]
    chosen = {operation.index for operation in must}
    others = [operation for operation in ordered if operation.index not in chosen]
    room = max(POINTS_MAX - len(must), POINTS_MAX // 10)
    slowest = sorted(others, key=lambda operation: (-operation.latency_ms, operation.index))[
        : int(room * SLOWEST_SHARE)
    ]
    chosen.update(operation.index for operation in slowest)
    rest = [operation for operation in others if operation.index not in chosen]
    room -= len(slowest)
    chosen.update(rest[number * len(rest) // room].index for number in range(min(room, len(rest))))
    return [operation for operation in ordered if operation.index in chosen]


@dataclass(frozen=True, slots=True)
class RateBin:
    """Operations per second that ended between two times: `ok` of the counted functions, `fail` and `info` of all
    functions."""

    begin_ms: float
    end_ms: float
    ok: float
    fail: float
    info: float


def counted_function(operations: Sequence[DrawnOperation]) -> frozenset[Function]:
    """Return the functions that count for throughput: sends, or, if nothing is sent, all functions that do not wait for
    records."""
    functions = frozenset(operation.f for operation in operations)
    return frozenset({Function.SEND}) if Function.SEND in functions else functions - WAITING


def rates(operations: Sequence[DrawnOperation], from_ms: float, to_ms: float) -> list[RateBin]:
    """Return the operations per second between two times, in at most BINS_MAX equal bins of a round length."""
    span_ms = max(to_ms - from_ms, 1.0)
    width_ms = next((each for each in BINS_MS if span_ms / each <= BINS_MAX), BINS_MS[-1])
    counts: dict[int, dict[HistoryEventType, int]] = {}
    counted = counted_function(operations)
    for operation in operations:
        is_counted = operation.f in counted or operation.outcome is not HistoryEventType.OK
        if is_counted and from_ms <= operation.end_ms <= to_ms:
            outcomes = counts.setdefault(int(operation.end_ms // width_ms), {})
            outcomes[operation.outcome] = outcomes.get(operation.outcome, 0) + 1
    if not counts:
        return []
    per_second = 1000 / width_ms
    return [
        RateBin(
            number * width_ms,
            (number + 1) * width_ms,
            *(counts.get(number, {}).get(outcome, 0) * per_second for outcome in OUTCOMES),
        )
        for number in range(int(from_ms // width_ms), int(to_ms // width_ms) + 1)
    ]


OUTCOMES = (HistoryEventType.OK, HistoryEventType.FAIL, HistoryEventType.INFO)
"""Outcomes in the order in which tables and the page's data list them."""
