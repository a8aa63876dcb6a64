"""Operations of a history as they are drawn: each invocation with its completion, thinned, and counted over time.

A history that the judge rejects as malformed is drawn all the same, so its events are paired here without conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kraft.sim.chaos.history import EventType, Function, HistoryEvent

POINTS_MAX = 5_000
SLOWEST_SHARE = 0.2
"""So much of the room is for the slowest operations; the others are taken evenly."""
BINS_MAX = 200
BINS_MS = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000)
WAITING = frozenset({Function.POLL, Function.ASSIGN})
"""Their time is not that of the cluster: a poll waits for records."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`outcome` is OK, FAIL or INFO. One that was never completed is INFO and ends with the run."""

    process: str
    f: Function
    outcome: EventType
    begin_ms: float
    end_ms: float
    index: int
    """Of its invocation."""
    end_index: int
    """Of its completion, -1 without one."""
    place: str
    error: str

    @property
    def latency_ms(self) -> float:
        return max(0.0, self.end_ms - self.begin_ms)

    @property
    def has_latency(self) -> bool:
        """Whether its time says something of the cluster."""
        return self.f not in WAITING or self.outcome is not EventType.OK


def operations_of(history: Sequence[HistoryEvent], end_ms: float) -> list[Operation]:
    """In the order of their invocations."""
    open_by_process: dict[str, HistoryEvent] = {}
    found: list[Operation] = []
    for event in history:
        invocation = open_by_process.pop(event.process, None)
        if event.type is EventType.INVOKE:
            if invocation is not None:
                found.append(_open_operation(invocation, end_ms))
            open_by_process[event.process] = event
        elif invocation is not None:
            found.append(_operation(invocation, event.type, event.time_ms, event.index, event.error))
    found += [_open_operation(invocation, end_ms) for invocation in open_by_process.values()]
    return sorted(found, key=lambda operation: operation.index)


def _open_operation(invocation: HistoryEvent, end_ms: float) -> Operation:
    return _operation(invocation, EventType.INFO, max(end_ms, invocation.time_ms), -1, "never completed")


def _operation(invocation: HistoryEvent, outcome: EventType, end_ms: float, end_index: int, error: str) -> Operation:
    place = subject_of(invocation.values)
    begin_ms = invocation.time_ms
    return Operation(
        invocation.process, invocation.f, outcome, begin_ms, end_ms, invocation.index, end_index, place, error
    )


def subject_of(values: Any) -> str:
    """TOPIC-PARTITION, topic, group or node that an operation is about, "" if it is about none."""
    place = values.get("place")
    if isinstance(place, list | tuple) and len(place) == 2:
        return f"{place[0]}-{place[1]}"
    for name in ("topic", "group", "node"):
        if name in values:
            return str(values[name])
    return ""


def thinned(operations: Iterable[Operation], kept: frozenset[int] = frozenset()) -> list[Operation]:
    """At most about POINTS_MAX: of those that succeeded the slowest, and every so many of the others. None that failed
    or is unknown is left out, and none of `kept` (indexes of events). The same input gives the same points."""
    ordered = list(operations)
    if len(ordered) <= POINTS_MAX:
        return ordered
    must = [
        operation
        for operation in ordered
        if operation.outcome is not EventType.OK or operation.index in kept or operation.end_index in kept
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
    """Operations per second that ended between the two moments: `ok` of those that are counted, the others of all."""

    begin_ms: float
    end_ms: float
    ok: float
    fail: float
    info: float


def counted_function(operations: Sequence[Operation]) -> frozenset[Function]:
    """What the throughput is of: sends, or everything that does not wait where nothing is sent."""
    functions = frozenset(operation.f for operation in operations)
    return frozenset({Function.SEND}) if Function.SEND in functions else functions - WAITING


def rates(operations: Sequence[Operation], from_ms: float, to_ms: float) -> list[RateBin]:
    """The throughput between two moments, in at most BINS_MAX equal bins of a round length."""
    span_ms = max(to_ms - from_ms, 1.0)
    width_ms = next((each for each in BINS_MS if span_ms / each <= BINS_MAX), BINS_MS[-1])
    counts: dict[int, dict[EventType, int]] = {}
    counted = counted_function(operations)
    for operation in operations:
        is_counted = operation.f in counted or operation.outcome is not EventType.OK
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


OUTCOMES = (EventType.OK, EventType.FAIL, EventType.INFO)
"""In the order in which tables and the page's data name them."""
