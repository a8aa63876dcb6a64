"""Requests about transactions in every version, and the permissions that they need."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kraft.broker.api import transactions_admin
from kraft.broker.api.transactions_admin import CHARACTERS_PER_INSTRUCTION, INSTRUCTIONS_PER_STEP, LISTED_PER_STEP
from kraft.broker.node.continuations import Continuations
from kraft.broker.regular_expressions import Expression, compile_expression
from kraft.broker.regular_expressions.program import INSTRUCTIONS_MAX
from kraft.broker.serving.gates import CLUSTER, Operation
from kraft.broker.serving.turns import Steps
from kraft.broker.txn.records import TransactionValue
from kraft.broker.txn.requests import (
    AddRequest,
    DescribeTransactionReply,
    DescribeTransactionRequest,
    EndReply,
    EndRequest,
    ErrorReply,
    InitReply,
    InitRequest,
    ListTransactionsReply,
    VerifyReply,
    VerifyRequest,
)
from kraft.broker.txn.states import TransactionState
from kraft.image import events
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.broker_harness import BrokerHarness, Denying
from tests.stages.images import DIRECTORY, INTERNAL, image_of, orders, three_brokers

FENCED, OLD_FENCED = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
IDENTITY = {"transactional_id": "pay", "producer_id": 7, "producer_epoch": 3}
OPEN = TransactionValue(
    7, 3, 60_000, TransactionState.ONGOING, frozenset({("orders", 1), ("orders", 0), ("secret", 0)}), 50, 40
)


class StillCoordinators:
    """Stands in for TransactionCoordinators: records each request, and replies at once."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asked: list[Any] = []

    def submit(self, request: Any, ticket: Any) -> None:
        self.asked.append(request)
        ticket(self.replies.pop(0))

    def list_transactions(self, ticket: Any) -> None:
        ticket(self.replies.pop(0))


class StillWriter:
    """Stands in for MarkerWriter: reports a given error for each partition."""

    def __init__(self, errors: dict[tuple[str, int], ErrorCode]) -> None:
        self.errors = errors
        self.written: list[Any] = []

    def write(self, topic: str, index: int, marker: Any, done: Any) -> None:
        self.written.append((topic, index, marker))
        done(self.errors[topic, index])


def versions(key: ApiKey) -> range:
    return range(BROKER_APIS[key].min, BROKER_APIS[key].max + 1)


def harness(*replies: Any, denied: tuple[Operation, str] | None = None) -> tuple[BrokerHarness, StillCoordinators]:
    coordinators = StillCoordinators(*replies)
    authorizer = None if denied is None else Denying(denied)
    return BrokerHarness(IMAGE, transactions=coordinators, authorizer=authorizer), coordinators


IMAGE = image_of(
    *three_brokers(),
    *orders(),
    events.Topic("__consumer_offsets", INTERNAL),
    *(
        events.Partition(INTERNAL, index, (1,), (1,), leader=1, leader_epoch=1, directories=(DIRECTORY,))
        for index in range(50)
    ),
)


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_init_producer_id_with_a_transactional_id_is_passed_to_its_coordinator(version: int) -> None:
    broker, coordinators = harness(InitReply(ErrorCode.NONE, 7, 3))
    fields: dict[str, Any] = {"transactional_id": "pay", "transaction_timeout": 5_000}
    fields |= {"producer_id": 7, "producer_epoch": 2} if version >= 3 else {"producer_id": -1, "producer_epoch": -1}
    reply = broker.ask(ApiKey.INIT_PRODUCER_ID, version, **fields)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (ErrorCode.NONE, 7, 3)
    assert coordinators.asked == [InitRequest("pay", 5_000, fields["producer_id"], fields["producer_epoch"])]


@pytest.mark.parametrize("version", versions(ApiKey.INIT_PRODUCER_ID))
def test_init_producer_id_of_a_fenced_producer_gets_an_error_code_that_its_version_knows(version: int) -> None:
    broker, _ = harness(InitReply(FENCED))
    reply = broker.ask(ApiKey.INIT_PRODUCER_ID, version, transactional_id="pay", producer_id=-1, producer_epoch=-1)
    assert reply.error_code == (FENCED if version >= 4 else OLD_FENCED)
    assert (reply.producer_id, reply.producer_epoch) == (-1, -1)


