"""Topics: create, list and describe them, add partitions, and delete them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import trio

from kraft.client.admin.routing import Router, require_success
from kraft.client.admin.values import CreatedTopic, NewTopic, PartitionDescription, TopicDescription
from kraft.client.connections import CONNECTION_FAILURES, VersionMismatch
from kraft.client.core.records import KafkaError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

PAGE_PARTITIONS_MAX = 2_000
"""Maximum partitions in one DescribeTopicPartitions response, as in Kafka's clients; brokers may return fewer."""

SETTLE_MS_MAX = 2_000
SETTLE_PAUSE_MS = 10
UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
NO_SUCH_TOPIC = UNKNOWN_TOPIC | {ErrorCode.INVALID_TOPIC_EXCEPTION}


class Topics:
    """List, describe and change topics. A change returns once every broker that responds has applied it."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def create(self, topic: NewTopic, *, validate_only: bool = False) -> CreatedTopic:
        """Create a topic, or only validate the request. Raise KafkaError with the controller's reason if it is
        rejected."""
        assignments = [{"partition_index": at, "broker_ids": list(ids)} for at, ids in sorted(topic.assignment.items())]
        row = {
            "name": topic.name,
            "num_partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "assignments": assignments,
            "configs": [{"name": key, "value": value} for key, value in topic.configs.items()],
        }
        answer = await self._router.change(
            ApiKey.CREATE_TOPICS,
            lambda told: told.topics[0].error_code,
            topics=(row,),
            timeout=self._router.change_timeout_ms,
            validate_only=validate_only,
        )
        created = answer.topics[0]
        require_success(created, f"topic {topic.name}")
        if not validate_only:
            await self._wait_until_applied(topic.name, lambda told: told.error_code == ErrorCode.NONE)
        return CreatedTopic(topic.name, int(created.num_partitions), int(created.replication_factor))

    async def delete(self, name: str) -> None:
        """Delete a topic and its records."""
        answer = await self._router.change(
            ApiKey.DELETE_TOPICS,
            lambda told: told.responses[0].error_code,
            topics=({"name": name, "topic_id": None},),
            timeout=self._router.change_timeout_ms,
        )
        require_success(answer.responses[0], f"topic {name}")
        await self._wait_until_applied(name, lambda told: told.error_code in UNKNOWN_TOPIC)

    async def add_partitions(self, name: str, count: int) -> None:
        """Increase a topic's number of partitions to `count`."""
        answer = await self._router.change(
            ApiKey.CREATE_PARTITIONS,
            lambda told: told.results[0].error_code,
            topics=({"name": name, "count": count, "assignments": None},),
            timeout=self._router.change_timeout_ms,
        )
        require_success(answer.results[0], f"topic {name}")
        await self._wait_until_applied(name, lambda told: len(told.partitions) == count)

    async def list(self) -> tuple[TopicDescription, ...]:
        """Return all topics that this client may see, by name."""
        answer = await self._router.ask_any(ApiKey.METADATA, topics=None, allow_auto_topic_creation=False)
        return tuple(_read_topic(topic) for topic in sorted(answer.topics, key=lambda told: str(told.name)))

    async def describe(self, names: Iterable[str], *, skip_unknown: bool = False) -> tuple[TopicDescription, ...]:
        """Return these topics, in the order given. Raise KafkaError for the first topic that cannot be described. With
        `skip_unknown`, topics that do not exist or have an invalid name are left out instead."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return ()
        rows = tuple({"topic_id": None, "name": name} for name in wanted)
        answer = await self._router.ask_any(ApiKey.METADATA, topics=rows, allow_auto_topic_creation=False)
        told = {str(topic.name): topic for topic in answer.topics}
        if skip_unknown:
            wanted = [name for name in wanted if name in told and told[name].error_code not in NO_SUCH_TOPIC]
        for name in wanted:
            if name not in told:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            require_success(told[name], f"topic {name}")
        return tuple(_read_topic(told[name]) for name in wanted)

    async def describe_partitions(self, names: Iterable[str] | None = None) -> tuple[TopicDescription, ...]:
        """Return the same as `describe`, with the controller's data about each partition (eligible leader replicas).
        Topics are in the order given; None stands for all topics, by name. As many requests as necessary are sent. For
        a cluster without DescribeTopicPartitions, return only the data of `describe` or `list`. Raise KafkaError as in
        `describe`."""
        wanted = None if names is None else list(dict.fromkeys(names))
        try:
            return await self._describe_in_pages(wanted) if wanted is None or wanted else ()
        except VersionMismatch:
            return await self.list() if wanted is None else await self.describe(wanted)

    async def _describe_in_pages(self, wanted: Sequence[str] | None) -> tuple[TopicDescription, ...]:
        """Request the topics in pages. `wanted` is None or has at least one name, because a request without names
        stands for all topics."""
        rows = tuple({"name": name} for name in wanted or ())
        pages = _Pages()
        while not pages.are_all:
            answer = await self._router.ask_any(
                ApiKey.DESCRIBE_TOPIC_PARTITIONS,
                topics=rows,
                response_partition_limit=PAGE_PARTITIONS_MAX,
                cursor=pages.cursor,
            )
            pages.add(answer)
        for name in wanted or ():
            if name not in pages.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return tuple(pages.topics[name] for name in (sorted(pages.topics) if wanted is None else wanted))

    async def _wait_until_applied(self, name: str, is_settled: Callable[[Any], bool]) -> None:
        """Wait until every broker has applied the change, so that the next request sees it at any broker. Brokers that
        do not respond are skipped."""
        cluster = self._router.cluster
        await self._router.refresh([])
        topics = ({"topic_id": None, "name": name},)
        with trio.move_on_after(SETTLE_MS_MAX / 1000):
            for node_id in sorted(cluster.brokers):
                with suppress(*CONNECTION_FAILURES, KafkaError):
                    while True:
                        answer = await self._router.ask_once(
                            node_id, ApiKey.METADATA, topics=topics, allow_auto_topic_creation=False
                        )
                        if is_settled(answer.topics[0]):
                            break
                        await cluster.seam.clock.sleep_ms(SETTLE_PAUSE_MS)


class _Pages:
    """DescribeTopicPartitions responses, combined. `cursor` is the place at which the next page begins."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicDescription] = {}
        self.cursor: dict[str, Any] | None = None
        self.are_all = False
        self._place = ("", -1)

    def add(self, answer: Any) -> None:
        """Add one page. Raise KafkaError for a topic that cannot be described, or for a cursor that does not
        advance."""
        self._drop_deleted({str(told.name) for told in answer.topics})
        for told in answer.topics:
            require_success(told, f"topic {told.name}")
            self._add_topic(_read_topic(told))
        following = answer.next_cursor
        self.are_all = following is None
        if following is None:
            return
        place = (str(following.topic_name), int(following.partition_index))
        if place <= self._place:
            problem = f"the pages of topic descriptions do not advance: a page at {place} follows one at {self._place}"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, problem)
        self._place = place
        self.cursor = {"topic_name": place[0], "partition_index": place[1]}

    def _drop_deleted(self, names: Container[str]) -> None:
        """Drop an incomplete topic that this page should continue and does not contain. It was deleted between the two
        pages."""
        name, index = self._place
        if index > 0 and name not in names:
            self.topics.pop(name, None)

    def _add_topic(self, topic: TopicDescription) -> None:
        """Add a topic, or append its partitions if an earlier page had the first ones. Raise KafkaError if the topic
        was deleted and recreated between the two pages."""
        known = self.topics.get(topic.name)
        if known is not None:
            if known.topic_id != topic.topic_id:
                problem = f"topic {topic.name} was deleted and recreated meanwhile: try again"
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, problem)
            topic = replace(topic, partitions=known.partitions + topic.partitions)
        self.topics[topic.name] = topic


def _read_topic(told: Any) -> TopicDescription:
    """Return the topic that a Metadata or DescribeTopicPartitions response describes."""
    name = str(told.name)
    partitions = tuple(
        PartitionDescription(
            name,
            int(part.partition_index),
            int(part.leader_id) if part.leader_id >= 0 else None,
            int(part.leader_epoch),
            _node_ids(part.replica_nodes),
            _node_ids(part.isr_nodes),
            _node_ids(part.offline_replicas),
            _node_ids(getattr(part, "eligible_leader_replicas", None)),
            _node_ids(getattr(part, "last_known_elr", None)),
        )
        for part in sorted(told.partitions, key=lambda part: int(part.partition_index))
    )
    return TopicDescription(name, told.topic_id, bool(told.is_internal), partitions)


def _node_ids(told: Any) -> tuple[int, ...]:
    """Return the node ids in a field; none if the message version has no such field, or the broker does not set it."""
    return tuple(told) if told else ()
