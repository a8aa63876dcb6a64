"""Properties that every history must have, and functions that extract values from a history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kraft.sim.chaos.history import FINAL_READER, Function, HistoryEvent, HistoryEventType, Place


def require_well_formed(events: Iterable[HistoryEvent]) -> None:
    """Check that each process has at most one operation open, completes each one, and has no event after INFO."""
    open_operations: dict[str, HistoryEvent] = {}
    ended: set[str] = set()
    for number, event in enumerate(events):
        assert event.index == number
        assert event.process not in ended, f"{event.process} goes on after INFO: {event}"
        if event.type is HistoryEventType.INVOKE:
            assert event.process not in open_operations, f"{event.process} has two operations open: {event}"
            open_operations[event.process] = event
            continue
        invocation = open_operations.pop(event.process)
        assert event.f is invocation.f
        assert invocation.values.items() <= event.values.items()
        if event.type is HistoryEventType.INFO:
            ended.add(event.process)
            assert event.error
    assert not open_operations


def completed(
    events: Iterable[HistoryEvent], f: Function, type: HistoryEventType = HistoryEventType.OK
) -> list[HistoryEvent]:
    return [event for event in events if event.f is f and event.type is type]


def acknowledged(events: Iterable[HistoryEvent]) -> dict[tuple[Place, int], str]:
    """Return (partition, offset) → the value that was acknowledged with that offset."""
    sends = completed(events, Function.SEND)
    found = {(Place(*event.values["place"]), event.values["offset"]): event.values["value"] for event in sends}
    assert len(found) == len(sends)
    return found


def read_by(events: Iterable[HistoryEvent], process: str = FINAL_READER) -> dict[tuple[Place, int], str]:
    """Return (partition, offset) → the value that this process read at that offset."""
    polls = [event for event in completed(events, Function.POLL) if event.process == process]
    return {
        (Place(topic, partition), offset): value
        for event in polls
        for topic, partition, pairs in event.values["records"]
        for offset, value in pairs
    }


def value_of(event: HistoryEvent) -> Mapping[str, Any]:
    """Return the event without the values that depend on time or on the machine."""
    return {"process": event.process, "type": event.type, "f": event.f, "error": event.error, **event.values}
