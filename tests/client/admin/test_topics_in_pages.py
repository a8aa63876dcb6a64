"""Topics with their eligible leader replicas, requested in pages from brokers with and without
DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from kraft.client import KafkaError
from kraft.client.admin import NewTopic
from kraft.client.admin import topics as admin_topics
from kraft.client.admin.topics import _Pages
from kraft.wire import messages
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.admin_client import Stage, play
from tests.stages.tables import shown_as

KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS


async def make_three_topics(stage: Stage) -> None:
    for name, partitions in (("b", 3), ("a", 1), ("c", 4)):
        await stage.admin.topics.create(NewTopic(name, partitions))


def test_a_described_partition_lists_its_eligible_leader_replicas() -> None:
    async def work(stage: Stage) -> None:
        settings = {"min.insync.replicas": "2"}
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1, 2]}, configs=settings))
        stage.cluster.crash(2, lose_power=False, is_noticed=True)
        assert await stage.cluster.wait_until(lambda: is_eligible(stage, 2), 20_000)
        (described,) = await stage.admin.topics.describe_partitions(["t"])
        (part,) = described.partitions
        assert (part.isr, part.elr, part.last_known_elr) == ((1,), (2,), ())
        (other,) = (await stage.admin.topics.describe(["t"]))[0].partitions
        assert (other.isr, other.elr) == ((1,), ()), "Metadata responses do not contain it"

    play(work)


def is_eligible(stage: Stage, node_id: int) -> bool:
    topic = stage.cluster.image.topics.get("t")
    return topic is not None and node_id in topic.partition(0).elr


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 2_000])
def test_describing_partitions_requests_all_pages(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(admin_topics, "PAGE_PARTITIONS_MAX", limit)

    async def work(stage: Stage) -> None:
        await make_three_topics(stage)
        topics = stage.admin.topics
        assert await topics.describe_partitions() == await topics.list()
        assert await topics.describe_partitions(["c", "a", "c"]) == await topics.describe(["c", "a"])
        assert await topics.describe_partitions([]) == ()

    play(work)


@pytest.fixture
def brokers_without_the_request() -> Iterator[None]:
    with shown_as(BROKER_APIS, {key: row for key, row in BROKER_APIS.items() if key != KEY}):
        yield


@pytest.mark.usefixtures("brokers_without_the_request")
def test_describing_partitions_falls_back_to_metadata_at_older_brokers() -> None:

    async def work(stage: Stage) -> None:
        await make_three_topics(stage)
        topics = stage.admin.topics
        assert [topic.name for topic in await topics.describe_partitions()] == ["a", "b", "c"]
        assert await topics.describe_partitions(["b"]) == await topics.describe(["b"])
        with pytest.raises(KafkaError, match="topic nothing"):
            await topics.describe_partitions(["b", "nothing"])

    play(work)


def test_describing_partitions_of_an_unknown_topic_names_it_in_the_error() -> None:
    async def work(stage: Stage) -> None:
        await make_three_topics(stage)
        with pytest.raises(KafkaError, match="topic nothing") as missing:
            await stage.admin.topics.describe_partitions(["a", "nothing"])
        assert missing.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(work)


def page(
    topic_id: int,
    *indexes: int,
    then: tuple[str, int] | None,
    elr: tuple[int, ...] | None = (),
    name: str = "t",
) -> Any:
    """Return a DescribeTopicPartitions response with these partitions of a topic."""
    parts = [
        {
            "partition_index": index,
            "leader_id": 1,
            "replica_nodes": (1,),
            "isr_nodes": (1,),
            "eligible_leader_replicas": elr,
            "last_known_elr": elr,
            "offline_replicas": (),
        }
        for index in indexes
    ]
    topics = [{"name": name, "topic_id": UUID(int=topic_id), "partitions": parts}]
    cursor = None if then is None else {"topic_name": then[0], "partition_index": then[1]}
    return messages.build(messages.response_class(KEY), topics=topics, next_cursor=cursor)


def test_null_eligible_replicas_in_a_topic_description_are_returned_as_an_empty_tuple() -> None:
    pages = _Pages()
    pages.add(page(1, 0, then=None, elr=None))
    assert [(part.elr, part.last_known_elr) for part in pages.topics["t"].partitions] == [((), ())]


def test_a_topic_recreated_between_two_pages_is_an_error() -> None:
    pages = _Pages()
    pages.add(page(1, 0, then=("t", 1)))
    with pytest.raises(KafkaError, match="topic t was deleted and recreated meanwhile") as refused:
        pages.add(page(2, 1, then=None))
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_topic_deleted_between_two_pages_is_left_out() -> None:
    pages = _Pages()
    pages.add(page(1, 0, then=("t", 1)))
    pages.add(page(2, 0, then=None, name="u"))
    assert list(pages.topics) == ["u"]


def test_a_topic_whose_last_partition_ends_a_page_is_kept_in_the_description() -> None:
    pages = _Pages()
    pages.add(page(1, 0, then=("u", 0)))
    pages.add(page(3, 0, then=None, name="v"))
    assert list(pages.topics) == ["t", "v"], "u was deleted"


@pytest.mark.parametrize("then", [("t", 1), ("t", 0), ("s", 9)])
def test_a_topic_description_whose_page_cursor_does_not_advance_is_an_error(then: tuple[str, int]) -> None:
    pages = _Pages()
    pages.add(page(1, 0, then=("t", 1)))
    with pytest.raises(KafkaError, match="do not advance"):
        pages.add(page(1, 1, then=then))
