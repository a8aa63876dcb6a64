"""The history of a run: every operation of every client, as one JSON object per line.

A process is a logical client that has one operation open at a time. Each operation is two lines: its invocation, and
its completion. The completion's type says what is known:

- `ok`: it happened, and the values are what the client saw.
- `fail`: it did not happen and never will.
- `info`: unknown; it may take effect at any later time. The process ends; its work goes on under a new process name.

    {"index": 6, "time_ns": 1204411, "process": "producer-0", "type": "invoke", "f": "send",
     "place": ["chaos", 0], "value": "producer-0/3"}
    {"index": 7, "time_ns": 1911002, "process": "producer-0", "type": "ok", "f": "send",
     "place": ["chaos", 0], "value": "producer-0/3", "offset": 3}

`time_ns` counts from the begin of the run. `index` is the line's number. Source: Jepsen.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, NamedTuple


class EventType(StrEnum):
    """What a line of the history says of its operation."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Function(StrEnum):
    """What an operation does. Its lines carry the fields that are named here."""

    SEND = "send"
    """`place`, `value`; when ok, `offset`. `acks` and `idempotent` if they differ from "all" and true."""
    POLL = "poll"
    """When ok, `records`: [[topic, partition, [[offset, value], ...]], ...]."""
    ASSIGN = "assign"
    """`places`: what the consumer reads from now on. What it is given next of them need not follow what it had."""
    COMMIT = "commit"
    """`group`, `offsets`: [[topic, partition, offset], ...]."""
    FETCH_OFFSETS = "fetch offsets"
    """`group`; when ok, `offsets`."""
    CREATE_TOPIC = "create topic"
    """`topic`, `partitions`; when ok, `topic_id` (hexadecimal) if the client tells it."""
    DELETE_TOPIC = "delete topic"
    """`topic`."""


FINAL_READER = "final-reader"
"""The process that reads every partition from its beginning when everything is healed."""


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One line. `error` is the reason of a fail or info: a Kafka error's name, or the client's own words."""

    index: int
    time_ns: int
    process: str
    type: EventType
    f: Function
    error: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    """The fields that belong to the function (see `Function`), as JSON has them."""

    @property
    def time_ms(self) -> float:
        return self.time_ns / 1e6


class UnreadableHistory(ValueError):
    """A history's file has a line that is none; the text says which."""


class History:
    """Collects events from any thread, in the order of their times; `write_to` keeps each as it comes."""

    def __init__(self, now_ns: Callable[[], int], file: IO[str] | None = None) -> None:
        self.events: list[HistoryEvent] = []
        self._now_ns = now_ns
        self._file = file
        self._lock = threading.Lock()

    def invoke(self, process: str, f: Function, **values: Any) -> HistoryEvent:
        """Record that an operation begins."""
        return self._add(process, EventType.INVOKE, f, "", values)

    def complete(self, invocation: HistoryEvent, type: EventType, *, error: str = "", **values: Any) -> HistoryEvent:
        """Record how an operation ended. The values of its invocation are repeated."""
        return self._add(invocation.process, type, invocation.f, error, {**invocation.values, **values})

    def _add(self, process: str, type: EventType, f: Function, error: str, values: dict[str, Any]) -> HistoryEvent:
        with self._lock:
            event = HistoryEvent(len(self.events), self._now_ns(), process, type, f, error, values)
            self.events.append(event)
            if self._file is not None:
                self._file.write(line_of(event))
        return event


def line_of(event: HistoryEvent) -> str:
    """The event's line, with its end."""
    fields = asdict(event)
    values = fields.pop("values")
    if not fields["error"]:
        del fields["error"]
    return json.dumps({**fields, **values}, separators=(",", ":")) + "\n"


def read_history(path: Path) -> list[HistoryEvent]:
    """The events of a file. A torn last line, as a killed run leaves one, is left out. UnreadableHistory."""
    with path.open(encoding="utf-8") as file:
        return list(parse_history(file))


def parse_history(lines: Iterable[str]) -> Iterator[HistoryEvent]:
    """The events of these lines."""
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            return
        try:
            row = json.loads(line)
            known = {name: row.pop(name) for name in ("index", "time_ns", "process")}
            yield HistoryEvent(
                **known,
                type=EventType(row.pop("type")),
                f=Function(row.pop("f")),
                error=row.pop("error", ""),
                values=row,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise UnreadableHistory(f"line {number} is no event of a history: {problem!r}") from problem
