"""Questions to transaction coordinators: where they go, how they are batched, and what their answers mean."""

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
    """The questions of broker 1. `leader`: the coordinator of every transactional id."""

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

    def ask(self, *partitions: tuple[str, int], name: str = "a", epoch: int = 0, adds: bool = False) -> None:
        kind = AddRequest if adds else VerifyRequest
        request = kind(name, 7, epoch, frozenset(partitions or (A,)))
        self.enrolment.ask(request, lambda errors: self.answers.append(dict(errors)))

    def names(self) -> list[list[str]]:
        """Return the transactional ids of each request that was sent."""
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


# another broker coordinates


def test_a_question_to_another_broker_names_the_transaction_and_its_partitions() -> None:
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


def test_questions_wait_for_the_request_in_flight_and_leave_together() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        for name in "abc":
            asks.ask(name=name)
        assert asks.names() == [["a"]]
        asks.answer()
        assert asks.names() == [["b", "c"]]
        asks.answer(ErrorCode.TRANSACTION_ABORTABLE)
        assert asks.answers == [{A: ErrorCode.NONE}] + [{A: ErrorCode.TRANSACTION_ABORTABLE}] * 2

    asking(2, test)


def test_a_second_question_of_a_producer_joins_the_waiting_one_and_both_are_answered_in_order() -> None:
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


def test_a_newer_epoch_displaces_the_waiting_question_of_an_older_one() -> None:
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


def test_a_lost_request_is_answered_with_a_network_error_and_the_next_one_leaves() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(name="a")
        asks.ask(name="b")
        asks.sent.pop(0)[2](None)
        assert asks.answers == [{A: ErrorCode.NETWORK_EXCEPTION}]
        assert asks.names() == [["b"]]

    asking(2, test)


def test_an_error_of_the_whole_request_is_the_error_of_each_partition() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(A, B)
        asks.answer(top_level=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert asks.answers == [dict.fromkeys((A, B), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]

    asking(2, test)


def test_a_question_without_a_coordinator_is_refused() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask()
        asks.image = image_of(*three_brokers())
        asks.ask()
        assert asks.answers == [{A: ErrorCode.COORDINATOR_NOT_AVAILABLE}] * 2

    asking(-1, test)


# this broker coordinates


def test_a_coordinator_on_this_broker_is_called_without_a_request() -> None:
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


def test_a_coordinator_on_this_broker_gets_one_question_of_an_id_at_a_time() -> None:
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


# repetitions


def test_an_addition_is_repeated_while_the_last_transaction_is_completed() -> None:
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


@pytest.mark.parametrize("leader", [1, 2])
def test_repetitions_end_after_their_time_with_the_error_itself(leader: int) -> None:
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


def test_a_verification_is_not_repeated() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask()
        asks.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert asks.answers == [{A: ErrorCode.CONCURRENT_TRANSACTIONS}]

    asking(2, test)


def test_a_repetition_goes_to_the_coordinator_of_that_time() -> None:
    async def test(stage: PartStage, asks: Asking) -> None:
        asks.ask(adds=True)
        asks.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        asks.image = Asking(stage, 1).image
        await stage.world.sleep_ms(25)
        assert not asks.sent
        assert len(asks.here) == 1

    asking(2, test)
