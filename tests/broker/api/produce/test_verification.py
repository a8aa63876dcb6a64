"""Verification of transactional batches in ProduceHandler: requests to the coordinator, waiting batches, and the effect
of each response.
"""

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
    """A transactional producer, and a produce handler with one replica. `questions` are the handler's unanswered
    requests to the transaction coordinator."""

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
        """Answer the oldest request to the coordinator with this error."""
        _, answered = self.questions.pop(0)
        answered({KEY: error})

    def end(self, epoch: int = 0, *, commit: bool = True) -> None:
        """Append a commit or abort marker to the partition."""
        kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
        marker = encode_control(
            ControlRecord(type=kind, coordinator_epoch=1), timestamp_ms=EPOCH_MS, producer_id=7, producer_epoch=epoch
        )
        partition = self.replica.partition
        partition.append_as_leader(memoryview(marker), read_header(marker), EPOCH_MS, AppendOrigin.COORDINATOR)

    def results(self) -> list[ProduceResult]:
        """Return the results in the responses received since the last call."""
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


# which batches wait for the coordinator


@pytest.mark.parametrize(("version", "kind"), [(VERIFIES, VerifyRequest), (ADDS, AddRequest)])
def test_the_first_batch_of_a_transaction_is_appended_only_after_the_coordinators_response(
    version: int, kind: type
) -> None:
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


def test_later_batches_of_an_open_transaction_are_appended_without_a_request_to_the_coordinator() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send()
        client.answer()
        client.send(1)
        assert client.errors() == [ErrorCode.NONE] * 2
        assert not client.questions

    producing(test)


def test_pipelined_batches_that_wait_for_the_coordinator_are_appended_in_the_order_of_their_sequences() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        for sequence in range(3):
            client.send(sequence)
        while client.questions:
            client.answer()
        assert client.errors() == [ErrorCode.NONE] * 3
        assert client.log.log_end_offset == 3

    producing(test)


def test_a_batch_that_finds_its_transaction_open_does_not_overtake_batches_that_wait_for_the_coordinator() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        for sequence in range(3):
            client.send(sequence)
        client.answer()
        client.send(3)
        while client.questions:
            client.answer()
        assert client.errors() == [ErrorCode.NONE] * 4
        assert client.log.log_end_offset == 4

    producing(test)


def test_a_batch_resumed_by_the_answer_to_an_older_one_is_not_rejected_by_its_own_answer() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(0)
        client.send(1)
        client.answer()
        assert client.errors() == [ErrorCode.NONE] * 2
        client.answer(ErrorCode.NETWORK_EXCEPTION)
        assert client.errors() == []
        assert client.log.log_end_offset == 2
        assert client.memory.used_bytes == 0

    producing(test)


def test_batches_behind_one_that_the_coordinator_rejects_wait_for_their_own_answers() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(0)
        client.send(1)
        client.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert client.errors() == [ErrorCode.CONCURRENT_TRANSACTIONS]
        client.answer()
        assert client.errors() == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        assert client.memory.used_bytes == 0

    producing(test)


def test_a_batch_that_arrives_while_its_log_is_made_ready_is_verified_behind_older_batches() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        partition = client.replica.partition
        log, partition.log = partition.log, None
        client.send(0)
        partition.log = log
        client.send(1)
        client.replica.make_ready()
        while client.questions:
            client.answer()
        client.send(2)
        assert client.errors() == [ErrorCode.NONE] * 3
        assert client.log.log_end_offset == 3
        assert client.memory.used_bytes == 0

    producing(test, ready=False)


def test_without_partition_verification_a_produce_below_version_12_is_appended_without_the_coordinator() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(version=VERIFIES)
        assert not client.questions
        assert client.errors() == [ErrorCode.NONE]

    producing(test, verifies=False)


def test_without_partition_verification_a_produce_of_version_12_still_adds_its_partition() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(version=ADDS)
        assert len(client.questions) == 1

    producing(test, verifies=False)


