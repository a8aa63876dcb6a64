"""KIP-951: the current leader of a partition and its address, for the response to a client that sent its request to
another broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kraft.image.partitions import NO_LEADER
from kraft.wire.messages.tagged import CurrentLeader, NodeEndpoint

if TYPE_CHECKING:
    from kraft.image.image import MetadataImage
    from kraft.image.partitions import TopicImage

HINTLESS = CurrentLeader()


def current_leader(topic: TopicImage | None, index: int) -> CurrentLeader:
    """Return leader id and leader epoch of a partition in the image; -1 and -1 if the image has no such partition."""
    state = topic.find(index) if topic is not None else None
    return HINTLESS if state is None else CurrentLeader(state.leader, state.leader_epoch)


def endpoints_of(image: MetadataImage, leaders: Iterable[CurrentLeader | None], listener: str) -> list[NodeEndpoint]:
    """Return the addresses on `listener` of those leaders that are alive, sorted and without duplicates."""
    ids = {leader.leader_id for leader in leaders if leader is not None and leader.leader_id != NO_LEADER}
    found: list[NodeEndpoint] = []
    for broker_id in sorted(ids):
        broker = image.brokers.get(broker_id)
        endpoint = broker.endpoint(listener) if broker is not None and not broker.fenced else None
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack))
    return found