def added(reply: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.name, row.partition_index): ErrorCode.of(int(row.partition_error_code))
        for result in reply.results_by_transaction
        for topic in result.topic_results
        for row in topic.results_by_partition
    }


def adding(*partitions: tuple[str, int], **fields: Any) -> dict[str, Any]:
    topics = [{"name": topic, "partitions": [index]} for topic, index in partitions]
    return {"transactions": [{**IDENTITY, "topics": topics, **fields}]}


@pytest.mark.parametrize("version", versions(ApiKey.ADD_PARTITIONS_TO_TXN))
@pytest.mark.parametrize("error", [ErrorCode.NONE, FENCED, ErrorCode.CONCURRENT_TRANSACTIONS])
def test_add_partitions_to_txn_returns_the_coordinators_error_for_each_partition(
    version: int, error: ErrorCode
) -> None:
    broker, coordinators = harness(ErrorReply(error))
    reply = broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, **adding(("orders", 0), ("orders", 1)))
    expected = OLD_FENCED if error is FENCED and version < 2 else error
    assert added(reply) == {("orders", 0): expected, ("orders", 1): expected}
    assert coordinators.asked == [AddRequest("pay", 7, 3, frozenset({("orders", 0), ("orders", 1)}))]


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_and_verify_partitions_of_several_transactions_in_one_request(version: int) -> None:
    broker, coordinators = harness(ErrorReply(ErrorCode.NONE), VerifyReply(ErrorCode.NONE, frozenset({("orders", 1)})))
    fields = adding(("__consumer_offsets", 4))
    fields["transactions"] += adding(("orders", 0), ("orders", 1), transactional_id="log", verify_only=True)[
        "transactions"
    ]
    reply = broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, **fields)
    assert [row.transactional_id for row in reply.results_by_transaction] == ["pay", "log"]
    missing = ErrorCode.TRANSACTION_ABORTABLE if version >= 5 else ErrorCode.INVALID_TXN_STATE
    assert added(reply) == {
        ("__consumer_offsets", 4): ErrorCode.NONE,
        ("orders", 0): ErrorCode.NONE,
        ("orders", 1): missing,
    }
    assert isinstance(coordinators.asked[1], VerifyRequest)


@pytest.mark.parametrize("version", [4, 5])
def test_add_partitions_to_txn_from_version_4_needs_cluster_action(version: int) -> None:
    broker, coordinators = harness(denied=(Operation.CLUSTER_ACTION, CLUSTER.name))
    reply = broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, **adding(("orders", 0)))
    assert reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert coordinators.asked == []


