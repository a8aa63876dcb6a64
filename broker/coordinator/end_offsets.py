"""EndOffsets: ask the leaders of partitions for their high watermarks, for the lag of share groups.

Source: KIP-1226, ListOffsetsRequest 7, Kafka's NetworkPartitionMetadataClient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kraft.broker.serving.request_versions import request_part
from kraft.image.partitions import NO_LEADER
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.image import MetadataImage

KEY = ApiKey.LIST_OFFSETS
VERSION = 7
LATEST = -1
CONSUMER = -1

Place = tuple[UUID, int]
SendRequest = Callable[[int, int, int, Any, Callable[[Any], None]], None]
"""Function that sends a request: (broker id, API key, version, request, callback). The callback gets the response, or
None if there is none."""


class EndOffsets:
    """Finds high watermarks. No method is a coroutine."""

    def __init__(
        self,
        node_id: int,
        newest_image: Callable[[], MetadataImage],
        find: Callable[[UUID, int], Partition | None],
        *,
        send: SendRequest,
    ) -> None:
        self._node_id = node_id
        self._newest_image = newest_image
        self._find = find
        self._send = send

    def ask(self, wanted: Iterable[Place], then: Callable[[dict[Place, int]], None]) -> None:
        """Call `then` with the high watermark of each partition whose leader answers, now or later."""
        found: dict[Place, int] = {}
        by_leader: dict[int, list[Place]] = {}
        for place in wanted:
            by_leader.setdefault(self._leader_of(place), []).append(place)
        by_leader.pop(NO_LEADER, None)
        for place in by_leader.pop(self._node_id, ()):
            partition = self._find(*place)
            if partition is not None and partition.leader is not None:
                found[place] = partition.high_watermark
        missing = len(by_leader)

        def answered(response: Any) -> None:
            nonlocal missing
            missing -= 1
            if response is not None:
                found.update(self._offsets_in(response))
            if not missing:
                then(found)

        if not missing:
            then(found)
        for broker_id, places in by_leader.items():
            self._send(broker_id, KEY, VERSION, self._request(places), answered)

    def _leader_of(self, place: Place) -> int:
        topic = self._newest_image().topics.get_by_id(place[0])
        state = None if topic is None else topic.find(place[1])
        return NO_LEADER if state is None else state.leader

    def _request(self, places: list[Place]) -> Any:
        row, topic_part = request_part(KEY, "ListOffsetsPartition"), request_part(KEY, "ListOffsetsTopic")
        make_row = partial(row, current_leader_epoch=-1, timestamp=LATEST)
        topics = self._newest_image().topics
        rows = [
            topic_part(name=topics.name_of(topic_id) or "", partitions=[make_row(partition_index=index)])
            for topic_id, index in places
        ]
        return messages.build(messages.request_class(KEY), replica_id=CONSUMER, topics=rows)

    def _offsets_in(self, response: Any) -> dict[Place, int]:
        topics = self._newest_image().topics
        found: dict[Place, int] = {}
        for answered in response.topics:
            topic = topics.get(answered.name)
            for row in answered.partitions:
                if topic is not None and row.error_code == ErrorCode.NONE:
                    found[topic.topic_id, row.partition_index] = row.offset
        return found
