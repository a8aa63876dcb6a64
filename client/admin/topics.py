"""Topics: create, list, describe, grow and delete them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import trio

from kraft.client.admin.routing import Router, require_success
from kraft.client.admin.values import CreatedTopic, NewTopic, PartitionDescription, TopicDescription
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import KafkaError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

SETTLE_MS_MAX = 2_000
SETTLE_PAUSE_MS = 10
UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class Topics:
    """What an admin client can do with topics. A change returns when every broker that answers tells of it."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def create(self, topic: NewTopic, *, validate_only: bool = False) -> CreatedTopic:
        """Create a topic, or only ask whether it could be. KafkaError with the controller's reason."""
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
            await self._settle(topic.name, lambda told: told.error_code == ErrorCode.NONE)
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
        await self._settle(name, lambda told: told.error_code in UNKNOWN_TOPIC)

    async def add_partitions(self, name: str, count: int) -> None:
        """Raise a topic's number of partitions to `count`."""
        answer = await self._router.change(
            ApiKey.CREATE_PARTITIONS,
            lambda told: told.results[0].error_code,
            topics=({"name": name, "count": count, "assignments": None},),
            timeout=self._router.change_timeout_ms,
        )
        require_success(answer.results[0], f"topic {name}")
        await self._settle(name, lambda told: len(told.partitions) == count)

    async def list(self) -> tuple[TopicDescription, ...]:
        """All topics that this client may see, by name."""
        answer = await self._router.ask_any(ApiKey.METADATA, topics=None, allow_auto_topic_creation=False)
        return tuple(_read_topic(topic) for topic in sorted(answer.topics, key=lambda told: str(told.name)))

    async def describe(self, names: Iterable[str]) -> tuple[TopicDescription, ...]:
        """These topics, in the order given. KafkaError for the first that cannot be described."""
        wanted = list(dict.fromkeys(names))
        rows = tuple({"topic_id": None, "name": name} for name in wanted)
        answer = await self._router.ask_any(ApiKey.METADATA, topics=rows, allow_auto_topic_creation=False)
        told = {str(topic.name): topic for topic in answer.topics}
        for name in wanted:
            if name not in told:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
            require_success(told[name], f"topic {name}")
        return tuple(_read_topic(told[name]) for name in wanted)

    async def _settle(self, name: str, is_settled: Callable[[Any], bool]) -> None:
        """Wait until every broker tells the change, so that the next request sees it whomever it asks. A broker that
        does not answer is not waited for."""
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


def _read_topic(told: Any) -> TopicDescription:
    name = str(told.name)
    partitions = tuple(
        PartitionDescription(
            name,
            int(part.partition_index),
            int(part.leader_id) if part.leader_id >= 0 else None,
            int(part.leader_epoch),
            tuple(int(node) for node in part.replica_nodes),
            tuple(int(node) for node in part.isr_nodes),
            tuple(int(node) for node in part.offline_replicas),
        )
        for part in sorted(told.partitions, key=lambda part: int(part.partition_index))
    )
    return TopicDescription(name, told.topic_id, bool(told.is_internal), partitions)
