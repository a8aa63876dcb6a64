"""Sending of `kraft produce`: records out of a source into a topic, and how far that came when something stops it."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import trio

from kraft.client import DeliveryFailed, DeliveryReport, KafkaError, Producer
from kraft.client.delivery import Delivery
from kraft.deploy.cli.admin import sentence
from kraft.deploy.cli.output import CommandFailed, progress
from kraft.deploy.cli.records.input_lines import BadInput
from kraft.deploy.cli.records.json_lines import NewRecord

IN_FLIGHT_MAX = 10_000


@dataclass(slots=True)
class Sending:
    """How far it came: the first `count` records are delivered; `problem` is what stopped it, None at the end of the
    source. `created` says so if the brokers made the topic for these records, with its shape."""

    topic: str
    keep_reports: bool = False
    count: int = 0
    reports: list[DeliveryReport] = field(default_factory=list)
    problem: CommandFailed | None = None
    created: str = ""
    is_typed: bool = False
    """Somebody types the records: a bar would be drawn into the line."""

    async def run(self, producer: Producer, source: AsyncGenerator[NewRecord, None], reading: trio.CancelScope) -> None:
        """Send all, with at most IN_FLIGHT_MAX unacknowledged. What was read is delivered also when something stops
        the reading: bad input, a refusal, or the end of the scope `reading`."""
        waiting: deque[Delivery] = deque()
        with progress("sending", None, is_shown=not self.is_typed) as advance:
            try:
                with reading:
                    async with aclosing(source):
                        async for record in source:
                            waiting.append(await self._enqueue(producer, record))
                            if len(waiting) >= IN_FLIGHT_MAX:
                                await self._settle(waiting, len(waiting) // 2)
                            if self.problem is not None:
                                return
                            advance(1)
            except BadInput as problem:
                self.problem = problem
            except KafkaError as problem:
                number = self.count + len(waiting) + 1
                self.problem = CommandFailed(f"record {number} was not delivered: {sentence(problem)}")
            await producer.flush()
            await self._settle(waiting, len(waiting))

    async def _enqueue(self, producer: Producer, record: NewRecord) -> Delivery:
        return await producer.enqueue(
            self.topic,
            record.value,
            record.key,
            partition=record.partition,
            headers=record.headers,
            timestamp_ms=record.timestamp_ms,
        )

    async def _settle(self, waiting: deque[Delivery], number: int) -> None:
        """Wait for the oldest ones, up to the first that is not delivered."""
        for _ in range(number):
            try:
                report = await waiting[0].wait()
            except DeliveryFailed as problem:
                self.problem = CommandFailed(f"record {self.count + 1} was not delivered: {sentence(problem)}")
                return
            waiting.popleft()
            self.count += 1
            if self.keep_reports:
                self.reports.append(report)


async def heed_interrupts(
    reading: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """At the first ctrl-C or SIGTERM end `reading`, so that what was read is still delivered; at the second give up."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            if reading.cancel_called:
                raise KeyboardInterrupt
            reading.cancel()
