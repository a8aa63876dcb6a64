"""The history of a run: every operation of every client, as one JSON object per line.

A process is a logical client that has one operation open at a time. Each operation is two lines: its invocation and its
completion. The completion's type gives the outcome:

- `ok`: it happened, and the values are what the client saw.
- `fail`: it did not happen and never will.
- `info`: unknown; it may take effect at any later time. The process ends, and its work continues under a new process
  name.

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


class HistoryEventType(StrEnum):
    """The type of a history event: an invocation, or the outcome of its operation."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Function(StrEnum):
    """The function of an operation. The attributes document the fields of its lines."""

    SEND = "send"
    """Send a record. Fields: `place`, `value`; when ok, `offset`. `acks` and `idempotent` are present if they differ
    from "all" and true."""
    POLL = "poll"
    """Poll. Field when ok: `records`: [[topic, partition, [[offset, value], ...]], ...]."""
    ASSIGN = "assign"
    """Assign partitions to a consumer. Field: `places`, the partitions that the consumer reads from now on. The next
    records of each need not follow those that the consumer read before."""
    COMMIT = "commit"
    """Commit offsets. Fields: `group`, `offsets`: [[topic, partition, offset], ...]."""
    CREATE_TOPIC = "create topic"
    """Create a topic. Fields: `topic`, `partitions`; when ok, `topic_id` (hexadecimal) if the client returns it."""
    DELETE_TOPIC = "delete topic"
    """Delete a topic. Field: `topic`."""


FINAL_READER = "final-reader"
"""Process name of the reader that reads every partition from its beginning after the heal."""


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One line of a history. `error` is the reason of a fail or info: the name of a Kafka error, or the client
    library's error text."""

    index: int
    time_ns: int
    process: str
    type: HistoryEventType
    f: Function
    error: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    """The fields of the function (see `Function`), as JSON has them."""

    @property
    def time_ms(self) -> float:
        return self.time_ns / 1e6


class UnreadableHistory(ValueError):
    """A history file contains an invalid line; the text says which."""


class HistoryRecorder:
    """Collects events from any thread in order of time. `write_to` receives each event when it is recorded."""

    def __init__(self, now_ns: Callable[[], int], file: IO[str] | None = None) -> None:
        self.events: list[HistoryEvent] = []
        self._now_ns = now_ns
        self._file = file
        self._lock = threading.Lock()

    def invoke(self, process: str, f: Function, **values: Any) -> HistoryEvent:
        """Record the invocation of an operation."""
        return self._add(process, HistoryEventType.INVOKE, f, "", values)

    def complete(
        self, invocation: HistoryEvent, type: HistoryEventType, *, error: str = "", **values: Any
    ) -> HistoryEvent:
        """Record the completion of an operation. It repeats the values of its invocation."""
        return self._add(invocation.process, type, invocation.f, error, {**invocation.values, **values})

    def _add(
        self, process: str, type: HistoryEventType, f: Function, error: str, values: dict[str, Any]
    ) -> HistoryEvent:
        with self._lock:
            event = HistoryEvent(len(self.events), self._now_ns(), process, type, f, error, values)
            self.events.append(event)
            if self._file is not None:
                self._file.write(line_of(event))
        return event


def line_of(event: HistoryEvent) -> str:
    """Return the event's line, with its line end."""
    fields = asdict(event)
    values = fields.pop("values")
    if not fields["error"]:
        del fields["error"]
    return json.dumps({**fields, **values}, separators=(",", ":")) + "\n"


def read_history(path: Path) -> list[HistoryEvent]:
    """Return the events of a file. An incomplete last line, as a killed run leaves it, is dropped. Raises
    UnreadableHistory."""
    with path.open(encoding="utf-8") as file:
        return list(parse_history(file))


def parse_history(lines: Iterable[str]) -> Iterator[HistoryEvent]:
    """Return the events of these lines."""
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            return
        try:
            row = json.loads(line)
            known = {name: row.pop(name) for name in ("index", "time_ns", "process")}
            yield HistoryEvent(
                **known,
                type=HistoryEventType(row.pop("type")),
                f=Function(row.pop("f")),
                error=row.pop("error", ""),
                values=row,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise UnreadableHistory(f"line {number} is no event of a history: {problem!r}") from problem
