"""What a fetcher asks for, as a request says it, and the requests that it has sent."""

from __future__ import annotations

from uuid import UUID

from kraft.broker.serving.purgatory import Parked
from kraft.wire.client import ClientConnection
from kraft.wire.messages.fetch import FetchPartition

Key = tuple[UUID, int]
Wish = tuple[int, int, int, int]
"""(fetch offset, leader epoch, last fetched epoch, log start offset), as a request says it."""


class InFlight(Parked):
    """A request that was sent: what it mentioned and dropped. The connection ends if its answer does not come."""

    __slots__ = ("connection", "forgotten", "is_full", "mentioned")

    def __init__(
        self, connection: ClientConnection, *, is_full: bool, mentioned: dict[Key, Wish], forgotten: list[Key]
    ) -> None:
        self.bucket = -1
        self.connection = connection
        self.is_full = is_full
        self.mentioned = mentioned
        self.forgotten = forgotten

    def expire(self) -> None:
        self.connection.close("no answer to a fetch within replica.socket.timeout.ms")


def by_topic(wishes: dict[Key, Wish], bytes_max: int) -> list[tuple[None, UUID, list[FetchPartition]]]:
    """Neighbours of one topic stand together; the order stays, for it says who has room in the answer first."""
    topics: list[tuple[None, UUID, list[FetchPartition]]] = []
    for (topic_id, index), (offset, epoch, last_epoch, log_start) in wishes.items():
        if not topics or topics[-1][1] != topic_id:
            topics.append((None, topic_id, []))
        topics[-1][2].append(FetchPartition(index, epoch, offset, last_epoch, log_start, bytes_max))
    return topics


def forgotten_by_topic(keys: list[Key]) -> list[tuple[None, UUID, list[int]]]:
    """As a request names what is not fetched any more."""
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, []).append(index)
    return [(None, topic_id, indexes) for topic_id, indexes in topics.items()]
