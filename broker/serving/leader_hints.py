"""KIP-951: who leads a partition now, and where, for the answer to somebody who asked the wrong broker."""

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
    """Leader id and epoch of a partition as the image has them; -1 and -1 if it has none."""
    state = topic.find(index) if topic is not None else None
    return HINTLESS if state is None else CurrentLeader(state.leader, state.leader_epoch)


def endpoints_of(image: MetadataImage, leaders: Iterable[CurrentLeader | None], listener: str) -> list[NodeEndpoint]:
    """Where those of the leaders are reached on `listener` that are alive; sorted, each once."""
    ids = {leader.leader_id for leader in leaders if leader is not None and leader.leader_id != NO_LEADER}
    found: list[NodeEndpoint] = []
    for broker_id in sorted(ids):
        broker = image.brokers.get(broker_id)
        endpoint = broker.endpoint(listener) if broker is not None and not broker.fenced else None
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack))
    return found
