"""Transactional producers and the applications that use them, with several producers of one transactional id."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import trio

from kraft.client import (
    AbortableTransactionError,
    CommitOutcomeUnknown,
    Consumer,
    DeliveryFailed,
    KafkaError,
    Producer,
    TransactionAborted,
)
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, TimedOut
from kraft.client.core.transaction import TransactionMachine
from kraft.client.core.transaction_state import ProducerTransactionState
from kraft.client.delivery import Delivery
from kraft.sim.check.observations import TopicPartition
from kraft.sim.check.transactions.histories import ClientTransaction, ReportedOutcome
from kraft.sim.nemesis.plan import (
    ABORT_TRANSACTION,
    COMMIT_TRANSACTION,
    KILL_PRODUCER,
    OUTLAST_TIMEOUT,
    REPLACE_PRODUCER,
    TRANSACTOR,
    TRANSACTORS,
    PlannedOperation,
)
from kraft.sim.workload.fencing_causes import FencingCauses
from kraft.sim.workload.pipelining import draw_batches, out_of_order, pipeline
from kraft.sim.workload.transaction_recorder import COPIES, INPUTS, PARTITIONS, TransactionRecorder

GROUP = "copiers"
TRANSACTION_TIMEOUT_MS = 6_000
SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
        "request_timeout_ms": 3_000,
        "delivery_timeout_ms": 8_000,
        "max_block_ms": 8_000,
        "batch_size": 1_000,
        "metadata_max_age_ms": 20_000,
    }
)
READING: Mapping[str, Any] = MappingProxyType(
    {
        "group_id": GROUP,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "request_timeout_ms": 3_000,
        "default_api_timeout_ms": 8_000,
        "metadata_max_age_ms": 20_000,
    }
)
RECORDS_MAX = 5
LAST_AMOUNT = 9
"""Amount of the last transactions of each producer, which means five records."""
COPIED_MAX = 40
POLL_MS = 300
LATE_MS_MAX = 400
"""Maximum time in ms for which a producer that was replaced waits between two calls."""
WAITING_MAX = 2
"""Maximum number of operations that wait for one producer; further operations are dropped."""
AGAIN_MS = 100
FAILURES = (KafkaError, TimedOut, ClusterUnreachable, *CONNECTION_FAILURES)
COPIER = len(TRANSACTORS) // 2 - 1
"""Number of the transactional id whose producers copy records."""
PIPELINER = COPIER - 1
"""Number of the transactional id whose producers pipeline the batches of half of their transactions."""


class ProducersOfOneId:
    """The producers with one transactional id. `_present` is the newest producer, `_replaced` the one before it."""

    def __init__(
        self, recorder: TransactionRecorder, number: int, start: Callable[[TransactionalProducer], None]
    ) -> None:
        """`start` starts the task of a new producer."""
        self.number = number
        self.transactional_id = f"{TRANSACTOR}-{number}"
        self.is_last = False
        """Whether the next producer of this id is the last one, after all faults."""
        self.has_succeeded = False
        """Whether the last producer has committed its last transaction, or copied all records."""
        self.causes = FencingCauses(recorder.cluster, TRANSACTION_TIMEOUT_MS)
        self._recorder = recorder
        self._start_task = start
        self._hosts = TRANSACTORS[2 * number : 2 * number + 2]
        self._starts = 0
        self._present: TransactionalProducer | None = None
        self._replaced: TransactionalProducer | None = None
        self._is_stopped = False

    @property
    def is_over(self) -> bool:
        return all(each is None or each.is_over for each in (self._present, self._replaced))

    async def run(self) -> None:
        """Start the first producer, and another one whenever the present producer has ended. Return after `stop`."""
        while not self._is_stopped:
            if self._present is None or self._present.is_over:
                self.start()
            await self._recorder.cluster.world.sleep_ms(AGAIN_MS)

    def start(self) -> None:
        """Start another producer. The present producer continues until its operations are done; the producer that was
        replaced before it is killed."""
        if self._replaced is not None:
            self._replaced.die()
        self._replaced = self._present
        self._present = TransactionalProducer(self._recorder, self, self._hosts[self._starts % 2])
        self._starts += 1
        self._start_task(self._present)

    def take(self, operation: PlannedOperation) -> None:
        present = self._present
        if self._is_stopped or present is None or present.is_over:
            return
        if operation.verb == REPLACE_PRODUCER:
            present.is_replaced = True
            present.take(operation)
            self.start()
        elif operation.verb == KILL_PRODUCER:
            present.die()
        else:
            present.take(operation)

    def stop(self) -> None:
        self._is_stopped = True
        for each in (self._present, self._replaced):
            if each is not None:
                each.is_ending = True

    def die(self) -> None:
        for each in (self._present, self._replaced):
            if each is not None:
                each.die()


class TransactionalProducer:
    """One producer with a transactional id, and the application that uses it."""

    def __init__(self, recorder: TransactionRecorder, producers: ProducersOfOneId, host: str) -> None:
        self.is_replaced = False
        self.is_ending = False
        self.is_over = False
        self._recorder = recorder
        self._producers = producers
        self._host = host
        self._world = recorder.cluster.world
        self._random = self._world.random.stream(f"{host} {recorder.cluster.world.host(host).lives}")
        self._operations: deque[PlannedOperation] = deque()
        self._scope = trio.CancelScope()
        self._is_dead = False
        self._consumer: Consumer | None = None
        self._machine: TransactionMachine | None = None
        self._deliveries: list[Delivery] = []
        """The deliveries of the last transaction that pipelines."""
        self._begun_ms: int | None = None
        """Virtual time in ms when the last transaction began; None before the first one."""

    def take(self, operation: PlannedOperation) -> None:
        if len(self._operations) < WAITING_MAX:
            self._operations.append(operation)

    def die(self) -> None:
        """End the producer as if its process was killed."""
        if not self.is_over:
            self._is_dead = self.is_over = True
            self._world.kill(self._host)
            self._scope.cancel()

    async def live(self) -> None:
        """Run until the producer is to end, is killed, or has an error."""
        if self._is_dead:
            return
        with self._scope:
            try:
                await self._live()
            except FAILURES:
                self._report_fatal_error()  # `ProducersOfOneId.run` starts another producer
            except Exception as problem:  # noqa: BLE001 - a finding, unless the host was killed
                self._report_end(problem)
            except BaseExceptionGroup:
                if not self._is_dead:
                    raise
        self.is_over = True

    def _report_end(self, problem: Exception) -> None:
        if not self._is_dead:
            name = self._producers.transactional_id
            self._recorder.fail(
                "L7", "a transactional producer came to its end", transactional_id=name, why=repr(problem)
            )

    def _report_fatal_error(self) -> None:
        """Report a fatal error of the producer (as of one that is fenced), unless the error may have a cause."""
        machine = self._machine
        if self._is_dead or machine is None or machine.state is not ProducerTransactionState.FATAL_ERROR:
            return
        if not self.is_replaced and not self._producers.causes.has_any(self._begun_ms):
            name = self._producers.transactional_id
            identity = (machine.identity.producer_id, machine.identity.producer_epoch)
            text = "a transactional producer has a fatal error without a cause"
            self._recorder.fail("L7", text, transactional_id=name, identity=identity, why=repr(machine.error))

    async def _live(self) -> None:
        recorder, servers = self._recorder, self._recorder.cluster.shape.bootstrap_servers
        seam = self._world.node(self._host)
        async with Producer(
            bootstrap_servers=servers,
            client_id=self._host,
            transactional_id=self._producers.transactional_id,
            seam=seam,
            **SETTINGS,
        ) as producer:
            assert producer._transactions is not None
            self._machine = producer._transactions.machine
            pipeline(producer, recorder.sent_early)
            with self._producers.causes.initializing():
                await producer.init_transactions()
            if self._producers.number != COPIER:
                await (self._write_the_last(producer) if self._producers.is_last else self._work_off(producer))
                return
            async with Consumer(
                bootstrap_servers=servers, client_id=self._host, isolation_level="read_committed", seam=seam, **READING
            ) as self._consumer:
                floors = recorder.offset_floors()
                found = await self._consumer.committed(INPUTS)
                starts = {place: 0 if at is None else at.offset for place, at in found.items()}
                recorder.offsets_read_back(floors, starts)
                await self._consumer.assign(INPUTS, at=starts)
                if self._producers.is_last:
                    await self._copy_the_rest(producer, self._consumer)
                else:
                    await self._work_off(producer)

    async def _work_off(self, producer: Producer) -> None:
        """Carry out operations until the producer is to end. A replaced producer ends after its last operation."""
        while not self.is_ending:
            if self._operations:
                await self._transact(producer, self._operations.popleft())
            elif self.is_replaced:
                return
            else:
                await self._world.sleep_ms(AGAIN_MS)

    async def _write_the_last(self, producer: Producer) -> None:
        await self._transact(producer, PlannedOperation(0, ABORT_TRANSACTION, amount=LAST_AMOUNT))
        await self._transact(producer, PlannedOperation(0, COMMIT_TRANSACTION, amount=LAST_AMOUNT))
        self._producers.has_succeeded = self._recorder.transactions[-1].outcome is ReportedOutcome.COMMITTED

    async def _copy_the_rest(self, producer: Producer, consumer: Consumer) -> None:
        ends = await consumer.offsets(INPUTS)
        await self._transact(producer, PlannedOperation(0, ABORT_TRANSACTION))
        while any(consumer.position(place) < end for place, end in ends.items()):
            await self._transact(producer, PlannedOperation(0, COMMIT_TRANSACTION))
        self._producers.has_succeeded = True

    async def _transact(self, producer: Producer, operation: PlannedOperation) -> None:
        """Write one transaction, and commit or abort it as the operation says. Abort it after an abortable error.

        Below transaction.version 2 the producer then gets its next epoch. So no two transactions have the same one:
        otherwise a late request could end a later transaction, in Kafka too (KIP-890)."""
        records = await self._poll()
        await producer.begin_transaction()
        assert self._machine is not None
        self._machine.require_bump()
        identity = self._machine.identity
        self._begun_ms = self._world.now_ns // 1_000_000
        transaction = self._recorder.begun(
            self._producers.transactional_id, (identity.producer_id, identity.producer_epoch)
        )
        chronicle = self._recorder.cluster.watch.chronicle
        told = chronicle.begin_operation(self._host, f"{operation.verb} {transaction.number}")
        self._deliveries.clear()
        try:
            try:
                await self._write(producer, transaction, operation, records)
                await self._wait(operation)
                await self._end(producer, transaction, operation)
            except (AbortableTransactionError, TransactionAborted, DeliveryFailed):
                await producer.abort_transaction()
                transaction.outcome = ReportedOutcome.ABORTED
        finally:
            outcome = transaction.outcome
            good = None if outcome is ReportedOutcome.UNKNOWN else outcome is ReportedOutcome.COMMITTED
            chronicle.end_operation(told, outcome.value, good)
            self._judge_order()
        if outcome is ReportedOutcome.ABORTED and self._consumer is not None:
            self._seek_back(records)
        if self._machine.state is ProducerTransactionState.INITIALIZING:
            with self._producers.causes.initializing():
                await producer.init_transactions()

    def _judge_order(self) -> None:
        """Report a batch of the last transaction that was rejected as out of order, unless there is a cause."""
        rejected = out_of_order(self._deliveries, self._recorder.cluster)
        if rejected is not None and not self._is_dead:
            text = "a batch that was sent in order was rejected as out of order"
            name = self._producers.transactional_id
            self._recorder.fail("L7", text, transactional_id=name, why=str(rejected))

    async def _poll(self) -> list[Any]:
        if self._consumer is None:
            return []
        try:
            return await self._consumer.poll(records_max=1 + self._random.below(COPIED_MAX), timeout_ms=POLL_MS)
        except FAILURES:
            await self._world.sleep_ms(AGAIN_MS)
            return []

    async def _write(
        self, producer: Producer, transaction: ClientTransaction, operation: PlannedOperation, records: list[Any]
    ) -> None:
        recorder, amount = self._recorder, operation.amount
        if self._producers.number == PIPELINER and not amount % 2:
            await self._write_pipelined(producer, transaction)
            return
        if self._consumer is None:
            for number in range(1 + amount % RECORDS_MAX):
                place = INPUTS[(amount // RECORDS_MAX * (number + 1)) % len(INPUTS)]
                value = f"{self._producers.transactional_id}/{transaction.number}/{number}".encode()
                if number:
                    await self._be_late()
                await producer.enqueue(place[0], value, partition=place[1])
                recorder.queued(transaction, value, place)
            return
        for record in records:
            place = (COPIES, record.partition % PARTITIONS[COPIES])
            value = recorder.copies(transaction, record)
            await producer.enqueue(place[0], value, partition=place[1])
            recorder.queued(transaction, value, place)
        offsets = {(record.topic, record.partition): record.offset + 1 for record in records}
        if offsets:
            await self._be_late()
            transaction.offsets.update(offsets)
            await producer.send_offsets(offsets, self._consumer.group_metadata())

    async def _write_pipelined(self, producer: Producer, transaction: ClientTransaction) -> None:
        """Write batches most of which are sent before the first one is acknowledged."""
        name = f"{self._producers.transactional_id}/{transaction.number}"
        for batch in draw_batches(self._recorder.cluster, self._random, name):
            topic, partition = batch.place
            delivery = await producer.enqueue(topic, batch.value, partition=partition)
            self._recorder.queued(transaction, batch.value, batch.place)
            self._deliveries.append(delivery)
            if batch.pause_ns:
                await self._world.sleep_until_ns(self._world.now_ns + batch.pause_ns)

    async def _wait(self, operation: PlannedOperation) -> None:
        if operation.verb == OUTLAST_TIMEOUT:
            await self._world.sleep_ms(TRANSACTION_TIMEOUT_MS + self._random.below(2 * LATE_MS_MAX))
        else:
            await self._be_late()

    async def _be_late(self) -> None:
        """Delay a producer that was replaced, so that its requests arrive after those of its successor."""
        if self.is_replaced:
            await self._world.sleep_ms(self._random.below(LATE_MS_MAX))

    async def _end(self, producer: Producer, transaction: ClientTransaction, operation: PlannedOperation) -> None:
        if operation.verb == ABORT_TRANSACTION:
            await producer.abort_transaction()
            transaction.outcome = ReportedOutcome.ABORTED
            return
        transaction.requests_commit = True
        while True:
            try:
                await producer.commit_transaction()
            except CommitOutcomeUnknown:
                continue
            transaction.outcome = ReportedOutcome.COMMITTED
            return

    def _seek_back(self, records: list[Any]) -> None:
        """Set the consumer back to the first of these records, because the transaction that copied them was aborted."""
        starts: dict[TopicPartition, int] = {}
        for record in records:
            starts.setdefault((record.topic, record.partition), record.offset)
        assert self._consumer is not None
        for place, offset in starts.items():
            self._consumer.seek(place, offset)
