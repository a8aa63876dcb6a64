"""Requests to transaction coordinators to add or verify partitions: their destination, their batching, and the meaning
of their responses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from kraft.broker.coordinator.internal_topics import TRANSACTION_TOPIC
from kraft.broker.coordinator.partition_enrolment import PartitionEnrolment
from kraft.broker.txn.requests import AddRequest, ErrorReply, VerifyReply, VerifyRequest
from kraft.config import NodeConfig
from kraft.image import events
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.broker_harness import PROPERTIES
from tests.stages.images import DIRECTORY, image_of, three_brokers
from tests.stages.part_stage import PartStage, play

KEY = ApiKey.ADD_PARTITIONS_TO_TXN
TOPIC_ID = UUID(int=5)
A, B = ("orders", 0), ("orders", 1)


class Asking:
    """PartitionEnrolment of broker 1, with its requests recorded. `leader` is the broker that coordinates every
    transactional id."""

    def __init__(self, stage: PartStage, leader: int) -> None:
        partition = events.Partition(
            TOPIC_ID, 0, (1, 2), (1, 2), leader=leader, leader_epoch=1, directories=(DIRECTORY,) * 2
        )
        self.image = image_of(*three_brokers(), events.Topic(TRANSACTION_TOPIC, TOPIC_ID), partition)
        self.sent: list[tuple[int, Any, Callable[[Any], None]]] = []
        self.here: list[tuple[Any, Callable[[Any], None]]] = []
        self.answers: list[dict[tuple[str, int], ErrorCode]] = []
        self.enrolment = PartitionEnrolment(
            NodeConfig.parse(PROPERTIES),
            stage.loop,
            lambda: self.image,
            send=self._send,
            ask_here=lambda request, ticket: self.here.append((request, ticket)),
        )

    def _send(self, broker_id: int, key: int, version: int, message: Any, on_outcome: Callable[[Any], None]) -> None:
        assert (key, version) == (KEY, 5)
        decoded = messages.decode_request(key, version, messages.encode_request(key, version, message))
        self.sent.append((broker_id, decoded, on_outcome))

    def ask(
        self,
        *partitions: tuple[str, int],
        name: str = "a",
        producer_id: int = 7,
        epoch: int = 0,
        adds: bool = False,
    ) -> None:
        kind = AddRequest if adds else VerifyRequest
        request = kind(name, producer_id, epoch, frozenset(partitions or (A,)))
        self.enrolment.ask(request, lambda errors: self.answers.append(dict(errors)))

    def names(self) -> list[list[str]]:
        """Return the transactional ids in each recorded request to another broker."""
        return [[one.transactional_id for one in message.transactions] for _, message, _ in self.sent]

    def answer(self, error: ErrorCode = ErrorCode.NONE, *, top_level: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the oldest request to another broker with this error for each partition."""
        _, message, on_outcome = self.sent.pop(0)
        results = [
            {
                "transactional_id": one.transactional_id,
                "topic_results": [
                    {
                        "name": topic.name,
                        "results_by_partition": [
                            {"partition_index": index, "partition_error_code": error} for index in topic.partitions
                        ],
                    }
                    for topic in one.topics
                ],
            }
            for one in message.transactions
        ]
        response = messages.build(messages.response_class(KEY), error_code=top_level, results_by_transaction=results)
        encoded = messages.encode_response(KEY, 5, response)
        on_outcome(messages.decode_response(KEY, 5, encoded))


def asking(leader: int, test: Callable[[PartStage, Asking], Awaitable[None]]) -> None:
    async def main(stage: PartStage) -> None:
        await test(stage, Asking(stage, leader))

    play(main)


# another broker is the coordinator


def test_a_verification_request_to_a_remote_coordinator_names_the_transaction_and_its_partitions() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(A, B, epoch=3)
        ((broker_id, message, _),) = asks.sent
        (one,) = message.transactions
        assert broker_id == 2
        assert (one.transactional_id, one.producer_id, one.producer_epoch, one.verify_only) == ("a", 7, 3, True)
        assert [(topic.name, list(topic.partitions)) for topic in one.topics] == [("orders", [0, 1])]
        asks.answer()
        assert asks.answers == [{A: ErrorCode.NONE, B: ErrorCode.NONE}]
        asks.ask(adds=True)
        assert not asks.sent[0][1].transactions[0].verify_only

    asking(2, test)


