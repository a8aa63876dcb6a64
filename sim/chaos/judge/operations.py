"""Pairs the events of a history to operations.

A process has one operation open at a time, so a completion belongs to the last invocation of its process. A history in
which that is not so is malformed: nothing is known of its run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kraft.sim.chaos.history import EventType, Function, HistoryEvent, Place

PRODUCERS, READERS, MEMBERS, CHURN_CLIENTS = "producer-", "reader-", "member-", "churn-client-"
"""How the processes of the workloads' clients are named: this, and a number."""


class MalformedHistory(ValueError):
    """The events are no history; the text says which event is the first that cannot be."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `completion` None: the run ended while it was open, so nothing is known of its outcome."""

    invocation: HistoryEvent
    completion: HistoryEvent | None

    @property
    def process(self) -> str:
        return self.invocation.process

    @property
    def f(self) -> Function:
        return self.invocation.f

    @property
    def outcome(self) -> EventType:
        """OK, FAIL or INFO; INFO also if it never completed."""
        return EventType.INFO if self.completion is None else self.completion.type

    @property
    def is_ok(self) -> bool:
        return self.outcome is EventType.OK

    @property
    def error(self) -> str:
        """Why it did not succeed, "" if it did."""
        return "never completed" if self.completion is None else self.completion.error

    @property
    def values(self) -> Mapping[str, Any]:
        """The fields of its function: those of the completion over those of the invocation."""
        return (
            self.invocation.values if self.completion is None else {**self.invocation.values, **self.completion.values}
        )

    @property
    def begin_ms(self) -> float:
        return self.invocation.time_ms

    @property
    def end_ms(self) -> float | None:
        """When it completed."""
        return None if self.completion is None else self.completion.time_ms

    @property
    def took_ms(self) -> float | None:
        """From invocation to completion."""
        return None if self.completion is None else self.completion.time_ms - self.invocation.time_ms

    @property
    def index(self) -> int:
        """Of the event that tells most: the completion, if there is one."""
        return (self.completion or self.invocation).index

    @property
    def place(self) -> Place:
        """Of a send."""
        topic, partition = self.invocation.values["place"]
        return Place(topic, partition)

    @property
    def records(self) -> list[tuple[Place, list[tuple[int, str]]]]:
        """What an ok poll gave, partition by partition."""
        return [
            (Place(topic, partition), [(offset, value) for offset, value in records])
            for topic, partition, records in self.values.get("records", ())
        ]


def paired(history: Iterable[HistoryEvent]) -> list[Operation]:
    """The operations in the order of their invocations. MalformedHistory."""
    invocations: list[HistoryEvent] = []
    completions: dict[int, HistoryEvent] = {}
    open_ones: dict[str, HistoryEvent] = {}
    last_index, last_ns = -1, None
    for event in history:
        if event.index <= last_index or (last_ns is not None and event.time_ns < last_ns):
            raise MalformedHistory(f"event {event.index} comes before event {last_index}, which the history has first")
        last_index, last_ns = event.index, event.time_ns
        if event.type is EventType.INVOKE:
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
    return [Operation(invocation, completions.get(invocation.index)) for invocation in invocations]


def lineage_of(process: str) -> str:
    """The name under which the work of a retired process goes on: producer-0 of producer-0.1, and of producer-0."""
    name, dot, number = process.rpartition(".")
    return name if dot and number.isdigit() else process


def of(operations: Sequence[Operation], *functions: Function) -> list[Operation]:
    """The operations of these functions."""
    return [operation for operation in operations if operation.f in functions]


def name_of(place: Place) -> str:
    """TOPIC-PARTITION."""
    return f"{place.topic}-{place.partition}"
