"""Produce of transactions by itself: requests to the coordinator, batches that wait, the effect of each response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft.broker.api.produce.handle_produce import ProduceHandler
from kraft.broker.api.produce.pending_produce import ProducePorts
from kraft.broker.txn.requests import AddRequest, VerifyRequest
from kraft.image.partitions import PartitionState
from kraft.storage.append import AppendOrigin
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.produce import ProduceResult, decode_produce_response, encode_produce_request
from kraft.wire.records import read_header
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, encode_control
from tests.stages.images import ORDERS, image_of, orders, three_brokers
from tests.stages.led_replica import TOPIC, LedReplica, OneConnection
from tests.stages.part_stage import PartStage, play
from tests.stages.plane import EPOCH_MS, batch

VERIFIES, KNOWS_ABORTABLE, ADDS = 10, 11, 12
KEY = (TOPIC, 0)


class Producing:
    """A transactional producer of a handler with one replica. Questions to the coordinator wait in `questions`."""

    def __init__(self, stage: PartStage, *, verifies: bool = True, ready: bool = True) -> None:
        self.replica = made = LedReplica(stage, isr=(1,))
        self.questions: list[tuple[Any, Callable[[Any], None]]] = []
        self.memory = made.gates.memory
        image = image_of(*three_brokers(), *orders())
        ports = ProducePorts(
            loop=stage.loop,
            gates=made.gates,
            find=made.find,
            locate=made.locate,
            newest_image=lambda: image,
            disk_failed=lambda partition, error: made.failures.append(error),
            budget_may_be_full=made.waits_for_budget.append,
            finish=made.finish,
            enrol=lambda request, answered: self.questions.append((request, answered)),
            verifies_transactions=lambda: verifies,
        )
        self._client = OneConnection(ProduceHandler(ports).handle)
        self._versions: list[int] = []
        if ready:
            made.make_ready()

    def send(
        self, sequence: int = 0, *, version: int = ADDS, epoch: int = 0, timeout_ms: int = 1_000, name: str | None = "a"
    ) -> None:
        data = batch("v", producer_id=7, producer_epoch=epoch, base_sequence=sequence, transactional=True)
        topics = [(TOPIC, ORDERS, [(0, data)])]
        body = encode_produce_request(version, acks=1, timeout_ms=timeout_ms, topics=topics, transactional_id=name)
        self._client.send(ApiKey.PRODUCE, version, b"".join(body))
        self._versions.append(version)

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the oldest question."""
        _, answered = self.questions.pop(0)
        answered({KEY: error})

    def end(self, epoch: int = 0, *, commit: bool = True) -> None:
        """Write a marker."""
        kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
        marker = encode_control(
            ControlRecord(type=kind, coordinator_epoch=1), timestamp_ms=EPOCH_MS, producer_id=7, producer_epoch=epoch
        )
        partition = self.replica.partition
        partition.append_as_leader(memoryview(marker), read_header(marker), EPOCH_MS, AppendOrigin.COORDINATOR)

    def results(self) -> list[ProduceResult]:
        """Return the results that were answered since the last call."""
        found = []
        for body in self._client.answers():
            response = decode_produce_response(self._versions.pop(0), body)
            found.append(response.topics[0][2][0])
        return found

    def errors(self) -> list[ErrorCode]:
        return [ErrorCode(result.error_code) for result in self.results()]

    @property
    def log(self) -> Any:
        return self.replica.partition.log


def producing(test: Callable[[PartStage, Producing], Awaitable[None]], **options: Any) -> None:
    async def main(stage: PartStage) -> None:
        await test(stage, Producing(stage, **options))

    play(main)


# when the coordinator is asked


@pytest.mark.parametrize(("version", "kind"), [(VERIFIES, VerifyRequest), (ADDS, AddRequest)])
def test_the_first_batch_of_a_transaction_waits_for_the_coordinator(version: int, kind: type) -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(version=version)
        assert client.errors() == []
        assert client.log.log_end_offset == 0
        assert client.memory.used_bytes > 0
        ((request, _),) = client.questions
        assert request == kind("a", 7, 0, frozenset((KEY,)))
        client.answer()
        (result,) = client.results()
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, 0)
        assert client.memory.used_bytes == 0

    producing(test)


def test_later_batches_of_the_transaction_are_appended_without_a_question() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send()
        client.answer()
        client.send(1)
        assert client.errors() == [ErrorCode.NONE] * 2
        assert not client.questions

    producing(test)


def test_batches_that_a_client_has_pipelined_are_appended_in_their_order() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        for sequence in range(3):
            client.send(sequence)
        while client.questions:
            client.answer()
        assert client.errors() == [ErrorCode.NONE] * 3
        assert client.log.log_end_offset == 3

    producing(test)


