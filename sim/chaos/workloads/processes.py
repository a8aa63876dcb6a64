"""Functions shared by all clients of a workload: the names of their processes, and the recording of operations in the
history.

Invariants: a process has one operation open at a time. Each invocation is completed; if its client is cancelled, it
completes as INFO. After INFO a process ends, and its work continues under the next name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import trio

from kraft.sim.chaos.clients import ClientLibrary, OperationFailed, ReadRecord, WorkloadConsumer
from kraft.sim.chaos.history import Function, HistoryEventType, HistoryRecorder, Place

Client = TypeVar("Client")
Result = TypeVar("Result")

REOPEN_PAUSE_S = 0.5
"""Default pause between the end of a client and the start of its successor."""
POLL_TIMEOUT_MS = 500
FILL = "~"


@dataclass(frozen=True, slots=True)
class ClientContext:
    """What clients need: the library, the cluster's address, the history, and the event that ends their work."""

    library: ClientLibrary
    bootstrap: str
    history: HistoryRecorder
    until: trio.Event

    async def pause(self, seconds: float) -> None:
        """Sleep for this time, or until the work is to end."""
        with trio.move_on_after(max(0.0, seconds)):
            await self.until.wait()

    async def open(self, make: Callable[[], Awaitable[Client]]) -> Client | None:
        """Open a client, retrying until it succeeds. Return None if the work is to end before that."""
        while not self.until.is_set():
            try:
                return await make()
            except OperationFailed:
                await self.pause(REOPEN_PAUSE_S)
        return None


class ProcessNames:
    """The process names of one client: `producer-0`, then `producer-0.1`, `producer-0.2`, …"""

    def __init__(self, base: str) -> None:
        self._base = base
        self.current = base
        self._retired = 0

    def retire(self) -> str:
        """Switch to the next name and return it."""
        self._retired += 1
        self.current = f"{self._base}.{self._retired}"
        return self.current


async def record(
    history: HistoryRecorder,
    process: str,
    f: Function,
    work: Callable[[], Awaitable[Result]],
    values_of: Callable[[Result], Mapping[str, Any]] = lambda result: {},
    *,
    is_harmless: bool = False,
    **values: Any,
) -> Result:
    """Carry out one operation and record it. `values_of(result)` returns the values of its completion. `is_harmless`:
    the operation changes nothing when it fails, so it is recorded as FAIL whatever the library reports, and its process
    continues. Raises what `work` raises."""
    invocation = history.invoke(process, f, **values)
    try:
        result = await work()
    except OperationFailed as failed:
        history.complete(invocation, HistoryEventType.FAIL if is_harmless else failed.type, error=failed.error)
        raise
    except BaseException as problem:
        error = "given up at the end" if isinstance(problem, trio.Cancelled) else repr(problem)
        history.complete(invocation, HistoryEventType.INFO, error=error)
        raise
    history.complete(invocation, HistoryEventType.OK, **values_of(result))
    return result


async def record_assign(
    history: HistoryRecorder,
    process: str,
    consumer: WorkloadConsumer,
    places: Sequence[Place],
    *,
    is_harmless: bool = False,
) -> None:
    """Assign these partitions to a consumer, from their beginning, and record it. Raises OperationFailed."""
    await record(
        history,
        process,
        Function.ASSIGN,
        lambda: consumer.assign(places),
        is_harmless=is_harmless,
        places=as_json(places),
    )


async def record_poll(
    history: HistoryRecorder, process: str, consumer: WorkloadConsumer, *, is_harmless: bool = False
) -> list[ReadRecord]:
    """Poll once and record it. Raises OperationFailed."""
    return await record(
        history,
        process,
        Function.POLL,
        lambda: consumer.poll(POLL_TIMEOUT_MS),
        lambda records: {"records": records_as_json(records)},
        is_harmless=is_harmless,
    )


def as_json(places: Iterable[Place]) -> list[list[Any]]:
    return [[place.topic, place.partition] for place in sorted(places)]


def records_as_json(records: Iterable[ReadRecord]) -> list[list[Any]]:
    """Return records in the format of a poll's `records`: each partition with its (offset, value), in the order
    received."""
    parts: dict[Place, list[list[Any]]] = {}
    for each in records:
        parts.setdefault(each.place, []).append([each.offset, shown(each.value)])
    return [[place.topic, place.partition, pairs] for place, pairs in parts.items()]


def filled(text: str, size: int) -> bytes:
    """Return the value of a record: the text that makes the record unique, padded to `size` bytes."""
    return text.ljust(size, FILL).encode()


def shown(value: bytes) -> str:
    """Return a record's value as it is written to the history: without its padding. Corrupt bytes stay visible."""
    return value.decode(errors="backslashreplace").rstrip(FILL)
