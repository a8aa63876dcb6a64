"""Topics with their eligible leader replicas: page by page, from brokers that know that request and that do not."""

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


def test_a_replica_that_is_out_of_sync_and_complete_is_eligible() -> None:
    async def work(stage: Stage) -> None:
        settings = {"min.insync.replicas": "2"}
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1, 2]}, configs=settings))
        stage.cluster.crash(2, lose_power=False, is_noticed=True)
        assert await stage.cluster.wait_until(lambda: is_eligible(stage, 2), 20_000)
        (described,) = await stage.admin.topics.describe_partitions(["t"])
        (part,) = described.partitions
        assert (part.isr, part.elr, part.last_known_elr) == ((1,), (2,), ())
        (other,) = (await stage.admin.topics.describe(["t"]))[0].partitions
        assert (other.isr, other.elr) == ((1,), ()), "Metadata does not tell it"

    play(work)


def is_eligible(stage: Stage, node_id: int) -> bool:
    topic = stage.cluster.image.topics.get("t")
    return topic is not None and node_id in topic.partition(0).elr


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 2_000])
def test_pages_are_followed_to_their_end(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
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
def test_brokers_that_do_not_know_the_request_are_asked_as_before() -> None:

    async def work(stage: Stage) -> None:
        await make_three_topics(stage)
        topics = stage.admin.topics
        assert [topic.name for topic in await topics.describe_partitions()] == ["a", "b", "c"]
        assert await topics.describe_partitions(["b"]) == await topics.describe(["b"])
        with pytest.raises(KafkaError, match="topic nothing"):
            await topics.describe_partitions(["b", "nothing"])

    play(work)


def test_a_topic_that_is_not_there_is_told_by_its_name() -> None:
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
    """An answer that tells these partitions of a topic."""
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


def test_a_broker_that_says_nothing_of_eligible_replicas_is_understood() -> None:
    pages = _Pages()
    pages.add(page(1, 0, then=None, elr=None))
    assert [(part.elr, part.last_known_elr) for part in pages.topics["t"].partitions] == [((), ())]


def test_a_topic_that_is_made_anew_between_two_pages_is_not_told_as_one() -> None:
    pages = _Pages()
    pages.add(page(1, 0, then=("t", 1)))
    with pytest.raises(KafkaError, match="topic t was deleted and made anew meanwhile") as refused:
        pages.add(page(2, 1, then=None))
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_topic_that_is_deleted_between_two_pages_is_not_told_by_its_first_part() -> None:
    pages = _Pages()
    pages.add(page(1, 0, then=("t", 1)))
    pages.add(page(2, 0, then=None, name="u"))
    assert list(pages.topics) == ["u"]


def test_a_topic_that_ends_with_its_page_is_whole() -> None:
    pages = _Pages()
    pages.add(page(1, 0, then=("u", 0)))
    pages.add(page(3, 0, then=None, name="v"))
    assert list(pages.topics) == ["t", "v"], "u is what was deleted"


@pytest.mark.parametrize("then", [("t", 1), ("t", 0), ("s", 9)])
def test_a_cursor_that_does_not_go_on_is_not_followed_for_ever(then: tuple[str, int]) -> None:
    pages = _Pages()
    pages.add(page(1, 0, then=("t", 1)))
    with pytest.raises(KafkaError, match="do not go on"):
        pages.add(page(1, 1, then=then))