def test_transactions_to_verify_during_a_request_are_sent_together_in_the_next_request() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        for name in "abc":
            asks.ask(name=name)
        assert asks.names() == [["a"]]
        asks.answer()
        assert asks.names() == [["b", "c"]]
        asks.answer(ErrorCode.TRANSACTION_ABORTABLE)
        assert asks.answers == [{A: ErrorCode.NONE}] + [{A: ErrorCode.TRANSACTION_ABORTABLE}] * 2

    asking(2, test)


def test_a_producers_second_verification_joins_its_waiting_one_and_is_answered_after_it() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(name="other")
        asks.ask(A)
        asks.ask(B)
        asks.answer()
        assert asks.names() == [["a"]]
        assert list(asks.sent[0][1].transactions[0].topics[0].partitions) == [0, 1]
        asks.answer()
        assert asks.answers[1:] == [{A: ErrorCode.NONE}, {B: ErrorCode.NONE}]

    asking(2, test)


def test_a_verification_with_a_newer_epoch_fences_the_waiting_one_with_an_older_epoch() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(name="other")
        asks.ask(epoch=1)
        asks.ask(epoch=2)
        assert asks.answers == [{A: ErrorCode.INVALID_PRODUCER_EPOCH}]
        asks.ask(epoch=1)
        assert asks.answers[1:] == [{A: ErrorCode.INVALID_PRODUCER_EPOCH}]
        asks.answer()
        assert asks.sent[0][1].transactions[0].producer_epoch == 2

    asking(2, test)


def test_a_waiting_verification_of_another_producer_id_does_not_fence_a_later_one() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(name="other")
        asks.ask(epoch=32_766)
        asks.ask(producer_id=8)
        assert asks.answers == [{A: ErrorCode.NETWORK_EXCEPTION}]
        asks.answer()
        assert asks.sent[0][1].transactions[0].producer_id == 8

    asking(2, test)


def test_a_verification_whose_request_is_lost_gets_network_exception_and_the_next_request_is_sent() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(name="a")
        asks.ask(name="b")
        asks.sent.pop(0)[2](None)
        assert asks.answers == [{A: ErrorCode.NETWORK_EXCEPTION}]
        assert asks.names() == [["b"]]

    asking(2, test)


