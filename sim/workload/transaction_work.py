"""Transactional producers, and readers of what they write.

Two producers write a few records to several partitions in each transaction, and commit or abort it. A third producer
reads the committed records of the first two, writes a copy of each, and commits its position in the same transaction.
Each producer may be replaced by another with the same transactional id while it still runs. It may be killed, and it
may keep a transaction open until the coordinator aborts it.

After the faults the third producer copies the remaining records. Then no transaction may stay open. The reported
outcomes and all records that were read are checked as one history (`kraft.sim.check.transactions.histories`).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import trio

from kraft.client import (
    Consumer,
    KafkaError,
)
from kraft.client.admin import Admin, ElectionType, FeatureChange
from kraft.image.image import TRANSACTION_FEATURE
from kraft.sim.check.observations import TopicPartition
from kraft.sim.check.transactions.histories import (
    TransactionHistory,
    judge_transactions,
    last_offsets,
)
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import (
    COMMITTED_READER,
    COORDINATOR_MOVER,
    MOVE_COORDINATOR,
    RAISE_TRANSACTION_VERSION,
    TRANSACTION_JUDGE,
    TRANSACTION_VERSION_MAX,
    TRANSACTOR,
    PlannedOperation,
)
from kraft.sim.workload.planned_requests import make_requests
from kraft.sim.workload.transaction_recorder import INPUTS, PARTITIONS, TransactionRecorder
from kraft.sim.workload.transactional_producers import (
    AGAIN_MS,
    COPIER,
    FAILURES,
    READING,
    TRANSACTION_TIMEOUT_MS,
    ProducersOfOneId,
    TransactionalProducer,
)

TRANSACTION_TOPIC, OFFSETS_TOPIC = "__transaction_state", "__consumer_offsets"
ADMIN_VERBS = (MOVE_COORDINATOR, RAISE_TRANSACTION_VERSION)
"""Operations that no producer carries out."""
LEVEL_MS_MAX = 20_000
"""Maximum time in ms until all brokers have a new level of transaction.version."""
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


class TransactionWork:
    """All transactional producers and readers of a run."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.recorder = TransactionRecorder(cluster)
        self.places = [(topic, index) for topic, count in PARTITIONS.items() for index in range(count)]
        self.judged = 0
        """Number of transactions in the history that was checked."""
        self._whole_run_reader: Consumer | None = None
        """The consumer that reads committed records during the whole run; None before it starts."""
        self._ids = [ProducersOfOneId(self.recorder, number, self._start) for number in range(COPIER + 1)]
        self._nursery: trio.Nursery | None = None

    # work

    async def run(self, work: Iterable[PlannedOperation]) -> None:
        """Let producers carry out the operations of a plan, each at its time. Run until cancelled."""
        world, start_ns = self.cluster.world, self.cluster.world.now_ns
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._read_along)
            for producers in self._ids:
                self._nursery.start_soon(producers.run)
            every = tuple(work)
            requests = [operation for operation in every if operation.verb in ADMIN_VERBS]
            self._nursery.start_soon(make_requests, self.cluster, COORDINATOR_MOVER, requests, self._administrate)
            for operation in every:
                await world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
                if operation.verb not in ADMIN_VERBS:
                    self._ids[operation.target % len(self._ids)].take(operation)
            await trio.sleep_forever()

    def _start(self, incarnation: TransactionalProducer) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(incarnation.live)

    async def set_version(self, level: int) -> None:
        """Finalize this level of transaction.version before the producers start, and wait until all brokers have it."""
        if level == TRANSACTION_VERSION_MAX:
            return
        servers, seam = self.cluster.shape.bootstrap_servers, self.cluster.world.node(COORDINATOR_MOVER)
        async with Admin(bootstrap_servers=servers, seam=seam) as admin:
            await admin.nodes.update_features({TRANSACTION_FEATURE: level}, change=FeatureChange.SAFE_DOWNGRADE)
        if not await self.cluster.wait_until(lambda: self._levels() == {level}, LEVEL_MS_MAX):
            self.recorder.fail("L3", "brokers did not get the level of transaction.version", levels=self._levels())

    def _levels(self) -> set[int]:
        """Return the levels of transaction.version that the running brokers have."""
        observers = (self.cluster.watch.nodes.get(broker) for broker in self.cluster.shape.broker_ids)
        images = [observer.node.publisher.image for observer in observers if observer is not None]
        return {image.features.get(TRANSACTION_FEATURE, 0) for image in images}

    async def _administrate(self, cluster: SimCluster, admin: Admin, operation: PlannedOperation) -> None:
        if operation.verb == MOVE_COORDINATOR:
            await self._move_coordinator(cluster, admin, operation)
            return
        chronicle = cluster.watch.chronicle
        told = chronicle.begin_operation(TRANSACTOR, f"raises {TRANSACTION_FEATURE}")
        with suppress(*FAILURES):
            await admin.nodes.update_features({TRANSACTION_FEATURE: TRANSACTION_VERSION_MAX})
        chronicle.end_operation(told, "asked", None)

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
                    self.recorder.read_along(record)

    # the end

    async def finish(self) -> None:
        """End all producers, and wait until the coordinators have ended the open transactions. Then let a new producer
        of each id abort and commit transactions; the last producer copies the remaining records. At the end wait for
        the reader of the whole run."""
        if self._nursery is None:
            return
        fail = self.recorder.fail
        for producers in self._ids:
            producers.stop()
        if not await self.cluster.wait_until(lambda: all(producers.is_over for producers in self._ids), STOP_MS_MAX):
            fail("L7", "a transactional producer did not come to its end")
            for producers in self._ids:
                producers.die()
        await self._wait_until_closed("after all faults")
        for producers in self._ids:
            # the copying producer, the last one, reads up to the end of the transactions that are complete
            await self._write_the_last(producers)
            await self._wait_until_closed("at the end")
        for place, stable, end in self._unstable():
            self.recorder.fail(
                "L9", "the last stable offset stays below the high watermark", place, stable=stable, end=end
            )
        await self.cluster.wait_until(lambda: not self._unread(), CAUGHT_UP_MS_MAX)
        for place, position, end in self._unread():
            text = "the reader of the whole run did not reach the end"
            fail("L7", text, place, position=position, end=end)

    async def _wait_until_closed(self, when: str) -> None:
        await self.cluster.wait_until(lambda: not self._still_open(), CLOSED_MS_MAX)
        if still_open := self._still_open():
            self.recorder.fail("T7", "a transaction stays open", when=when, transactions=still_open)

    async def _write_the_last(self, producers: ProducersOfOneId) -> None:
        producers.is_last = True
        producers.start()
        if not await self.cluster.wait_until(lambda: producers.is_over, LAST_MS_MAX):
            self.recorder.fail(
                "L7", "a transaction after all faults did not end", transactional_id=producers.transactional_id
            )
            producers.die()
        elif not producers.has_succeeded:
            self.recorder.fail(
                "L7", "a transaction after all faults failed", transactional_id=producers.transactional_id
            )

    def _still_open(self) -> list[str]:
        """Describe the transactions that are open, or decided and not complete, and the partitions whose leaders have
        open transactions."""
        found = [f"{each.transactional_id} in state {each.state}" for each in self.recorder.ledger.unfinished()]
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
                log = None if partition is None else partition.readable
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
            self.recorder.transactions, self.recorder.along, committed, everything, await self._final_offsets(),
            frozenset(INPUTS), self.recorder.sources,
        )  # fmt: skip
        self.judged = len(self.recorder.transactions)
        for anomaly in judge_transactions(history, self.recorder.ledger):
            self.recorder.fail(anomaly.check, anomaly.text, anomaly.place, **anomaly.evidence)

    async def _final_offsets(self) -> dict[TopicPartition, int | None]:
        due = last_offsets(self.recorder.transactions, self.recorder.ledger)
        with trio.move_on_after(READ_MS_MAX / 1000):
            async with self._reader("read_committed") as consumer:
                found = await consumer.committed(INPUTS)
                return {place: None if at is None else at.offset for place, at in found.items()}
        self.recorder.fail("L7", "the group's offsets were not returned at the end", due=due)
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
            self.recorder.fail("L10", f"not all records could be read with {isolation_level}")
        return read