def test_a_transactional_batch_without_a_transactional_id_is_rejected_without_asking_the_coordinator() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(name=None)
        assert client.errors() == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        assert not client.questions

    producing(test)


def test_a_closed_log_is_opened_before_the_coordinator_is_asked_about_its_transaction() -> None:
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


# the effect of the coordinator's response


@pytest.mark.parametrize(
    ("error", "verifies", "knows_abortable", "adds"),
    [
        ("NETWORK_EXCEPTION", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        ("COORDINATOR_NOT_AVAILABLE", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        ("NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        ("OPERATION_NOT_ATTEMPTED", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS"),
        ("CONCURRENT_TRANSACTIONS", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS", "CONCURRENT_TRANSACTIONS"),
        ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_EPOCH"),
        ("TRANSACTION_ABORTABLE", "INVALID_TXN_STATE", "TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE"),
        ("CLUSTER_AUTHORIZATION_FAILED", "INVALID_TXN_STATE", "INVALID_TXN_STATE", "INVALID_TXN_STATE"),
        ("INVALID_PRODUCER_ID_MAPPING",) * 4,
        ("INVALID_TXN_STATE",) * 4,
    ],
)
def test_a_transaction_coordinator_error_is_translated_for_the_produce_version(
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


def test_a_batch_whose_transaction_ended_before_the_coordinators_response_is_rejected() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(version=VERIFIES)
        client.end()
        client.answer()
        assert client.errors() == [ErrorCode.INVALID_TXN_STATE]
        assert client.log.producers.first_unstable_offset is None

    producing(test)


def test_a_coordinator_response_delayed_into_the_next_transaction_does_not_append_its_old_batch() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(version=VERIFIES)
        client.end(commit=False)
        client.send(version=VERIFIES)
        client.answer()
        assert client.errors() == [ErrorCode.INVALID_TXN_STATE]
        client.answer()
        assert client.errors() == [ErrorCode.NONE]

    producing(test)


def test_a_waiting_batch_of_the_next_transaction_is_appended_although_the_last_marker_comes_late() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send()
        client.answer()
        client.send(epoch=1)
        client.end(epoch=1)
        client.answer()
        assert client.errors() == [ErrorCode.NONE] * 2

    producing(test)


def test_a_producer_with_an_older_epoch_is_fenced_while_a_batch_with_a_newer_epoch_waits() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(epoch=1)
        client.send(epoch=2)
        client.send(1, epoch=1)
        client.answer()
        client.answer()
        found = client.errors()
        assert found == [ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH]

    producing(test)


def test_a_batch_whose_partition_moved_during_verification_gets_not_leader_or_follower() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send()
        client.replica.partition.follow(PartitionState((1, 2), (1, 2), 2, 5, 0))
        client.answer()
        assert client.errors() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    producing(test)


def test_a_verified_batch_is_appended_if_its_partition_moved_away_and_back_without_a_truncation() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        partition = client.replica.partition
        client.send()
        partition.follow(PartitionState((1, 2), (1,), 2, 5, 0))
        partition.lead(PartitionState((1, 2), (1,), 1, 6, 0))
        client.replica.make_ready()
        client.answer()
        assert client.errors() == [ErrorCode.NONE]

    producing(test)


def test_a_batch_not_verified_by_its_deadline_gets_request_timed_out_and_is_never_appended() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(timeout_ms=100)
        await stage.world.sleep_ms(200)
        stage.loop.deadlines.expire_due()
        assert client.errors() == [ErrorCode.REQUEST_TIMED_OUT]
        client.answer()
        assert client.log.log_end_offset == 0
        assert client.memory.used_bytes == 0

    producing(test)


def test_a_first_batch_with_sequence_1_is_out_of_order_from_produce_version_12_only() -> None:
    async def test(stage: PartStage, client: Producing) -> None:
        client.send(1)
        client.answer()
        assert client.errors() == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        client.send(1, version=VERIFIES, epoch=1)
        client.answer()
        assert client.errors() == [ErrorCode.NONE]

    producing(test)
