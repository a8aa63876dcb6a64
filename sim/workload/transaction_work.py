"""Transactional producers, and readers of what they write.

Two producers write a few records to several partitions in each transaction, and commit or abort it. A third producer
reads the committed records of the first two, writes a copy of each, and commits its position in the same transaction.
Each producer may be replaced by another with the same transactional id while it still runs. It may be killed, and it
may keep a transaction open until the coordinator aborts it.

After the faults the third producer copies the remaining records. Then no transaction may stay open. The reported
outcomes and all records that were read are checked as one history (`kraft.sim.check.transactions.histories`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
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
from kraft.client.admin import Admin, ElectionType
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, TimedOut
from kraft.client.core.transaction import TransactionMachine
from kraft.client.core.transaction_state import ProducerTransactionState
from kraft.sim.check.observations import TopicPartition
from kraft.sim.check.transactions.histories import (
    ClientTransaction,
    ReportedOutcome,
    TransactionHistory,
    judge_transactions,
    last_offsets,
)
from kraft.sim.check.transactions.ledger import TransactionLedger
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import (
    ABORT_TRANSACTION,
    COMMIT_TRANSACTION,
    COMMITTED_READER,
    COORDINATOR_MOVER,
    KILL_PRODUCER,
    MOVE_COORDINATOR,
    OUTLAST_TIMEOUT,
    REPLACE_PRODUCER,
    TRANSACTION_JUDGE,
    TRANSACTOR,
    TRANSACTORS,
    PlannedOperation,
)
from kraft.sim.workload.fencing_causes import FencingCauses
from kraft.sim.workload.planned_requests import make_requests

TRANSFERS, COPIES = "transfers", "copies"
PARTITIONS: Mapping[str, int] = MappingProxyType({TRANSFERS: 3, COPIES: 2})
"""Topic that the transactions write to → number of its partitions."""
GROUP = "copiers"
TRANSACTION_TOPIC, OFFSETS_TOPIC = "__transaction_state", "__consumer_offsets"
TRANSACTION_TIMEOUT_MS = 6_000
SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
        "request_timeout_ms": 3_000,
        "delivery_timeout_ms": 8_000,
        "max_block_ms": 8_000,
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
STOP_MS_MAX = 40_000
LAST_MS_MAX = 60_000
"""Maximum time in ms for the last transactions of one producer."""
CLOSED_MS_MAX = TRANSACTION_TIMEOUT_MS + 20_000
"""Maximum time in ms from the end of all producers until no transaction is open: the timeout, and time to write
markers."""
READ_MS_MAX = 30_000
CAUGHT_UP_MS_MAX = 60_000
"""Maximum time in ms until the reader of the whole run has read everything: the timeout of a request, and time to
read."""
FAILURES = (KafkaError, TimedOut, ClusterUnreachable, *CONNECTION_FAILURES)
COPIER = len(TRANSACTORS) // 2 - 1
"""Number of the transactional id whose producers copy records."""


class TransactionWork:
    """All transactional producers and readers of a run."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.transactions: list[ClientTransaction] = []
        self.sources: dict[bytes, bytes] = {}
        """Value of a copy → value of the record that it was made of."""
        self.inputs = [(TRANSFERS, index) for index in range(PARTITIONS[TRANSFERS])]
        self.places = [(topic, index) for topic, count in PARTITIONS.items() for index in range(count)]
        self.along: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        """Partition → (offset, value) of each record that the reader of the whole run got."""
        self.offsets_read = 0
        """Number of times that a group's offset was compared with the offsets of committed transactions."""
        self.judged = 0
        """Number of transactions in the history that was checked."""
        self._owners: dict[bytes, ClientTransaction] = {}
        self._whole_run_reader: Consumer | None = None
        """The consumer that reads committed records during the whole run; None before it starts."""
        self._ids = [_ProducersOfOneId(self, number) for number in range(COPIER + 1)]
        self._nursery: trio.Nursery | None = None

    @property
    def ledger(self) -> TransactionLedger:
        """The transactions in the committed transaction log."""
        return self.cluster.watch.suite.transactions.ledger

    @property
    def committed(self) -> int:
        """Number of transactions whose commit was reported."""
        return sum(each.outcome is ReportedOutcome.COMMITTED for each in self.transactions)

    @property
    def aborted(self) -> int:
        """Number of transactions whose abort was reported."""
        return sum(each.outcome is ReportedOutcome.ABORTED for each in self.transactions)

    def fail(self, check: str, text: str, place: TopicPartition | None = None, **evidence: Any) -> None:
        facts = evidence if place is None else {"partition": place, **evidence}
        self.cluster.report.fail(check, text, **facts)

    # work

    async def run(self, work: Iterable[PlannedOperation]) -> None:
        """Let producers carry out the operations of a plan, each at its time. Run until cancelled."""
        world, start_ns = self.cluster.world, self.cluster.world.now_ns
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._read_along)
            for producers in self._ids:
                self._nursery.start_soon(producers.run)
            every = tuple(work)
            moves = [operation for operation in every if operation.verb == MOVE_COORDINATOR]
            self._nursery.start_soon(make_requests, self.cluster, COORDINATOR_MOVER, moves, self._move_coordinator)
            for operation in every:
                await world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
                if operation.verb != MOVE_COORDINATOR:
                    self._ids[operation.target % len(self._ids)].take(operation)
            await trio.sleep_forever()

    def start(self, incarnation: _TransactionalProducer) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(incarnation.live)

    def begun(self, transactional_id: str, data: tuple[int, int]) -> ClientTransaction:
        """Record that a producer has begun a transaction. `data` is the producer id and epoch of its records."""
        found = ClientTransaction(transactional_id, data, len(self.transactions))
        self.transactions.append(found)
        return found

    def queued(self, transaction: ClientTransaction, value: bytes, place: TopicPartition) -> None:
        """Record that a producer has queued a record with this value. A record that the producer rejected is in no
        transaction. Call this before the next checkpoint, so that no reader gets the record earlier."""
        transaction.records.append((value, place))
        self._owners[value] = transaction

    async def _move_coordinator(self, cluster: SimCluster, admin: Admin, operation: PlannedOperation) -> None:
        """Make another replica the leader of a partition of the transaction log. The requests may fail."""
        topic = cluster.image.topics.get(TRANSACTION_TOPIC)
        if topic is None:
            return
        place = (TRANSACTION_TOPIC, operation.amount % topic.partition_count)
        replicas = tuple(topic.partition(place[1]).replicas)
        chronicle = cluster.watch.chronicle
        told = chronicle.begin_operation(TRANSACTOR, f"moves the leader of {place[0]}-{place[1]}")
        with suppress(*FAILURES):
            await admin.partitions.reassign({place: (*replicas[1:], replicas[0])})
            await admin.partitions.elect_leaders(ElectionType.PREFERRED, [place])
        chronicle.end_operation(told, "asked", None)

    # reading

    async def _read_along(self) -> None:
        """Read committed records while producers write. When a record is read, its transaction must be committed."""
        seam = self.cluster.world.node(COMMITTED_READER)
        async with Consumer(
            bootstrap_servers=self.cluster.shape.bootstrap_servers, isolation_level="read_committed", seam=seam
        ) as consumer:
            await consumer.assign(self.places, at="earliest")
            self._whole_run_reader = consumer
            while True:
                try:
                    records = await consumer.poll(timeout_ms=1_000)
                except FAILURES:
                    await self.cluster.world.sleep_ms(AGAIN_MS)
                    continue
                for record in records:
                    self._take(record, "the reader")

    def _take(self, record: Any, reader: str) -> None:
        """Check that the transaction of a record that a read_committed reader got is committed (T6)."""
        place = (record.topic, record.partition)
        if reader == "the reader":
            self.along.setdefault(place, []).append((record.offset, record.value))
        owner = self._owners.get(record.value)
        if owner is None or not self.ledger.is_committed(owner.data):
            data = None if owner is None else owner.data
            text = f"{reader} of committed records got one whose commit is not decided"
            self.fail("T6", text, place, offset=record.offset, value=record.value, data=data)

    def copies(self, transaction: ClientTransaction, record: Any) -> bytes:
        """Return the value for a copy of this record. Check that the record's transaction is committed."""
        self._take(record, "the copier")
        value = b"%d of %s" % (transaction.number, record.value)
        self.sources[value] = record.value
        return value

    def offset_floors(self) -> dict[TopicPartition, int]:
        """Return the minimum of the group's offset for each partition: the highest offset whose commit was reported."""
        known: dict[TopicPartition, int] = {}
        for each in self.transactions:
            if each.outcome is ReportedOutcome.COMMITTED:
                known.update({place: max(known.get(place, 0), end) for place, end in each.offsets.items()})
        return known

    def offsets_read_back(self, floors: Mapping[TopicPartition, int], found: Mapping[TopicPartition, int]) -> None:
        """Check the group's offsets that a client received (T11). `floors` is the result of `offset_floors` from before
        the client's request."""
        due = {(place, end) for each in self.transactions for place, end in each.offsets.items()
               if self.ledger.is_committed(each.data)}  # fmt: skip
        for place, offset in sorted(found.items()):
            self.offsets_read += 1
            if offset < floors.get(place, 0):
                text = "a group's offset is below that of a committed transaction"
                self.fail("T11", text, place, offset=offset, floor=floors[place])
            if offset and (place, offset) not in due:
                self.fail("T11", "a group's offset is of no committed transaction", place, offset=offset)

    # the end

    async def finish(self) -> None:
        """End all producers, and wait until the coordinators have ended the open transactions. Then let a new producer
        of each id abort and commit transactions; the last producer copies the remaining records. At the end wait for
        the reader of the whole run."""
        if self._nursery is None:
            return
        for producers in self._ids:
            producers.stop()
        if not await self.cluster.wait_until(lambda: all(producers.is_over for producers in self._ids), STOP_MS_MAX):
            self.fail("L7", "a transactional producer did not come to its end")
            for producers in self._ids:
                producers.die()
        await self._wait_until_closed("after all faults")
        for producers in self._ids:
            # the copying producer, the last one, reads up to the end of the transactions that are complete
            await self._write_the_last(producers)
            await self._wait_until_closed("at the end")
        for place, stable, end in self._unstable():
            self.fail("L9", "the last stable offset stays below the high watermark", place, stable=stable, end=end)
        await self.cluster.wait_until(lambda: not self._unread(), CAUGHT_UP_MS_MAX)
        for place, position, end in self._unread():
            text = "the reader of the whole run did not reach the end"
            self.fail("L7", text, place, position=position, end=end)

    async def _wait_until_closed(self, when: str) -> None:
        await self.cluster.wait_until(lambda: not self._still_open(), CLOSED_MS_MAX)
        if still_open := self._still_open():
            self.fail("T7", "a transaction stays open", when=when, transactions=still_open)

    async def _write_the_last(self, producers: _ProducersOfOneId) -> None:
        producers.is_last = True
        producers.start()
        if not await self.cluster.wait_until(lambda: producers.is_over, LAST_MS_MAX):
            self.fail("L7", "a transaction after all faults did not end", transactional_id=producers.transactional_id)
            producers.die()
        elif not producers.has_succeeded:
            self.fail("L7", "a transaction after all faults failed", transactional_id=producers.transactional_id)

    def _still_open(self) -> list[str]:
        """Describe the transactions that are open, or decided and not complete, and the partitions whose leaders have
        open transactions."""
        found = [f"{each.transactional_id} in state {each.state}" for each in self.ledger.unfinished()]
        return found + [f"{place[0]}-{place[1]} from offset {stable}" for place, stable, _ in self._unstable()]

    def _unstable(self) -> list[tuple[TopicPartition, int, int]]:
        """Return (partition, last stable offset, high watermark) of each partition whose two offsets differ."""
        return [found for found in self._led() if found[1] < found[2]]

    def _unread(self) -> list[tuple[TopicPartition, int, int]]:
        """Return (partition, position, last stable offset) of each partition that the reader of the whole run has not
        read up to its last stable offset; -1 for an offset that is not known."""
        ends = {place: stable for place, stable, _ in self._led()}
        found = [(place, self._position(place), ends.get(place, -1)) for place in self.places]
        return [(place, position, end) for place, position, end in found if position < end or end < 0]

    def _position(self, place: TopicPartition) -> int:
        try:
            return -1 if self._whole_run_reader is None else self._whole_run_reader.position(place)
        except KafkaError:
            return -1

    def _led(self) -> list[tuple[TopicPartition, int, int]]:
        """Return (partition, last stable offset, high watermark) of each partition that has a leader, as the leader has
        them."""
        found = []
        for topic in self.cluster.image.topics:
            for index, state in topic.partitions():
                observer = self.cluster.watch.nodes.get(state.leader)
                node = None if observer is None else observer.node.broker
                partition = None if node is None else node.broker.replicas.find(topic.name, index)
                log = None if partition is None else partition.log
                if partition is not None and log is not None:
                    found.append(((topic.name, index), log.last_stable_offset, partition.high_watermark))
        return found

    async def judge(self) -> None:
        """Read all records with new readers, and check the whole history."""
        if self._nursery is None:
            return
        committed = await self._read_back("read_committed")
        everything = await self._read_back("read_uncommitted")
        history = TransactionHistory(
            self.transactions, self.along, committed, everything, await self._final_offsets(),
            frozenset(self.inputs), self.sources,
        )  # fmt: skip
        self.judged = len(self.transactions)
        for anomaly in judge_transactions(history, self.ledger):
            self.fail(anomaly.check, anomaly.text, anomaly.place, **anomaly.evidence)

    async def _final_offsets(self) -> dict[TopicPartition, int | None]:
        due = last_offsets(self.transactions, self.ledger)
        with trio.move_on_after(READ_MS_MAX / 1000):
            async with self._reader("read_committed") as consumer:
                found = await consumer.committed(self.inputs)
                return {place: None if at is None else at.offset for place, at in found.items()}
        self.fail("L7", "the group's offsets were not returned at the end", due=due)
        return {}

    def _reader(self, isolation_level: str) -> Consumer:
        seam = self.cluster.world.node(TRANSACTION_JUDGE)
        servers = self.cluster.shape.bootstrap_servers
        return Consumer(bootstrap_servers=servers, isolation_level=isolation_level, seam=seam, **READING)

    async def _read_back(self, isolation_level: str) -> dict[TopicPartition, list[tuple[int, bytes]]]:
        read: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        with trio.move_on_after(READ_MS_MAX / 1000) as scope:
            async with self._reader(isolation_level) as consumer:
                ends = await consumer.offsets(self.places)
                await consumer.assign(self.places, at="earliest")
                while any(consumer.position(place) < end for place, end in ends.items()):
                    for record in await consumer.poll(timeout_ms=1000):
                        assert record.value is not None
                        read.setdefault((record.topic, record.partition), []).append((record.offset, record.value))
        if scope.cancelled_caught:
            self.fail("L10", f"not all records could be read with {isolation_level}")
        return read


