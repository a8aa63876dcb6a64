"""The offsets of share groups: read, change and delete them. `Groups` lists, describes and deletes the groups.

Source: DescribeShareGroupOffsetsRequest, AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest, KIP-932,
Kafka's KafkaAdminClient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraft.client.admin.groups import named_group
from kraft.client.admin.routing import Router, by_topic, require_success
from kraft.client.admin.values import ShareOffset
from kraft.client.core.records import CommittedOffset, TopicPartition
from kraft.wire.api_keys import ApiKey


class ShareGroups:
    """Read and change the start offsets of share groups; each request goes to the group's coordinator."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def offsets(self, group_id: str) -> dict[TopicPartition, ShareOffset]:
        """Return the start offset of each partition that a share group reads. Raise KafkaError GROUP_ID_NOT_FOUND if
        there is no such share group."""
        _, answer = await self._router.ask_coordinator(
            group_id,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            lambda told: told.groups[0].error_code,
            groups=({"group_id": group_id, "topics": None},),
        )
        (group,) = answer.groups
        require_success(group, named_group(group_id))
        found: dict[TopicPartition, ShareOffset] = {}
        for topic in group.topics:
            for part in topic.partitions:
                place = (str(topic.topic_name), int(part.partition_index))
                require_success(part, f"{named_group(group_id)}, {place[0]}-{place[1]}")
                found[place] = ShareOffset(_known(part.start_offset), _known(getattr(part, "lag", -1)))
        return found

    async def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset | int]) -> None:
        """Set the start offsets of a share group without members. Raise KafkaError NON_EMPTY_GROUP if it has some."""
        topics = [
            {
                "topic_name": topic,
                "partitions": [
                    {"partition_index": index, "start_offset": _offset(offsets[(topic, index)])} for index in indexes
                ],
            }
            for topic, indexes in by_topic(offsets).items()
        ]
        _, answer = await self._router.ask_coordinator(
            group_id,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            lambda told: told.error_code,
            group_id=group_id,
            topics=topics,
        )
        require_success(answer, named_group(group_id))
        for topic in answer.responses:
            for part in topic.partitions:
                require_success(part, f"{named_group(group_id)}, {topic.topic_name}-{int(part.partition_index)}")

    async def delete_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        """Delete the start offsets of a share group without members, in all partitions of these topics. If the group
        reads such a topic again, it begins where its setting share.auto.offset.reset says."""
        _, answer = await self._router.ask_coordinator(
            group_id,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            lambda told: told.error_code,
            group_id=group_id,
            topics=[{"topic_name": name} for name in sorted(set(topics))],
        )
        require_success(answer, named_group(group_id))
        for topic in answer.responses:
            require_success(topic, f"{named_group(group_id)}, {topic.topic_name}")


def _offset(given: CommittedOffset | int) -> int:
    return given.offset if isinstance(given, CommittedOffset) else given


def _known(value: int) -> int | None:
    """Return a number of a response; None for -1, which means that it is not known."""
    return None if value < 0 else int(value)
