"""Readers: consumers that read all partitions during the run, and the final reader, which reads everything after the
heal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from kraft.sim.chaos.clients import OperationFailed, WorkloadConsumer
from kraft.sim.chaos.history import FINAL_READER, Place
from kraft.sim.chaos.workloads.processes import REOPEN_PAUSE_S, ClientContext, ProcessNames, record_assign, record_poll

ACKNOWLEDGED_WAIT_S = 10.0
"""Seconds for which the final reader waits if a log ends before an acknowledged offset: a new leader may not have the
newest end offset yet. Records still missing after that are lost."""


async def read_along(context: ClientContext, number: int, places: Sequence[Place]) -> None:
    """Read these partitions until the work ends. After an error, a fresh consumer starts again from the beginning."""
    names = ProcessNames(f"reader-{number}")
    while not context.until.is_set():
        process = names.current
        consumer = await context.open(
            lambda process=process: context.library.consumer(context.bootstrap, process, None)  # type: ignore[misc]
        )
        if consumer is None:
            return
        try:
            await record_assign(context.history, process, consumer, places)
            while not context.until.is_set():
                await record_poll(context.history, process, consumer)
        except OperationFailed:
            names.retire()
        finally:
            await consumer.aclose()
        await context.pause(REOPEN_PAUSE_S)


QUIET_S = 1.5
"""Seconds for which the final reader continues to poll at the end of all partitions, as proof that no more records
come."""


class FinalReader:
    """Reads all of these partitions from their beginning to their end. It reads at least up to the offsets in
    `acknowledged`, each the offset after the last acknowledged record, unless a log permanently ends before. Its polls
    change nothing, so a failed poll is FAIL: the reader continues under the same name, with a new consumer that begins
    with an `assign`."""

    def __init__(self, context: ClientContext, places: Sequence[Place], acknowledged: Mapping[Place, int]) -> None:
        self._setting = context
        self._places = places
        self._acknowledged = acknowledged

    async def run(self, timeout_s: float) -> bool:
        """Read everything; return whether the end of every partition was reached in time."""
        with trio.move_on_after(timeout_s):
            while True:
                if await self._attempt():
                    return True
                await trio.sleep(REOPEN_PAUSE_S)
        return False

    async def _attempt(self) -> bool:
        context = self._setting
        try:
            consumer = await context.library.consumer(context.bootstrap, FINAL_READER, None)
        except OperationFailed:
            return False
        try:
            ends = await self._ends(consumer)
            await record_assign(context.history, FINAL_READER, consumer, self._places, is_harmless=True)
            while any(consumer.position(place) < end for place, end in ends.items() if end > 0):
                await record_poll(context.history, FINAL_READER, consumer, is_harmless=True)
            given_s = trio.current_time()
            while trio.current_time() < given_s + QUIET_S:
                if await record_poll(context.history, FINAL_READER, consumer, is_harmless=True):
                    given_s = trio.current_time()
        except OperationFailed:
            return False
        finally:
            await consumer.aclose()
        return True

    async def _ends(self, consumer: WorkloadConsumer) -> dict[Place, int]:
        """Return the end offsets of the logs, waiting until they include all acknowledged records. Raises
        OperationFailed."""
        deadline = trio.current_time() + ACKNOWLEDGED_WAIT_S
        while True:
            ends = await consumer.end_offsets(self._places)
            is_whole = all(ends.get(place, 0) >= self._acknowledged.get(place, 0) for place in self._places)
            if is_whole or trio.current_time() >= deadline:
                return ends
            await trio.sleep(REOPEN_PAUSE_S)
