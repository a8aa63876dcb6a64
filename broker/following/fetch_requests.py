"""The partitions of a fetch request, and the record of the requests that a fetcher has sent."""

from __future__ import annotations

from uuid import UUID

from kraft.broker.serving.purgatory import Parked
from kraft.wire.client import ClientConnection
from kraft.wire.messages.fetch import FetchPartition

Key = tuple[UUID, int]
RequestedFetch = tuple[int, int, int, int]
"""The values for one partition in a fetch request: (fetch offset, leader epoch, last fetched epoch, log start offset).
"""


class InFlight(Parked):
    """A request that was sent: the partitions that it named, and the partitions that it removed from the session. If no
    response arrives in time, the connection is closed."""

    __slots__ = ("connection", "forgotten", "is_full", "mentioned")

    def __init__(
        self, connection: ClientConnection, *, is_full: bool, mentioned: dict[Key, RequestedFetch], forgotten: list[Key]
    ) -> None:
        self.bucket = -1
        self.connection = connection
        self.is_full = is_full
        self.mentioned = mentioned
        self.forgotten = forgotten

    def expire(self) -> None:
        self.connection.close("no answer to a fetch within replica.socket.timeout.ms")


def by_topic(requested: dict[Key, RequestedFetch], bytes_max: int) -> list[tuple[None, UUID, list[FetchPartition]]]:
    """Return the partitions as rows of a request, with neighboring partitions of one topic in one row. Their order does
    not change, because it decides which partitions first get room in the response."""
    topics: list[tuple[None, UUID, list[FetchPartition]]] = []
    for (topic_id, index), (offset, epoch, last_epoch, log_start) in requested.items():
        if not topics or topics[-1][1] != topic_id:
            topics.append((None, topic_id, []))
        topics[-1][2].append(FetchPartition(index, epoch, offset, last_epoch, log_start, bytes_max))
    return topics


def forgotten_by_topic(keys: list[Key]) -> list[tuple[None, UUID, list[int]]]:
    """Group the partitions that a request removes from the session by topic."""
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, []).append(index)
    return [(None, topic_id, indexes) for topic_id, indexes in topics.items()]
