"""Mutations of clients: B64 to B69."""

from __future__ import annotations

from typing import Any

from kraft.client.cluster import Cluster
from kraft.client.core.accumulator import Accumulator
from kraft.client.core.assigned import Assignment, ConsumerPartition, _committed
from kraft.client.core.batch import OutgoingBatch
from kraft.client.core.fetched import FetchedBytes
from kraft.client.core.partition_queue import PartitionQueue
from kraft.client.core.topology import LeaderAndEpoch
from kraft.wire.error_codes import ErrorCode
from tests.bugbank import client_schedules as play
from tests.bugbank.mutation import bug
from tests.bugbank.originals import Planting

PART = "Clients"


@bug(
    "B64",
    "after OUT_OF_ORDER_SEQUENCE batches in doubt leave again under a new epoch",
    part=PART,
    expected=("T1",),
    directed=play.an_answer_is_lost_and_the_leader_changes,
    swarm=play.producers,
)
def new_identity_in_doubt(plant: Planting) -> None:
    original = Accumulator.answered

    def twin(self: Accumulator, batch: OutgoingBatch, code: ErrorCode, **options: Any) -> None:
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            batch.in_doubt = batch.was_in_doubt = False
        original(self, batch, code, **options)

    restart = PartitionQueue.restart

    def without_doubt(self: PartitionQueue) -> list[OutgoingBatch]:
        restart(self)
        return []

    plant.replace(Accumulator, "answered", twin)
    plant.replace(PartitionQueue, "restart", without_doubt)


@bug(
    "B65",
    "a batch that failed goes behind later ones",
    part=PART,
    # D1: a batch reuses a sequence number, is taken for a duplicate, and so is acknowledged and not written.
    expected=("C1", "D1"),
    directed=play.retries_with_a_queue,
    swarm=play.producers,
)
def retry_overtakes(plant: Planting) -> None:
    plant.replace(PartitionQueue, "_insert", lambda self, batch: self.waiting.append(batch))

    original = PartitionQueue.take

    def twin(self: PartitionQueue, identity: Any, route: object) -> OutgoingBatch:
        """Assign sequence numbers when batches are sent, as if no batch were in flight."""
        sent = [batch.base_sequence for batch in self.waiting if batch.base_sequence >= 0]
        if sent and not self.in_flight:
            self._next_sequence = min(sent)
            for batch in self.waiting:
                batch.base_sequence = -1
        return original(self, identity, route)

    plant.replace(PartitionQueue, "take", twin)


@bug(
    "B66",
    "auto-commit commits what was fetched",
    part=PART,
    expected=("C5",),
    directed=play.a_client_dies_before_it_processed_its_records,
    swarm=play.consumers,
)
def commit_ahead(plant: Planting) -> None:
    def twin(self: Assignment) -> dict[Any, Any]:
        return {tp: _committed(a.fetch) for tp, a in self.partitions.items() if a.fetch is not None}

    plant.replace(Assignment, "consumed", twin)


@bug(
    "B67",
    "the answer to a fetch from before a seek is taken in",
    part=PART,
    expected=("C2",),
    directed=play.a_seek_while_a_fetch_is_on_its_way,
    no_swarm="the swarm has no requests that are under way",
)
def stale_fetch(plant: Planting) -> None:
    original = ConsumerPartition._drop

    def twin(self: ConsumerPartition) -> None:
        original(self)
        self.version -= 1

    plant.replace(ConsumerPartition, "_drop", twin)


@bug(
    "B68",
    "an entry of the aborted list is dropped at the first marker",
    part=PART,
    expected=("T6",),
    directed=play.short_transactions_in_one_fetch,
    swarm=play.transactions,
)
def aborted_list_too_early(plant: Planting) -> None:
    original = FetchedBytes._is_visible

    def twin(self: FetchedBytes, header: Any) -> bool:
        visible = original(self, header)
        if header.is_control:
            self._aborted = [entry for entry in self._aborted if entry[0] != header.producer_id]
        return visible

    plant.replace(FetchedBytes, "_is_visible", twin)


@bug(
    "B69",
    "older metadata are believed",
    part=PART,
    expected=("C3", "L7"),
    directed=play.a_paused_broker_reports_old_metadata,
    swarm=play.metadata,
)
def old_metadata_win(plant: Planting) -> None:
    def twin(self: Cluster, topic_partition: Any, leader: LeaderAndEpoch) -> None:
        self._leaders[topic_partition] = leader

    plant.replace(Cluster, "_learn_from_metadata", twin)


@bug(
    "B69b",
    "the lower epochs of a topic that was created again are refused for ever",
    part=PART,
    expected=("C3", "L7"),
    directed=play.a_topic_is_created_again,
    swarm=play.metadata,
)
def recreated_topic_refused(plant: Planting) -> None:
    plant.replace(Cluster, "_forget_topic", lambda self, name: None)