def test_a_verification_that_is_switched_off_asks_nothing() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(version=VERIFIES)
        assert not client.questions
        assert client.errors() == [ErrorCode.NONE]

    producing(test, verifies=False)


def test_an_addition_is_not_switched_off() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(version=ADDS)
        assert len(client.questions) == 1

    producing(test, verifies=False)


def test_a_batch_without_a_transactional_id_is_refused_without_a_question() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(name=None)
        assert client.errors() == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        assert not client.questions

    producing(test)


def test_a_closed_log_is_opened_before_the_question() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        partition = client.replica.partition
        log, partition.log = partition.log, None
        client.send()
        assert not client.questions
        partition.log = log
        client.replica.make_ready()
        client.answer()
        assert client.errors() == [ErrorCode.NONE]

    producing(test, ready=False)


# answers


@pytest.mark.parametrize(
    ("error", "verifies", "knows_abortable", "adds"),
    [
        ("NETWORK_EXCEPTION", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        ("COORDINATOR_NOT_AVAILABLE", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        ("NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        ("CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "CONCURRENT_TRANSACTIONS"),
        ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH"),
        ("TRANSACTION_ABORTABLE", "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE"),
        ("CLUSTER_AUTHORIZATION_FAILED", "INVALID_TXN_STATE", "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
        ("INVALID_PRODUCER_ID_MAPPING",) * 4,
        ("INVALID_TXN_STATE",) * 4,
    ],
)
def test_an_error_of_the_coordinator_is_translated_for_the_version_of_the_client(
    error: str, verifies: str, knows_abortable: str, adds: str
) -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        for version in (VERIFIES, KNOWS_ABORTABLE, ADDS):
            client.send(version=version)
            client.answer(ErrorCode[error])
        assert [found.name for found in client.errors()] == [verifies, knows_abortable, adds]
        assert client.log.log_end_offset == 0
        assert client.memory.used_bytes == 0

    producing(test)


def test_an_answer_after_the_end_of_the_transaction_appends_nothing() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(version=VERIFIES)
        client.end()
        client.answer()
        assert client.errors() == [ErrorCode.INVALID_TXN_STATE]
        assert client.log.producers.first_unstable_offset is None

    producing(test)


def test_an_answer_that_is_held_into_the_next_transaction_appends_nothing_to_it() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(version=VERIFIES)
        client.end(commit=False)
        client.send(version=VERIFIES)
        client.answer()
        assert client.errors() == [ErrorCode.INVALID_TXN_STATE]
        client.answer()
        assert client.errors() == [ErrorCode.NONE]

    producing(test)


def test_a_batch_of_the_next_transaction_survives_the_late_marker_of_the_last_one() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send()
        client.answer()
        client.send(epoch=1)
        client.end(epoch=1)
        client.answer()
        assert client.errors() == [ErrorCode.NONE] * 2

    producing(test)


def test_a_zombie_is_fenced_while_the_batch_of_its_successor_waits() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(epoch=1)
        client.send(epoch=2)
        client.send(1, epoch=1)
        client.answer()
        client.answer()
        found = client.errors()
        assert found == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH]

    producing(test)


def test_a_partition_that_moves_while_a_batch_waits_is_checked_again() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send()
        client.replica.partition.follow(PartitionState((1, 2), (1, 2), 2, 5, 0))
        client.answer()
        assert client.errors() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    producing(test)


def test_a_partition_that_moves_away_and_back_without_a_truncation_keeps_the_verification() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        partition = client.replica.partition
        client.send()
        partition.follow(PartitionState((1, 2), (1,), 2, 5, 0))
        partition.lead(PartitionState((1, 2), (1,), 1, 6, 0))
        client.replica.make_ready()
        client.answer()
        assert client.errors() == [ErrorCode.NONE]

    producing(test)


def test_a_batch_that_waits_too_long_is_answered_and_not_appended_later() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(timeout_ms=100)
        await stage.world.sleep_ms(200)
        stage.loop.deadlines.expire_due()
        assert client.errors() == [ErrorCode.REQUEST_TIMED_OUT]
        client.answer()
        assert client.log.log_end_offset == 0
        assert client.memory.used_bytes == 0

    producing(test)


def test_a_new_producer_of_transaction_version_2_that_lost_its_first_batch_is_out_of_order() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(1)
        client.answer()
        assert client.errors() == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        client.send(1, version=VERIFIES, epoch=1)
        client.answer()
        assert client.errors() == [ErrorCode.NONE]

    producing(test)
