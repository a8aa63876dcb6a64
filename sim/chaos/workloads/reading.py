"""Readers: consumers that read all partitions along, and the one that reads everything when all is healed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from kraft.sim.chaos.clients import OperationFailed, WorkloadConsumer
from kraft.sim.chaos.history import FINAL_READER, Place
from kraft.sim.chaos.workloads.processes import REOPEN_PAUSE_S, ProcessNames, Setting, record_assign, record_poll

ACKNOWLEDGED_WAIT_S = 10.0
"""How long the final reader waits for logs that end before what was acknowledged: the end may be yet unknown to a new
leader. What is missing then is lost."""


async def read_along(setting: Setting, number: int, places: Sequence[Place]) -> None:
    """Read these partitions until the work is to end; after an error with a fresh consumer, from their beginning."""
    names = ProcessNames(f"reader-{number}")
    while not setting.until.is_set():
        process = names.current
        consumer = await setting.open(
            lambda process=process: setting.library.consumer(setting.bootstrap, process, None)  # type: ignore[misc]
        )
        if consumer is None:
            return
        try:
            await record_assign(setting.history, process, consumer, places)
            while not setting.until.is_set():
                await record_poll(setting.history, process, consumer)
        except OperationFailed:
            names.retire()
        finally:
            await consumer.aclose()
        await setting.pause(REOPEN_PAUSE_S)


QUIET_S = 1.5
"""How long the final reader is given nothing at the end of all partitions before it stops: a judge wants to see that
nothing comes any more."""


class FinalReader:
    """Reads all of these partitions from their beginning to their end: at least to `acknowledged`, the offsets behind
    what was acknowledged, unless the logs end before for good. Its polls change nothing, so a failed one is FAIL: it
    goes on under its name, with a fresh consumer that begins with an `assign`."""

    def __init__(self, setting: Setting, places: Sequence[Place], acknowledged: Mapping[Place, int]) -> None:
        self._setting = setting
        self._places = places
        self._acknowledged = acknowledged

    async def run(self, timeout_s: float) -> bool:
        """Whether it came to the end of every partition in time."""
        with trio.move_on_after(timeout_s):
            while True:
                if await self._attempt():
                    return True
                await trio.sleep(REOPEN_PAUSE_S)
        return False

    async def _attempt(self) -> bool:
        setting = self._setting
        try:
            consumer = await setting.library.consumer(setting.bootstrap, FINAL_READER, None)
        except OperationFailed:
            return False
        try:
            ends = await self._ends(consumer)
            await record_assign(setting.history, FINAL_READER, consumer, self._places, is_harmless=True)
            while any(consumer.position(place) < end for place, end in ends.items() if end > 0):
                await record_poll(setting.history, FINAL_READER, consumer, is_harmless=True)
            given_s = trio.current_time()
            while trio.current_time() < given_s + QUIET_S:
                if await record_poll(setting.history, FINAL_READER, consumer, is_harmless=True):
                    given_s = trio.current_time()
        except OperationFailed:
            return False
        finally:
            await consumer.aclose()
        return True

    async def _ends(self, consumer: WorkloadConsumer) -> dict[Place, int]:
        """The ends of the logs, when they hold what was acknowledged. OperationFailed."""
        deadline = trio.current_time() + ACKNOWLEDGED_WAIT_S
        while True:
            ends = await consumer.end_offsets(self._places)
            is_whole = all(ends.get(place, 0) >= self._acknowledged.get(place, 0) for place in self._places)
            if is_whole or trio.current_time() >= deadline:
                return ends
            await trio.sleep(REOPEN_PAUSE_S)