def test_a_top_level_error_of_a_verification_response_is_reported_for_each_partition() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(A, B)
        asks.answer(top_level=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert asks.answers == [dict.fromkeys((A, B), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]

    asking(2, test)


def test_a_verification_without_a_known_coordinator_gets_coordinator_not_available() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask()
        asks.image = image_of(*three_brokers())
        asks.ask()
        assert asks.answers == [{A: ErrorCode.COORDINATOR_NOT_AVAILABLE}] * 2

    asking(-1, test)


def test_an_added_partition_is_also_confirmed_to_the_producers_question_that_waits_for_the_same_partition() -> None:
    """Otherwise a third batch, which finds the transaction open and needs no question, overtakes the second one."""

    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(A, adds=True)
        asks.ask(A, adds=True)
        asks.answer()
        assert asks.answers == [{A: ErrorCode.NONE}] * 2
        assert not asks.sent

    asking(2, test)


@pytest.mark.parametrize(
    ("later", "options", "error"),
    [
        (B, {"adds": True}, ErrorCode.NONE),
        (A, {"adds": True, "epoch": 1}, ErrorCode.NONE),
        (A, {"adds": True}, ErrorCode.PRODUCER_FENCED),
        (A, {"adds": False}, ErrorCode.NONE),
    ],
)
def test_a_waiting_question_about_anything_that_was_not_just_added_is_sent_to_the_coordinator(
    later: tuple[str, int], options: dict[str, Any], error: ErrorCode
) -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(A, adds=options["adds"])
        asks.ask(later, **options)
        asks.answer(error)
        assert asks.answers == [{A: error}]
        assert asks.names() == [["a"]]

    asking(2, test)


# this broker is the coordinator


def test_a_local_coordinator_is_called_directly_to_verify_partitions() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(A, B)
        ((request, ticket),) = asks.here
        assert request == VerifyRequest("a", 7, 0, frozenset((A, B)))
        ticket(VerifyReply(ErrorCode.NONE, frozenset((B,))))
        assert asks.answers == [{A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}]
        asks.ask(A)
        asks.here[-1][1](VerifyReply(ErrorCode.PRODUCER_FENCED))
        assert asks.answers[1:] == [{A: ErrorCode.PRODUCER_FENCED}]
        assert not asks.sent

    asking(1, test)


def test_a_local_coordinator_gets_the_additions_of_a_transactional_id_one_at_a_time() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(A, adds=True)
        asks.ask(B, adds=True)
        asks.ask(B, name="other", adds=True)
        assert [request.transactional_id for request, _ in asks.here] == ["a", "other"]
        asks.here[0][1](ErrorReply(ErrorCode.NONE))
        assert asks.here[-1][0] == AddRequest("a", 7, 0, frozenset((B,)))
        asks.here[-1][1](ErrorReply(ErrorCode.NONE))
        assert asks.answers == [{A: ErrorCode.NONE}, {B: ErrorCode.NONE}]

    asking(1, test)


# retries


def test_adding_partitions_is_retried_while_the_last_transaction_is_being_completed() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(adds=True)
        asks.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert not asks.answers
        await stage.world.sleep_ms(19)
        assert not asks.sent
        await stage.world.sleep_ms(2)
        asks.answer()
        assert asks.answers == [{A: ErrorCode.NONE}]

    asking(2, test)


@pytest.mark.parametrize("is_early", [True, False])
def test_a_producers_later_addition_is_not_sent_before_its_addition_that_waits_for_a_retry(is_early: bool) -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(A, adds=True)
        if is_early:
            asks.ask(B, adds=True)
        asks.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        if not is_early:
            asks.ask(B, adds=True)
        assert not asks.sent
        asks.ask(A, name="other", adds=True)
        assert asks.names() == [["other"]]
        asks.answer()
        await stage.world.sleep_ms(21)
        assert list(asks.sent[0][1].transactions[0].topics[0].partitions) == [0, 1]
        asks.answer()
        assert asks.answers[1:] == [{A: ErrorCode.NONE}, {B: ErrorCode.NONE}]

    asking(2, test)


def test_an_addition_with_a_newer_epoch_does_not_wait_for_the_retry_of_an_older_one() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(A, adds=True)
        asks.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        asks.ask(A, epoch=1, adds=True)
        assert asks.sent[0][1].transactions[0].producer_epoch == 1

    asking(2, test)


@pytest.mark.parametrize("leader", [1, 2])
def test_adding_partitions_fails_with_concurrent_transactions_after_the_maximum_retry_time(leader: int) -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(adds=True)
        tries = 0
        while not asks.answers:
            tries += 1
            if asks.here:
                asks.here.pop()[1](ErrorReply(ErrorCode.CONCURRENT_TRANSACTIONS))
            else:
                asks.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
            await stage.world.sleep_ms(21)
        assert asks.answers == [{A: ErrorCode.CONCURRENT_TRANSACTIONS}]
        assert tries == 5

    asking(leader, test)


def test_a_verification_that_gets_concurrent_transactions_is_not_retried() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask()
        asks.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert asks.answers == [{A: ErrorCode.CONCURRENT_TRANSACTIONS}]

    asking(2, test)


def test_a_retried_addition_of_partitions_is_sent_to_the_current_coordinator() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(adds=True)
        asks.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        asks.image = Asking(stage, 1).image
        await stage.world.sleep_ms(25)
        assert not asks.sent
        assert len(asks.here) == 1

    asking(2, test)
