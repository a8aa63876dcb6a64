"""DescribeTopicPartitions: order, pages and cursors, errors, and the description of a partition."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraft.broker.serving.gates import Operation
from kraft.image import MetadataImage, events
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.broker_harness import BrokerHarness, Denying
from tests.stages.images import ORDERS, image_of, orders, three_brokers

KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS


def image(*more: events.Event) -> MetadataImage:
    return image_of(*three_brokers(), *orders(), *more)


def alphabet(*sizes: int) -> tuple[events.Event, ...]:
    """Return topics named a, b, c … with the given numbers of partitions."""
    found: list[events.Event] = []
    for number, size in enumerate(sizes):
        topic_id = UUID(int=0x5000 + number)
        found.append(events.Topic("abcdefgh"[number], topic_id))
        found += [events.Partition(topic_id, index, (1,), (1,), leader=1) for index in range(size)]
    return tuple(found)


def ask(harness: BrokerHarness, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    topics = [{"name": name} for name in names]
    return harness.ask(KEY, 0, topics=topics, response_partition_limit=limit, cursor=at)


def pages(harness: BrokerHarness, *names: str, limit: int) -> list[list[tuple[str, int]]]:
    """Return the (topic, partition) pairs of each page, following the cursors until the last page."""
    found, cursor = [], None
    while True:
        response = ask(harness, *names, limit=limit, cursor=cursor)
        found.append([(topic.name, row.partition_index) for topic in response.topics for row in topic.partitions])
        if response.next_cursor is None:
            return found
        cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)


def test_a_partition_is_described_with_leader_in_sync_and_eligible_replicas() -> None:
    change = events.PartitionChange(ORDERS, 2, isr=(), elr=(3,), last_known_elr=(1,))
    (topic,) = ask(BrokerHarness(image(change)), "orders").topics
    assert (topic.error_code, topic.name, topic.topic_id, topic.is_internal) == (0, "orders", ORDERS, False)
    first, _, third = topic.partitions
    assert (first.error_code, first.leader_id, first.leader_epoch) == (0, 1, 4)
    assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ((1, 2, 3), (1, 2), (3,))
    assert (third.error_code, third.leader_id) == (0, -1), "that nobody leads it is told, and is no error"
    assert (third.eligible_leader_replicas, third.last_known_elr) == ((3,), (1,))


def test_describe_topic_partitions_omits_a_leader_without_the_clients_listener() -> None:
    response = BrokerHarness(image()).ask(KEY, 0, listener="OUTSIDE", topics=[{"name": "orders"}])
    partition = response.topics[0].partitions[1]
    assert (partition.error_code, partition.leader_id) == (0, -1)


def test_describe_topic_partitions_returns_each_topic_once_sorted_by_name() -> None:
    harness = BrokerHarness(image(*alphabet(1, 1)))
    assert [topic.name for topic in ask(harness, "orders", "b", "a", "b").topics] == ["a", "b", "orders"]
    assert [topic.name for topic in ask(harness).topics] == ["a", "b", "orders"]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
def test_pages_respect_the_requested_limit_and_together_contain_each_partition_once(limit: int) -> None:
    harness = BrokerHarness(image_of(*three_brokers(), *alphabet(3, 1, 4, 2)))
    found = pages(harness, limit=limit)
    assert all(len(page) == limit for page in found[:-1])
    flat = [row for page in found for row in page]
    assert flat == [(name, index) for name, size in (("a", 3), ("b", 1), ("c", 4), ("d", 2)) for index in range(size)]
    assert [row for page in pages(harness, "d", "a", limit=limit) for row in page] == [
        *(("a", index) for index in range(3)),
        *(("d", index) for index in range(2)),
    ]


def test_a_page_never_exceeds_max_request_partition_size_limit() -> None:
    harness = BrokerHarness(
        image_of(*three_brokers(), *alphabet(5)), properties={"max.request.partition.size.limit": "2"}
    )
    assert [len(page) for page in pages(harness, limit=100)] == [2, 2, 1]


def test_a_page_cursor_at_a_deleted_topic_continues_with_the_next_topic() -> None:
    harness = BrokerHarness(image_of(*three_brokers(), *alphabet(2, 2)))
    assert [topic.name for topic in ask(harness, cursor=("aa", 7)).topics] == ["b"]
    assert ask(harness, cursor=("a", 9)).topics[0].partitions == ()


@pytest.mark.parametrize("cursor", [("orders", -1), ("others", 0)])
def test_a_page_request_with_an_inconsistent_cursor_gets_invalid_request(cursor: tuple[str, int]) -> None:
    (topic,) = ask(BrokerHarness(image()), "orders", cursor=cursor).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


def test_unknown_invalid_and_forbidden_topics_get_errors_only_when_the_request_names_them() -> None:
    harness = BrokerHarness(image(*alphabet(1)), authorizer=Denying((Operation.DESCRIBE, "a")))
    found = {topic.name: topic.error_code for topic in ask(harness, "a", "no", "bad/name", "orders").topics}
    assert found == {
        "a": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "no": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "orders": 0,
    }
    assert [topic.name for topic in ask(harness).topics] == ["orders"]
