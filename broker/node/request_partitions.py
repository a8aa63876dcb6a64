"""Which partitions a request is about, with topic names: for reply rules that name a topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from kraft.wire.api_keys import ApiKey
from kraft.wire.messages.fetch import decode_fetch_request
from kraft.wire.messages.named_partitions import NamedPartition, named_partitions
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.node.broker import Broker


def request_partitions(broker: Broker, request: Request) -> list[NamedPartition]:
    """What the request names and, for a Fetch, what its session holds. Ids get their names if the topics are known.
    WireError if the request does not parse."""
    found = named_partitions(request.api_key, request.api_version, request.body)
    if request.api_key == ApiKey.FETCH:
        found += _of_session(broker, request)
    names = broker.image.topics
    return [
        one if one.topic is not None or one.topic_id is None else one._replace(topic=names.name_of(one.topic_id))
        for one in found
    ]


def _of_session(broker: Broker, request: Request) -> Iterator[NamedPartition]:
    fetch = decode_fetch_request(request.api_version, request.body)
    session = broker.replicas.fetch_sessions.peek(fetch.session_id)
    for topic, index in session.partitions if session is not None else ():
        if isinstance(topic, UUID):
            yield NamedPartition(None, topic, index)
        else:
            yield NamedPartition(topic, None, index)
