"""Pairs the events of a history into operations.

A process has one operation open at a time, so a completion belongs to the last invocation of its process. A history
that violates this is malformed, and the verdict of its run is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kraft.sim.chaos.history import Function, HistoryEvent, HistoryEventType, Place

PRODUCERS, READERS, MEMBERS, CHURN_CLIENTS = "producer-", "reader-", "member-", "churn-client-"
"""Prefixes of the process names of the workload's clients; a number follows each."""


class MalformedHistory(ValueError):
    """The events do not form a valid history; the text names the first impossible event."""


@dataclass(frozen=True, slots=True)
class HistoryOperation:
    """One operation. `completion` None: the run ended while it was open, so its outcome is unknown."""

    invocation: HistoryEvent
    completion: HistoryEvent | None

    @property
    def process(self) -> str:
        return self.invocation.process

    @property
    def f(self) -> Function:
        return self.invocation.f

    @property
    def outcome(self) -> HistoryEventType:
        """OK, FAIL or INFO; INFO if it never completed."""
        return HistoryEventType.INFO if self.completion is None else self.completion.type

    @property
    def is_ok(self) -> bool:
        return self.outcome is HistoryEventType.OK

    @property
    def error(self) -> str:
        """Error of the operation; "" if it succeeded."""
        return "never completed" if self.completion is None else self.completion.error

    @property
    def values(self) -> Mapping[str, Any]:
        """Fields of the operation's function: those of the completion override those of the invocation."""
        return (
            self.invocation.values if self.completion is None else {**self.invocation.values, **self.completion.values}
        )

    @property
    def begin_ms(self) -> float:
        return self.invocation.time_ms

    @property
    def end_ms(self) -> float | None:
        """Time at which the operation completed."""
        return None if self.completion is None else self.completion.time_ms

    @property
    def took_ms(self) -> float | None:
        """Duration of the operation from invocation to completion."""
        return None if self.completion is None else self.completion.time_ms - self.invocation.time_ms

    @property
    def index(self) -> int:
        """Index of the operation's most informative event: the completion if there is one, otherwise the invocation."""
        return (self.completion or self.invocation).index

    @property
    def place(self) -> Place:
        """The partition of a send."""
        topic, partition = self.invocation.values["place"]
        return Place(topic, partition)

    @property
    def records(self) -> list[tuple[Place, list[tuple[int, str]]]]:
        """Records that a successful poll returned, by partition."""
        return [
            (Place(topic, partition), [(offset, value) for offset, value in records])
            for topic, partition, records in self.values.get("records", ())
        ]


def paired(history: Iterable[HistoryEvent]) -> list[HistoryOperation]:
    """Pair invocations with completions and return the operations in the order of their invocations. Raises
    MalformedHistory."""
    invocations: list[HistoryEvent] = []
    completions: dict[int, HistoryEvent] = {}
    open_ones: dict[str, HistoryEvent] = {}
    last_index, last_ns = -1, None
    for event in history:
        if event.index <= last_index or (last_ns is not None and event.time_ns < last_ns):
            raise MalformedHistory(f"event {event.index} comes before event {last_index}, which the history has first")
        last_index, last_ns = event.index, event.time_ns
        if event.type is HistoryEventType.INVOKE:
            if event.process in open_ones:
                raise MalformedHistory(
                    f"event {event.index} begins an operation of {event.process}, which has one open since event "
                    f"{open_ones[event.process].index}"
                )
            open_ones[event.process] = event
            invocations.append(event)
            continue
        begun = open_ones.pop(event.process, None)
        if begun is None or begun.f is not event.f:
            raise MalformedHistory(f"event {event.index} completes a {event.f} of {event.process} that never began")
        completions[begun.index] = event
    return [HistoryOperation(invocation, completions.get(invocation.index)) for invocation in invocations]


def lineage_of(process: str) -> str:
    """Return the name shared by all processes that continue one client's work: `producer-0` for both `producer-0` and
    `producer-0.1`."""
    name, dot, number = process.rpartition(".")
    return name if dot and number.isdigit() else process


def of(operations: Sequence[HistoryOperation], *functions: Function) -> list[HistoryOperation]:
    """Return those operations that have one of these functions."""
    return [operation for operation in operations if operation.f in functions]


def name_of(place: Place) -> str:
    """Return the name of a partition as TOPIC-PARTITION."""
    return f"{place.topic}-{place.partition}"
