"""The clients of a run and what is guaranteed to them: producers, a consumer that reads during the run, and a final
reader.

The plan contains what they send, and when.

At the end their whole history is checked (`kraft.sim.check.histories.client_histories`). A record that was acknowledged
with acks=all must be read by the final reader. A record of an idempotent producer is read once. A record that was read
before is read again, at the same offset. A consumer skips nothing and never goes back. A value that was never sent is
never read. The producer with acks=1 has no guarantees: it leaves uncommitted tails in the logs of leaders that die. The
records of small topics are checked like all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import trio

from kraft.client import Consumer, Producer
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import DeliveryFailed, KafkaError, TopicPartition
from kraft.client.producer import Delivery
from kraft.seam import Seam
from kraft.sim.check.histories.client_histories import Dropped, Poll, Reading, SendOutcome, SentValue, judge
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import host_name
from kraft.sim.nemesis.plan import (
    CLOSED_LOOP,
    CONSUMER,
    CREATE_SMALL,
    EXTRA,
    IDEMPOTENT,
    LOOSE,
    PARTITIONS,
    PLAIN,
    REREADER,
    SEND_TOO,
    SMALL_TOPICS,
    TOPIC,
    Plan,
    PlannedOperation,
)
from kraft.sim.workload.refusals import Refusals
from kraft.sim.workload.small_topics import SmallTopics, name_of
from kraft.wire.error_codes import ErrorCode

REQUEST_TIMEOUT_MS = 5_000
DELIVERY_TIMEOUT_MS = 120_000
EXTRA_WAIT_MS = 500
READ_AGAIN_MS_MAX = 15_000
REFUSED_PAUSE_MS = 100
VALUE_SHOWN = 24
"""Maximum number of bytes of a value that a finding shows."""
ACKS = MappingProxyType({IDEMPOTENT: "all", PLAIN: "all", LOOSE: "1", CLOSED_LOOP: "all", SMALL_TOPICS: "all"})
EXACTLY_ONCE = (IDEMPOTENT, CLOSED_LOOP, SMALL_TOPICS)
"""Names of the idempotent producers."""
FINAL = "final reader"


@dataclass(slots=True)
class ProducerRecords:
    """Records that one producer sent, in order: (value, partition, its delivery)."""

    name: str
    records: list[tuple[bytes, TopicPartition, Delivery]] = field(default_factory=list)


@dataclass(slots=True)
class ReaderRecords:
    """Records that one reader received: partition → offset → value."""

    records: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    due: dict[TopicPartition, int] = field(default_factory=dict)
    """Partition → offset of the next record to read."""

    @property
    def count(self) -> int:
        return sum(map(len, self.records.values()))

    def polls(self) -> list[Reading]:
        """Return the records as one poll of each partition."""
        return [Poll(place, list(records.items())) for place, records in self.records.items()]


class Workload:
    """All clients of one run. `stop` ends sending and reading; deliveries in flight continue."""

    def __init__(self, cluster: SimCluster, plan: Plan) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.partitions = [(TOPIC, index) for index in range(PARTITIONS)]
        self.sent = {name: ProducerRecords(name) for name in ACKS if name in plan.work}
        self.small_topics = SmallTopics(cluster)
        self.read_along = ReaderRecords()
        self.reread = ReaderRecords()
        self._rounds: list[Reading] = []
        """Records that the reader of old records received, one entry for each round in which it reads from the start.
        """
        self.refusals = Refusals(cluster, self.partitions)
        self.judged: Counter[str] = Counter()
        """Invariant → number of values in the clients' history that could have violated it."""
        self._bootstrap = cluster.shape.bootstrap_servers
        self._plan = plan
        self._stopped = False
        self._finished = trio.Event()

    # writing

    async def run(self) -> None:
        """Send and read until stopped, then wait until every delivery has ended."""
        async with trio.open_nursery() as nursery:
            if CONSUMER in self._plan.work:
                nursery.start_soon(self._read_along)
            if REREADER in self._plan.work:
                nursery.start_soon(self._read_again_and_again)
            async with trio.open_nursery() as senders:
                for name in self.sent:
                    senders.start_soon(self._send, name)
            self._finished.set()
            nursery.cancel_scope.cancel()

    def stop(self) -> None:
        self._stopped = True

    @property
    def is_settled(self) -> bool:
        return self._finished.is_set()

    async def _send(self, name: str) -> None:
        start_ns, seam = self.world.now_ns, self.world.node(name)
        async with Producer(
            bootstrap_servers=self._bootstrap,
            client_id=name,
            acks=ACKS[name],
            enable_idempotence=name in EXACTLY_ONCE,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            compression_type=self._plan.compression,
            batch_size=self._plan.batch_bytes,
            seam=seam,
        ) as producer:
            for operation in await self._sends(name, seam):
                if operation.verb != SEND_TOO:
                    await self.world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
                if self._stopped:
                    break
                await self._send_one(name, producer, operation)

    async def _sends(self, name: str, seam: Seam) -> tuple[PlannedOperation, ...]:
        """Yield what this producer sends, once its partitions exist."""
        work = self._plan.work[name]
        if name != SMALL_TOPICS:
            return work
        wanted = {operation.target: operation.amount for operation in work if operation.verb == CREATE_SMALL}
        await self.small_topics.create(seam, wanted, is_over=lambda: self._stopped)
        return tuple(
            each for each in work if each.verb != CREATE_SMALL and name_of(each.target) in self.small_topics.created
        )

    async def _send_one(self, name: str, producer: Producer, operation: PlannedOperation) -> None:
        sent, place = self.sent[name].records, self._place(name, operation)
        value = f"{name}/{len(sent)}".encode() + bytes(operation.amount)
        delivery = await producer.enqueue(place[0], value, partition=place[1])
        sent.append((value, place, delivery))
        self._tell(name, value, place, delivery)
        if name == CLOSED_LOOP:
            await delivery.settled()

    @staticmethod
    def _place(name: str, operation: PlannedOperation) -> TopicPartition:
        return (name_of(operation.target), 0) if name == SMALL_TOPICS else (TOPIC, operation.target)

    def _tell(self, name: str, value: bytes, place: TopicPartition, delivery: Delivery) -> None:
        """Record a send and its outcome in the chronicle of the run."""
        chronicle = self.cluster.watch.chronicle
        shown = value.rstrip(b"\0").decode()
        told = chronicle.begin_operation(name, f"{shown} to {place[0]}-{place[1]}")

        def settled() -> None:
            outcome = delivery.outcome
            if isinstance(outcome, DeliveryFailed):
                chronicle.end_operation(told, f"failed: {outcome}", False)
            elif outcome is not None:
                chronicle.end_operation(told, f"stands at offset {outcome.offset}", True)

        delivery.batch.when_settled(settled)

    # reading

    async def _read_along(self) -> None:
        async with Consumer(bootstrap_servers=self._bootstrap, seam=self.world.node("consumer")) as consumer:
            await consumer.assign(self.partitions, at="earliest")
            while True:
                self._take(self.read_along, await self._poll(consumer, CONSUMER), "the consumer")

    async def _poll(self, consumer: Consumer, reader: str) -> list[Any]:
        """Poll a reader once. A corrupt batch is requested again until a replica serves it intact, which must not take
        long."""
        try:
            records = await consumer.poll()
        except KafkaError as problem:
            if problem.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            self.refusals.refused(reader, str(problem))
            await self.world.sleep_ms(REFUSED_PAUSE_MS)
            return []
        self.refusals.given(reader, {(record.topic, record.partition) for record in records})
        return records

    async def _read_again_and_again(self) -> None:
        start_ns = self.world.now_ns
        for operation in self._plan.work[REREADER]:
            await self.world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
            with suppress(KafkaError, ClusterUnreachable, *CONNECTION_FAILURES):
                await self._read_again(self.partitions[operation.target])

    async def _read_again(self, place: TopicPartition) -> None:
        """Read from the start to the present end, as far as the time allows."""
        read, refused = ReaderRecords(), self.refusals.count
        chronicle = self.cluster.watch.chronicle
        told = chronicle.begin_operation(REREADER, f"reads {place[0]}-{place[1]} again")
        self.refusals.begin(REREADER)
        with trio.move_on_after(READ_AGAIN_MS_MAX / 1000):
            async with Consumer(bootstrap_servers=self._bootstrap, seam=self.world.node(REREADER)) as consumer:
                end = (await consumer.offsets([place]))[place]
                await consumer.assign([place], at="earliest")
                while consumer.position(place) < end:
                    self._take(read, await self._poll(consumer, REREADER), "the rereader")
        refused = self.refusals.count - refused
        chronicle.end_operation(told, f"{read.count} records, {refused} refusals", None if refused else True)
        self._rounds += [Dropped([place]), *read.polls()]
        known = self.reread.records.setdefault(place, {})
        for offset, value in read.records.get(place, {}).items():
            if known.setdefault(offset, value) != value:
                self._fail("D10", "a record was read as another one", place, offset=offset, value=value)

    async def read_back(self, timeout_ms: int) -> ReaderRecords:
        """Read all records with a new consumer, as far as the time allows."""
        read, places = ReaderRecords(), [*self.partitions, *((name, 0) for name in self.small_topics.existing())]
        with trio.move_on_after(timeout_ms / 1000):
            async with Consumer(bootstrap_servers=self._bootstrap, seam=self.world.node("reader")) as consumer:
                ends = await consumer.offsets(places)
                await consumer.assign(places, at="earliest")
                while any(consumer.position(place) < end for place, end in ends.items()):
                    self._take(read, await consumer.poll(timeout_ms=1000), "the final reader")
        return read

    def _take(self, read: ReaderRecords, records: list[Any], reader: str) -> None:
        for record in records:
            place = (record.topic, record.partition)
            due = read.due.get(place, 0)
            if record.offset != due:
                self._fail("C2", f"{reader} was not given the next offset", place, offset=record.offset, due=due)
            read.due[place] = max(due, record.offset + 1)
            read.records.setdefault(place, {})[record.offset] = record.value

    def _fail(self, check: str, text: str, place: TopicPartition, **evidence: Any) -> None:
        facts = {name: fact[:VALUE_SHOWN] if isinstance(fact, bytes) else fact for name, fact in evidence.items()}
        self.cluster.report.fail(check, text, partition=place, **facts)

    # checks at the end of the run

    def judge(self, final: ReaderRecords) -> None:
        """Compare what was acknowledged with what the final reader received."""
        for name, sent in self.sent.items():
            if ACKS[name] == "all":
                self._judge_deliveries(sent)
        judgement = judge(list(self._history_of_sends()), self._readings(final), FINAL)
        self.judged = judgement.seen
        for anomaly in judgement.anomalies:
            self._fail(anomaly.check, anomaly.text, anomaly.place, **anomaly.evidence)
        self.small_topics.judge()

    def _judge_deliveries(self, sent: ProducerRecords) -> None:
        """Check that each delivery ends successfully."""
        for value, place, delivery in sent.records:
            outcome = delivery.outcome
            if outcome is None:
                self._fail("L7", "a record was neither delivered nor given up", place, value=value)
            elif isinstance(outcome, DeliveryFailed) and not self._is_forgotten(outcome):
                self._fail("L7", "a delivery failed", place, value=value, why=str(outcome))

    def _is_forgotten(self, failed: DeliveryFailed) -> bool:
        """Return whether a failed delivery is excused: a restarted broker, like Kafka's, no longer knows all but the
        last batch of a producer. It rejects all but the last of several batches that were in flight and are retried;
        the producer reports that they may be in the log."""
        hosts = (self.world.host(host_name(broker)) for broker in self.cluster.shape.broker_ids)
        is_out_of_order = failed.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not failed.certain
        return is_out_of_order and any(host.lives > 1 for host in hosts)

    def _history_of_sends(self) -> Iterator[SentValue]:
        for name, sent in self.sent.items():
            for value, place, delivery in sent.records:
                told, offset = delivery.outcome, -1
                if isinstance(told, DeliveryFailed):
                    outcome = SendOutcome.FAILED if told.certain else SendOutcome.UNKNOWN
                elif told is None:
                    outcome = SendOutcome.UNKNOWN
                else:
                    outcome, offset = SendOutcome.ACKNOWLEDGED, told.offset
                yield SentValue(name, place, value, outcome, offset, ACKS[name] == "all", name in EXACTLY_ONCE)

    def _readings(self, final: ReaderRecords) -> dict[str, list[Reading]]:
        """Yield what each reader received. The reader of old records starts from the beginning in each round."""
        return {CONSUMER: self.read_along.polls(), REREADER: self._rounds, FINAL: final.polls()}

    @property
    def acknowledged(self) -> int:
        """Number of records that were acknowledged with acks=all."""
        return sum(self.acknowledged_of(name) for name in self.sent if ACKS[name] == "all")

    def acknowledged_of(self, name: str) -> int:
        """Return how many records of the producer with this name were acknowledged; 0 if there is no such producer."""
        sent = self.sent.get(name)
        return sum(
            delivery.outcome is not None and not isinstance(delivery.outcome, DeliveryFailed)
            for _, _, delivery in (() if sent is None else sent.records)
        )


async def write_extra(cluster: SimCluster, living: Mapping[str, object], plan: Plan) -> None:
    """Write records to the topics of the administrator that exist, until cancelled. No client is guaranteed their
    content; the checks observe the logs."""
    world, start_ns = cluster.world, cluster.world.now_ns
    async with Producer(
        bootstrap_servers=cluster.shape.bootstrap_servers,
        client_id=EXTRA,
        enable_idempotence=False,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        delivery_timeout_ms=REQUEST_TIMEOUT_MS,
        seam=world.node(EXTRA),
    ) as producer:
        for operation in plan.work[EXTRA]:
            if operation.verb != SEND_TOO:
                await world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
            names = list(living)
            if names:
                with trio.move_on_after(EXTRA_WAIT_MS / 1000), suppress(KafkaError):
                    await producer.enqueue(names[operation.target % len(names)], bytes(operation.amount))
