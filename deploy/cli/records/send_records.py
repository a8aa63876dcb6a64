"""The sending part of `kraft produce`: sends the records of a source to a topic, and counts the delivered records."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

import trio

from kraft.client import (
    AbortableTransactionError,
    DeliveryFailed,
    DeliveryReport,
    KafkaError,
    Producer,
    TransactionAborted,
)
from kraft.client.connections import TimedOut
from kraft.client.delivery import Delivery
from kraft.deploy.cli.admin import sentence
from kraft.deploy.cli.output import CommandFailed, progress
from kraft.deploy.cli.records.input_lines import BadInput
from kraft.deploy.cli.records.json_lines import NewRecord

IN_FLIGHT_MAX = 10_000


@dataclass(slots=True)
class RecordSender:
    """Sends records in order, and keeps the result so far: the first `count` records are delivered.

    `problem` is the error that stopped the sending, and None if the end of the source was reached. If the brokers
    created the topic for these records, `created` is a note with the shape of the topic."""

    topic: str
    keep_reports: bool = False
    count: int = 0
    reports: list[DeliveryReport] = field(default_factory=list)
    problem: CommandFailed | None = None
    created: str = ""
    transaction: str = ""
    """A note on the end of the transaction, if the records were sent in one."""
    is_typed: bool = False
    """Whether the user types the records on a terminal. Then no bar is drawn, because it would garble the input
    line."""

    async def run(self, producer: Producer, source: AsyncGenerator[NewRecord, None], reading: trio.CancelScope) -> None:
        """Send all records, with at most IN_FLIGHT_MAX of them unacknowledged. Invalid input, an error from the
        cluster, or cancellation of the scope `reading` ends the reading. The records read until then are still
        delivered."""
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

    async def run_in_transaction(
        self, producer: Producer, source: AsyncGenerator[NewRecord, None], reading: trio.CancelScope
    ) -> None:
        """Send all records in one transaction. Commit it at the end of the source; abort it if anything stops the
        reading before."""
        try:
            await producer.begin_transaction()
            await self.run(producer, source, reading)
            if self.problem is None and not reading.cancel_called:
                self.transaction = "whether committed or aborted is unknown"
                await producer.commit_transaction()
                self.transaction = "committed"
                return
            self.transaction = "aborted"
            self.reports.clear()
            await producer.abort_transaction()
        except (KafkaError, TimedOut) as problem:
            if isinstance(problem, AbortableTransactionError | TransactionAborted):
                self.transaction = "aborted"
            why = sentence(problem) if isinstance(problem, KafkaError) else str(problem)
            self.problem = self.problem or CommandFailed(f"the transaction failed: {why}")
            self.reports.clear()

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
        """Wait until the oldest records are delivered; stop at the first record whose delivery fails."""
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


async def handle_interrupts(
    reading: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """At the first ctrl-C or SIGTERM cancel the scope `reading`, so that records already read are still delivered. At
    the second signal, stop at once."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            if reading.cancel_called:
                raise KeyboardInterrupt
            reading.cancel()
