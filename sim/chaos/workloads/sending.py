"""Producers: each sends records to one partition, and waits for the acknowledgement of a record before it sends the
next.
"""

from __future__ import annotations

import random
from typing import Any

import trio

from kraft.sim.chaos.clients import OperationFailed, ProducerSettings, WorkloadProducer
from kraft.sim.chaos.clients.outcomes import ENDS_PRODUCER
from kraft.sim.chaos.history import Function, HistoryEventType, Place
from kraft.sim.chaos.scenarios.scenario import ScenarioWorkload
from kraft.sim.chaos.workloads.processes import REOPEN_PAUSE_S, ClientContext, ProcessNames, filled, record


class Producers:
    """The producers of a workload. `acknowledged`: partition → the offset after the highest acknowledged one."""

    def __init__(self, workload: ScenarioWorkload, places: list[Place], source: random.Random) -> None:
        is_idempotent = workload.idempotent and workload.acks == "all"
        self.acknowledged: dict[Place, int] = {}
        self._settings = ProducerSettings(
            acks=workload.acks, is_idempotent=is_idempotent, delivery_timeout_ms=workload.delivery_timeout_ms
        )
        self._marks: dict[str, Any] = {} if workload.acks == "all" else {"acks": workload.acks}
        if not is_idempotent:
            self._marks["idempotent"] = False
        self._places = places
        self._value_bytes = workload.value_bytes
        self._interval_s = 1 / workload.rate
        self._starts_s = [source.random() * self._interval_s for _ in range(workload.producers)]
        self._began_ok = [float("-inf")] * workload.producers
        """Producer number → time when its last successful send began."""
        self._progress = trio.Event()

    async def run(self, context: ClientContext) -> None:
        """Run all producers until the work ends."""
        async with trio.open_nursery() as nursery:
            for number in range(len(self._starts_s)):
                nursery.start_soon(self._produce, context, number)

    async def wait_each(self, since_s: float) -> None:
        """Wait until each producer has had a successful send that began at this time or later."""
        while min(self._began_ok, default=since_s) < since_s:
            await self._progress.wait()

    async def _produce(self, context: ClientContext, number: int) -> None:
        names = ProcessNames(f"producer-{number}")
        await context.pause(self._starts_s[number])
        while not context.until.is_set():
            process = names.current
            producer = await context.open(
                lambda process=process: context.library.producer(context.bootstrap, process, self._settings)  # type: ignore[misc]
            )
            if producer is None:
                return
            try:
                await self._send_repeatedly(context, number, process, producer)
            finally:
                await producer.aclose()
            if context.until.is_set():
                return
            names.retire()
            await context.pause(REOPEN_PAUSE_S)

    async def _send_repeatedly(
        self, context: ClientContext, number: int, process: str, producer: WorkloadProducer
    ) -> None:
        """Send records at the configured rate, until the work or this process is to end."""
        due_s, count = trio.current_time(), 0
        place = self._places[number % len(self._places)]
        while True:
            await context.pause(due_s - trio.current_time())
            if context.until.is_set():
                return
            due_s = max(due_s + self._interval_s, trio.current_time())
            try:
                await self._send(context, number, process, producer, place, f"{process}/{count}")
            except OperationFailed as failed:
                if failed.type is HistoryEventType.INFO or failed.error in ENDS_PRODUCER:
                    return
            count += 1

    async def _send(
        self, context: ClientContext, number: int, process: str, producer: WorkloadProducer, place: Place, text: str
    ) -> None:
        began_s = trio.current_time()
        offset = await record(
            context.history,
            process,
            Function.SEND,
            lambda: producer.send(place, filled(text, self._value_bytes)),
            lambda offset: {"offset": offset},
            place=list(place),
            value=text,
            **self._marks,
        )
        self.acknowledged[place] = max(self.acknowledged.get(place, 0), offset + 1)
        self._began_ok[number] = began_s
        self._progress.set()
        self._progress = trio.Event()
