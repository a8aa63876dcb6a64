"""Partitions: offsets, leaders, producers, reassignments, and deletion of the oldest records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kraft.client.admin.each_leader import EachLeader
from kraft.client.admin.routing import Router, by_topic, explain, require_success
from kraft.client.admin.values import ElectionType, FoundOffset, ProducerState, Reassignment
from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.requests import list_offsets_request
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
"""Values that `offsets` accepts instead of a time."""


class Partitions:
    """Describe and change partitions; requests for offsets, records and producers go to their leaders."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """Return the offset of each partition at EARLIEST, LATEST or MAX_TIMESTAMP, or of its first record at or after
        a time in ms since 1970 (-1 if there is none)."""
        return await self._router.ask_leaders(wanted, partial(self._ask_offsets, read_committed))

    async def offsets_of_each(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset | KafkaError]:
        """Do the same as `offsets`, but return an error such as LEADER_NOT_AVAILABLE for each partition whose offset is
        not available in time."""
        return await EachLeader(self._router, wanted, partial(self._ask_offsets, read_committed)).outcomes()

    async def _ask_offsets(
        self, read_committed: bool, node_id: int, share: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, FoundOffset]]:
        targets = {tp: (timestamp, -1) for tp, timestamp in share.items()}
        request = list_offsets_request(targets, read_committed=read_committed)
        answer = await self._router.ask_once(
            node_id,
            ApiKey.LIST_OFFSETS,
            replica_id=request.replica_id,
            isolation_level=request.isolation_level,
            topics=request.topics,
        )
        return {
            (str(topic.name), int(part.partition_index)): (
                int(part.error_code),
                FoundOffset(int(part.offset), int(part.timestamp), int(part.leader_epoch)),
            )
            for topic in answer.topics
            for part in topic.partitions
        }

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete all records below these offsets (-1: below the high watermark). Return the new first offset of each
        partition."""

        async def ask(node_id: int, share: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
            topics = [
                {
                    "name": topic,
                    "partitions": [{"partition_index": at, "offset": share[(topic, at)]} for at in indexes],
                }
                for topic, indexes in by_topic(share).items()
            ]
            answer = await self._router.ask_once(
                node_id, ApiKey.DELETE_RECORDS, topics=topics, timeout=self._router.request_timeout_ms
            )
            return {
                (str(topic.name), int(part.partition_index)): (int(part.error_code), int(part.low_watermark))
                for topic in answer.topics
                for part in topic.partitions
            }

        return await self._router.ask_leaders(before, ask)

    async def elect_leaders(
        self, election: ElectionType, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders of these partitions (None: of all partitions). Return the result of each election.
        ELECTION_NOT_NEEDED does not count as a failure."""
        wanted = None
        if partitions is not None:
            wanted = [{"topic": topic, "partitions": indexes} for topic, indexes in by_topic(partitions).items()]
        answer = await self._router.change(
            ApiKey.ELECT_LEADERS,
            lambda told: told.error_code,
            election_type=int(election),
            topic_partitions=wanted,
            timeout=self._router.change_timeout_ms,
        )
        require_success(answer, "the election")
        return {
            (str(topic.topic), int(part.partition_id)): _problem(part)
            for topic in answer.replica_election_results
            for part in topic.partition_result
        }

    async def reassign(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Start moving each partition to these replicas, of which the first is the preferred leader. None cancels a
        move that is in progress. Return the result of each request. The moves continue in the background."""
        topics = [
            {
                "name": topic,
                "partitions": [{"partition_index": at, "replicas": targets[(topic, at)]} for at in indexes],
            }
            for topic, indexes in by_topic(targets).items()
        ]
        answer = await self._router.change(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            lambda told: told.error_code,
            topics=topics,
            allow_replication_factor_change=allow_replication_factor_change,
            timeout=self._router.change_timeout_ms,
        )
        require_success(answer, "the reassignment")
        return {
            (str(topic.name), int(part.partition_index)): _problem(part)
            for topic in answer.responses
            for part in topic.partitions
        }

    async def reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments in progress of these partitions (None: of all partitions)."""
        wanted = None
        if partitions is not None:
            wanted = [{"name": topic, "partition_indexes": indexes} for topic, indexes in by_topic(partitions).items()]
        answer = await self._router.ask_controller(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            lambda told: told.error_code,
            topics=wanted,
            timeout=self._router.request_timeout_ms,
        )
        require_success(answer, "the list of reassignments")
        return {
            (str(topic.name), int(part.partition_index)): Reassignment(
                tuple(map(int, part.replicas)),
                tuple(map(int, part.adding_replicas)),
                tuple(map(int, part.removing_replicas)),
            )
            for topic in answer.topics
            for part in topic.partitions
        }

    async def producers(
        self, partitions: Iterable[TopicPartition], *, broker: int | None = None
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """Return the producers with a producer id that wrote to these partitions recently, as reported by the
        partitions' leaders, or by this broker, which has replicas of them."""

        async def ask(
            node_id: int, share: Mapping[TopicPartition, None]
        ) -> dict[TopicPartition, tuple[int, tuple[ProducerState, ...]]]:
            topics = [{"name": topic, "partition_indexes": indexes} for topic, indexes in by_topic(share).items()]
            answer = await self._router.ask_once(node_id, ApiKey.DESCRIBE_PRODUCERS, topics=topics)
            return {
                (str(topic.name), int(part.partition_index)): (
                    int(part.error_code),
                    tuple(_read_producer(state) for state in part.active_producers),
                )
                for topic in answer.topics
                for part in topic.partitions
            }

        wanted = dict.fromkeys(sorted(set(partitions)))
        if broker is None:
            return await self._router.ask_leaders(wanted, ask)
        found = await self._router.retry(partial(ask, broker, wanted), f"the producers at broker {broker}")
        for (topic, index), (code, _) in found.items():
            if code != ErrorCode.NONE:
                why = explain(ErrorCode.of(code))
                raise KafkaError(ErrorCode.of(code), f"{topic}-{index} at broker {broker}: {why}")
        return {tp: states for tp, (_, states) in found.items()}


def _problem(part: Any) -> KafkaError | None:
    code = ErrorCode.of(int(part.error_code))
    return None if code is ErrorCode.NONE else KafkaError(code, part.error_message or explain(code))


def _read_producer(state: Any) -> ProducerState:
    coordinator, start = int(state.coordinator_epoch), int(state.current_txn_start_offset)
    return ProducerState(
        int(state.producer_id),
        int(state.producer_epoch),
        int(state.last_sequence),
        int(state.last_timestamp),
        coordinator if coordinator >= 0 else None,
        start if start >= 0 else None,
    )
