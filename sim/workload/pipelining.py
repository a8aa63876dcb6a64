"""Lets a transactional producer of a run pipeline its batches as Kafka's client does.

pykraft's producer sends the first batch of a sequence alone. Kafka's producer does not: several batches of a new
transaction reach the leader while the first one waits for the transaction coordinator. The leader must append them in
order. A batch that was sent in order and once must not be rejected as out of order (L7).
Source: KIP-98, KIP-890, Kafka's TransactionManager and RecordAccumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kraft.client import DeliveryFailed, Producer
from kraft.client.core.batch import OutgoingBatch, ProducerIdentity
from kraft.client.core.partition_queue import PartitionQueue
from kraft.client.core.records import TopicPartition
from kraft.client.core.transaction import TransactionMachine
from kraft.client.delivery import Delivery
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.shape import host_name
from kraft.sim.workload.transaction_recorder import PARTITIONS, PIPELINED
from kraft.sim.world.chance import NamedRandom, between
from kraft.wire.error_codes import ErrorCode

OnEarlyBatch = Callable[[], None]
"""Function that is called for each batch that is sent while the first one of its sequence is not acknowledged."""

PIPELINED_PLACES = tuple((PIPELINED, index) for index in range(PARTITIONS[PIPELINED]))
COUNT = (2, 16)
"""Minimum and maximum number of batches of a transaction."""
VALUE_BYTES = 700
"""Size of the only record of each batch: two of them do not fit into one batch."""
PAUSE_NS_MAX = 500_000
"""Maximum pause between two requests: about as long as a leader waits for the coordinator."""


class PipelinedQueue(PartitionQueue):
    """A queue that also sends batches while the first one of their sequence is in flight, if the transaction is one of
    transaction.version 2. Below that level a broker without state of the producer may accept a later batch first."""

    __slots__ = ("_is_known", "_machine", "_sent_early")

    def __init__(self, topic_partition: TopicPartition, machine: TransactionMachine, sent_early: OnEarlyBatch) -> None:
        self._machine = machine
        self._sent_early = sent_early
        self._is_known = False
        super().__init__(topic_partition)

    @property
    def is_known(self) -> bool:
        return self._is_known or self._machine.is_v2

    @is_known.setter
    def is_known(self, value: bool) -> None:
        self._is_known = value

    def take(self, identity: ProducerIdentity, route: object) -> OutgoingBatch:
        is_early = any(not batch.base_sequence for batch in self.in_flight)
        batch = super().take(identity, route)
        if is_early and batch.base_sequence:
            self._sent_early()
        return batch


def pipeline(producer: Producer, sent_early: OnEarlyBatch) -> None:
    """Let the producer pipeline its batches for the partitions of PIPELINED. It must not have sent any yet."""
    assert producer._transactions is not None
    for place in PIPELINED_PLACES:
        producer._accumulator._queues[place] = PipelinedQueue(place, producer._transactions.machine, sent_early)


class DrawnBatch(NamedTuple):
    """A batch with one record, and the pause after it."""

    place: TopicPartition
    value: bytes
    pause_ns: int


def draw_batches(cluster: SimCluster, random: NamedRandom, name: str) -> Iterator[DrawnBatch]:
    """Yield the batches of one transaction: one for a partition, and then pairs for that partition and another one with
    the same leader. So a request with one partition is followed by requests with both, for which the leader asks the
    coordinator again. Values begin with `name`."""
    first, second = _led_together(cluster, random.below(len(PIPELINED_PLACES)))
    for number in range(between(random, *COUNT)):
        is_last_of_pair = number % 2 == 0
        yield DrawnBatch(
            second if number and is_last_of_pair else first,
            f"{name}/{number} ".encode().ljust(VALUE_BYTES),
            1 + random.below(PAUSE_NS_MAX) if is_last_of_pair else 0,
        )


def _led_together(cluster: SimCluster, first: int) -> tuple[TopicPartition, TopicPartition]:
    """Return partition `first`, and another one with the same leader; if there is none, any other one."""
    others = [*PIPELINED_PLACES[first + 1 :], *PIPELINED_PLACES[:first]]
    topic = cluster.image.topics.get(PIPELINED)
    if topic is not None:
        leader = topic.partition(first).leader
        others.sort(key=lambda place: topic.partition(place[1]).leader != leader)
    return PIPELINED_PLACES[first], others[0]


def out_of_order(deliveries: Iterable[Delivery], cluster: SimCluster) -> DeliveryFailed | None:
    """Return the failure of a batch that a broker rejected as out of order without a cause; None if there is none.

    A batch that was sent again has a cause if a broker has restarted: a restarted broker, like Kafka's, remembers only
    the last batch of each producer."""
    hosts = (cluster.world.host(host_name(broker)) for broker in cluster.shape.broker_ids)
    has_restarted = any(host.lives > 1 for host in hosts)
    for delivery in deliveries:
        outcome = delivery.outcome
        is_rejected = isinstance(outcome, DeliveryFailed) and outcome.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if isinstance(outcome, DeliveryFailed) and is_rejected and (outcome.certain or not has_restarted):
            return outcome
    return None