@pytest.mark.parametrize(
    ("denied", "expected"),
    [
        ((Operation.WRITE, "pay"), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ((Operation.WRITE, "orders"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_add_partitions_to_txn_needs_write_on_the_transactional_id_and_on_the_topics(
    denied: Any, expected: ErrorCode
) -> None:
    broker, coordinators = harness(denied=denied)
    assert added(broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, **adding(("orders", 0)))) == {("orders", 0): expected}
    assert coordinators.asked == []


@pytest.mark.parametrize("version", versions(ApiKey.ADD_OFFSETS_TO_TXN))
def test_add_offsets_to_txn_adds_the_offsets_partition_given_by_the_hash_of_the_group(version: int) -> None:
    broker, coordinators = harness(ErrorReply(FENCED))
    reply = broker.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, **IDENTITY, group_id="my-group")
    assert reply.error_code == (FENCED if version >= 2 else OLD_FENCED)
    assert coordinators.asked == [AddRequest("pay", 7, 3, frozenset({("__consumer_offsets", 12)}))]


@pytest.mark.parametrize(
    ("denied", "expected"),
    [
        ((Operation.WRITE, "pay"), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ((Operation.READ, "g"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_add_offsets_to_txn_needs_write_on_the_transactional_id_and_read_on_the_group(
    denied: Any, expected: ErrorCode
) -> None:
    broker, _ = harness(denied=denied)
    assert broker.ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, **IDENTITY, group_id="g").error_code == expected


@pytest.mark.parametrize("version", versions(ApiKey.END_TXN))
@pytest.mark.parametrize("error", [ErrorCode.NONE, FENCED])
def test_end_txn_returns_the_next_producer_epoch_from_version_5_on(version: int, error: ErrorCode) -> None:
    bumps = version >= 5
    broker, coordinators = harness(EndReply(error, 7, 4) if bumps and not error else EndReply(error))
    reply = broker.ask(ApiKey.END_TXN, version, **IDENTITY, committed=True)
    assert reply.error_code == (OLD_FENCED if error and version < 2 else error)
    assert (reply.producer_id, reply.producer_epoch) == ((7, 4) if bumps and not error else (-1, -1))
    assert coordinators.asked == [EndRequest("pay", 7, 3, is_commit=True, bumps_epoch=bumps)]


@pytest.mark.parametrize("version", versions(ApiKey.WRITE_TXN_MARKERS))
def test_write_txn_markers_returns_an_error_code_for_each_marker_and_partition(version: int) -> None:
    errors = {("orders", 0): ErrorCode.NONE, ("orders", 1): ErrorCode.NOT_LEADER_OR_FOLLOWER}
    writer = StillWriter(errors)
    markers = [
        {
            "producer_id": producer_id,
            "producer_epoch": 3,
            "transaction_result": commit,
            "topics": [{"name": "orders", "partition_indexes": [0, 1]}],
            "coordinator_epoch": 5,
            "transaction_version": 2 if version >= 2 else 0,
        }
        for producer_id, commit in ((7, True), (8, False))
    ]
    reply = BrokerHarness(marker_writer=writer).ask(ApiKey.WRITE_TXN_MARKERS, version, markers=markers)
    assert [one.producer_id for one in reply.markers] == [7, 8]
    for one in reply.markers:
        (topic,) = one.topics
        assert [(row.partition_index, row.error_code) for row in topic.partitions] == [
            (0, ErrorCode.NONE),
            (1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ]
    assert writer.written[0][2] == (7, 3, 5, True, 2 if version >= 2 else 0)
    assert writer.written[2][2] == (8, 3, 5, False, 2 if version >= 2 else 0)


def test_write_txn_markers_needs_cluster_action_or_alter_on_the_cluster() -> None:
    marker = {"producer_id": 7, "topics": [{"name": "orders", "partition_indexes": [0]}]}
    denying = Denying((Operation.CLUSTER_ACTION, CLUSTER.name), (Operation.ALTER, CLUSTER.name))
    writer = StillWriter({("orders", 0): ErrorCode.NONE})
    reply = BrokerHarness(marker_writer=writer, authorizer=denying).ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
    assert reply.markers[0].topics[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert writer.written == []
    admin = Denying((Operation.CLUSTER_ACTION, CLUSTER.name))
    reply = BrokerHarness(marker_writer=writer, authorizer=admin).ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
    assert reply.markers[0].topics[0].partitions[0].error_code == ErrorCode.NONE


def test_describe_transactions_omits_topics_that_the_client_may_not_describe() -> None:
    broker, coordinators = harness(
        DescribeTransactionReply(ErrorCode.NONE, OPEN), denied=(Operation.DESCRIBE, "secret")
    )
    reply = broker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["pay", "secret", ""])
    first, second, third = reply.transaction_states
    assert (first.transaction_state, first.producer_id, first.transaction_start_time) == ("Ongoing", 7, 40)
    assert [(topic.topic, topic.partitions) for topic in first.topics] == [("orders", (0, 1))]
    assert second.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert third.error_code == ErrorCode.INVALID_REQUEST
    assert coordinators.asked == [DescribeTransactionRequest("pay")]


@pytest.mark.parametrize("version", versions(ApiKey.LIST_TRANSACTIONS))
def test_list_transactions_omits_ids_the_client_may_not_describe_and_returns_unknown_state_filters(
    version: int,
) -> None:
    listed = ListTransactionsReply(ErrorCode.NONE, (("pay", OPEN), ("secret", OPEN)))
    for duration_ms, expected in ((-1, ["pay"]), (10**9, [] if version >= 1 else ["pay"])):
        coordinators = StillCoordinators(listed)
        broker = BrokerHarness(IMAGE, transactions=coordinators, authorizer=Denying((Operation.DESCRIBE, "secret")))
        broker_fields = {"duration_filter": duration_ms} if version >= 1 else {}
        reply = broker.ask(ApiKey.LIST_TRANSACTIONS, version, state_filters=["Ongoing", "Asleep"], **broker_fields)
        assert [one.transactional_id for one in reply.transaction_states] == expected
        assert reply.unknown_state_filters == ("Asleep",)
        assert reply.error_code == ErrorCode.NONE


def test_list_transactions_gets_load_in_progress_while_a_partition_is_being_loaded() -> None:
    broker, _ = harness(ListTransactionsReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    reply = broker.ask(ApiKey.LIST_TRANSACTIONS, 2)
    assert reply.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CountingAuthorizer(Denying):
    """Allows everything, and counts the resources that it was asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def authorize(self, *arguments: Any) -> bool:
        self.count += 1
        return super().authorize(*arguments)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_TRANSACTIONS))
def test_many_transactions_are_filtered_and_encoded_in_bounded_steps(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    authorizer, counts = CountingAuthorizer(), [0]
    run_steps = Continuations.continue_in_steps

    def run_and_count(continuations: Continuations, request: Any, steps: Steps) -> None:
        def counted() -> Steps:
            for _ in steps:
                counts.append(authorizer.count)
                yield
            counts.append(authorizer.count)

        run_steps(continuations, request, counted())

    monkeypatch.setattr(Continuations, "continue_in_steps", run_and_count)
    names = [f"pay-{number}" for number in range(10 * LISTED_PER_STEP + 1)]
    listed = ListTransactionsReply(ErrorCode.NONE, tuple((name, OPEN) for name in names))
    broker = BrokerHarness(IMAGE, transactions=StillCoordinators(listed), authorizer=authorizer)
    reply = broker.ask(ApiKey.LIST_TRANSACTIONS, version)
    assert [one.transactional_id for one in reply.transaction_states] == names
    assert {(one.producer_id, one.transaction_state) for one in reply.transaction_states} == {(7, "Ongoing")}
    assert max(after - before for before, after in pairwise(counts)) == LISTED_PER_STEP


def matched_in_steps(monkeypatch: pytest.MonkeyPatch, pattern: str, names: list[str]) -> tuple[list[str], list[int]]:
    """List transactions with this pattern. Return the listed ids, and the instructions that each step executed."""
    expressions: list[Expression] = []
    counts = [0]
    run_steps = Continuations.continue_in_steps

    def compile_and_keep(text: str) -> Expression:
        expressions.append(compile_expression(text))
        return expressions[-1]

    def run_and_count(continuations: Continuations, request: Any, steps: Steps) -> None:
        def counted() -> Steps:
            for _ in steps:
                counts.append(expressions[0].steps)
                yield
            counts.append(expressions[0].steps)

        run_steps(continuations, request, counted())

    monkeypatch.setattr(transactions_admin, "compile_expression", compile_and_keep)
    monkeypatch.setattr(Continuations, "continue_in_steps", run_and_count)
    listed = ListTransactionsReply(ErrorCode.NONE, tuple((name, OPEN) for name in names))
    broker = BrokerHarness(IMAGE, transactions=StillCoordinators(listed))
    reply = broker.ask(ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern=pattern)
    return [one.transactional_id for one in reply.transaction_states], [
        after - before for before, after in pairwise(counts)
    ]


def test_a_pattern_that_is_slow_for_a_long_transactional_id_is_matched_in_bounded_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each character leads to another set of about a hundred instructions."""
    digits = "".join(f"{number:b}" for number in range(600))
    names = [digits + "1" + 50 * "0", digits + "0" + 50 * "0"]
    found, steps = matched_in_steps(monkeypatch, "[01]*1[01]{50}", names)
    assert found == names[:1]
    assert sum(steps) > 10 * INSTRUCTIONS_PER_STEP
    assert max(steps) < INSTRUCTIONS_PER_STEP + INSTRUCTIONS_MAX


def test_many_long_transactional_ids_are_matched_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number:02}" + "a" * 30_000 for number in range(20)]
    found, steps = matched_in_steps(monkeypatch, "[0-9]*a*", names)
    assert found == names
    assert len(steps) >= 20 * 30_000 // CHARACTERS_PER_INSTRUCTION // INSTRUCTIONS_PER_STEP
    assert sum(steps) < INSTRUCTIONS_PER_STEP