class _ProducersOfOneId:
    """The producers with one transactional id. `_present` is the newest producer, `_replaced` the one before it."""

    def __init__(self, work: TransactionWork, number: int) -> None:
        self.number = number
        self.transactional_id = f"{TRANSACTOR}-{number}"
        self.is_last = False
        """Whether the next producer of this id is the last one, after all faults."""
        self.has_succeeded = False
        """Whether the last producer has committed its last transaction, or copied all records."""
        self.causes = FencingCauses(work.cluster, TRANSACTION_TIMEOUT_MS)
        self._work = work
        self._hosts = TRANSACTORS[2 * number : 2 * number + 2]
        self._starts = 0
        self._present: _TransactionalProducer | None = None
        self._replaced: _TransactionalProducer | None = None
        self._is_stopped = False

    @property
    def is_over(self) -> bool:
        return all(each is None or each.is_over for each in (self._present, self._replaced))

    async def run(self) -> None:
        """Start the first producer, and another one whenever the present producer has ended. Return after `stop`."""
        while not self._is_stopped:
            if self._present is None or self._present.is_over:
                self.start()
            await self._work.cluster.world.sleep_ms(AGAIN_MS)

    def start(self) -> None:
        """Start another producer. The present producer continues until its operations are done; the producer that was
        replaced before it is killed."""
        if self._replaced is not None:
            self._replaced.die()
        self._replaced = self._present
        self._present = _TransactionalProducer(self._work, self, self._hosts[self._starts % 2])
        self._starts += 1
        self._work.start(self._present)

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


