"""What all clients of a workload have in common: their processes' names, and operations that stand in the history.

Invariants: a process has one operation open at a time, and each invocation is completed, also when its client is
cancelled (then it is INFO). After INFO a process ends, and its work goes on under the next name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import trio

from kraft.sim.chaos.clients import ClientLibrary, OperationFailed, ReadRecord, WorkloadConsumer
from kraft.sim.chaos.history import EventType, Function, History, Place

Client = TypeVar("Client")
Result = TypeVar("Result")

REOPEN_PAUSE_S = 0.5
"""Between the end of a client and its successor, if nothing else is said."""
POLL_TIMEOUT_MS = 500
FILL = "~"


@dataclass(frozen=True, slots=True)
class Setting:
    """What clients need: the library, where the cluster is, the history, and the event that ends their work."""

    library: ClientLibrary
    bootstrap: str
    history: History
    until: trio.Event

    async def pause(self, seconds: float) -> None:
        """Sleep so long, or until the work is to end."""
        with trio.move_on_after(max(0.0, seconds)):
            await self.until.wait()

    async def open(self, make: Callable[[], Awaitable[Client]]) -> Client | None:
        """A client, tried for until there is one; None if the work is to end before."""
        while not self.until.is_set():
            try:
                return await make()
            except OperationFailed:
                await self.pause(REOPEN_PAUSE_S)
        return None


class ProcessNames:
    """`producer-0`, then `producer-0.1`, `producer-0.2`, …"""

    def __init__(self, base: str) -> None:
        self._base = base
        self.current = base
        self._retired = 0

    def retire(self) -> str:
        """The name of the successor, which is the current one now."""
        self._retired += 1
        self.current = f"{self._base}.{self._retired}"
        return self.current


async def record(
    history: History,
    process: str,
    f: Function,
    work: Callable[[], Awaitable[Result]],
    told: Callable[[Result], Mapping[str, Any]] = lambda result: {},
    *,
    is_harmless: bool = False,
    **values: Any,
) -> Result:
    """Carry out one operation. `told(result)`: what its completion says. `is_harmless`: a failed one changes nothing,
    whatever the library says, so that it is FAIL and its process goes on. Raises what `work` raises."""
    invocation = history.invoke(process, f, **values)
    try:
        result = await work()
    except OperationFailed as failed:
        history.complete(invocation, EventType.FAIL if is_harmless else failed.type, error=failed.error)
        raise
    except BaseException as problem:
        error = "given up at the end" if isinstance(problem, trio.Cancelled) else repr(problem)
        history.complete(invocation, EventType.INFO, error=error)
        raise
    history.complete(invocation, EventType.OK, **told(result))
    return result


async def record_assign(
    history: History, process: str, consumer: WorkloadConsumer, places: Sequence[Place], *, is_harmless: bool = False
) -> None:
    """Let a consumer read these from their beginning. OperationFailed."""
    await record(
        history,
        process,
        Function.ASSIGN,
        lambda: consumer.assign(places),
        is_harmless=is_harmless,
        places=as_json(places),
    )


async def record_poll(
    history: History, process: str, consumer: WorkloadConsumer, *, is_harmless: bool = False
) -> list[ReadRecord]:
    """One poll. OperationFailed."""
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
    """As a poll's `records`: each partition with its (offset, value), in the order in which they were given."""
    parts: dict[Place, list[list[Any]]] = {}
    for each in records:
        parts.setdefault(each.place, []).append([each.offset, shown(each.value)])
    return [[place.topic, place.partition, pairs] for place, pairs in parts.items()]


def filled(text: str, size: int) -> bytes:
    """A record's value: the text that makes it unique, filled up to `size` bytes."""
    return text.ljust(size, FILL).encode()


def shown(value: bytes) -> str:
    """How a value stands in the history: without its filling. One that is damaged keeps the damage."""
    return value.decode(errors="backslashreplace").rstrip(FILL)