class _TransactionalProducer:
    """One producer with a transactional id, and the application that uses it."""

    def __init__(self, work: TransactionWork, producers: _ProducersOfOneId, host: str) -> None:
        self.is_replaced = False
        self.is_ending = False
        self.is_over = False
        self._work = work
        self._producers = producers
        self._host = host
        self._world = work.cluster.world
        self._random = self._world.random.stream(f"{host} {work.cluster.world.host(host).lives}")
        self._operations: deque[PlannedOperation] = deque()
        self._scope = trio.CancelScope()
        self._is_dead = False
        self._consumer: Consumer | None = None
        self._machine: TransactionMachine | None = None
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
                self._report_fatal_error()  # `_ProducersOfOneId.run` starts another producer
            except Exception as problem:  # noqa: BLE001 - a finding, unless the host was killed
                self._report_end(problem)
            except BaseExceptionGroup:
                if not self._is_dead:
                    raise
        self.is_over = True

    def _report_end(self, problem: Exception) -> None:
        if not self._is_dead:
            name = self._producers.transactional_id
            self._work.fail("L7", "a transactional producer came to its end", transactional_id=name, why=repr(problem))

    def _report_fatal_error(self) -> None:
        """Report a fatal error of the producer (as of one that is fenced), unless the error may have a cause."""
        machine = self._machine
        if self._is_dead or machine is None or machine.state is not ProducerTransactionState.FATAL_ERROR:
            return
        if not self.is_replaced and not self._producers.causes.has_any(self._begun_ms):
            name = self._producers.transactional_id
            identity = (machine.identity.producer_id, machine.identity.producer_epoch)
            text = "a transactional producer has a fatal error without a cause"
            self._work.fail("L7", text, transactional_id=name, identity=identity, why=repr(machine.error))

    async def _live(self) -> None:
        work, servers = self._work, self._work.cluster.shape.bootstrap_servers
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
            with self._producers.causes.initializing():
                await producer.init_transactions()
            if self._producers.number != COPIER:
                await (self._write_the_last(producer) if self._producers.is_last else self._work_off(producer))
                return
            async with Consumer(
                bootstrap_servers=servers, client_id=self._host, isolation_level="read_committed", seam=seam, **READING
            ) as self._consumer:
                floors = work.offset_floors()
                found = await self._consumer.committed(work.inputs)
                starts = {place: 0 if at is None else at.offset for place, at in found.items()}
                work.offsets_read_back(floors, starts)
                await self._consumer.assign(work.inputs, at=starts)
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
        self._producers.has_succeeded = self._work.transactions[-1].outcome is ReportedOutcome.COMMITTED

    async def _copy_the_rest(self, producer: Producer, consumer: Consumer) -> None:
        ends = await consumer.offsets(self._work.inputs)
        await self._transact(producer, PlannedOperation(0, ABORT_TRANSACTION))
        while any(consumer.position(place) < end for place, end in ends.items()):
            await self._transact(producer, PlannedOperation(0, COMMIT_TRANSACTION))
        self._producers.has_succeeded = True

    async def _transact(self, producer: Producer, operation: PlannedOperation) -> None:
        """Write one transaction, and commit or abort it as the operation says. Abort it after an abortable error."""
        records = await self._poll()
        await producer.begin_transaction()
        assert self._machine is not None
        identity = self._machine.identity
        self._begun_ms = self._world.now_ns // 1_000_000
        transaction = self._work.begun(
            self._producers.transactional_id, (identity.producer_id, identity.producer_epoch)
        )
        chronicle = self._work.cluster.watch.chronicle
        told = chronicle.begin_operation(self._host, f"{operation.verb} {transaction.number}")
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
        if outcome is ReportedOutcome.ABORTED and self._consumer is not None:
            self._seek_back(records)

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
        work, amount = self._work, operation.amount
        if self._consumer is None:
            for number in range(1 + amount % RECORDS_MAX):
                place = work.inputs[(amount // RECORDS_MAX * (number + 1)) % len(work.inputs)]
                value = f"{self._producers.transactional_id}/{transaction.number}/{number}".encode()
                if number:
                    await self._be_late()
                await producer.enqueue(place[0], value, partition=place[1])
                work.queued(transaction, value, place)
            return
        for record in records:
            place = (COPIES, record.partition % PARTITIONS[COPIES])
            value = work.copies(transaction, record)
            await producer.enqueue(place[0], value, partition=place[1])
            work.queued(transaction, value, place)
        offsets = {(record.topic, record.partition): record.offset + 1 for record in records}
        if offsets:
            await self._be_late()
            transaction.offsets.update(offsets)
            await producer.send_offsets(offsets, self._consumer.group_metadata())

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
