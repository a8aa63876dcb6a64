"""Find the partitions in a request, with their topic names, for fault rules that name a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from kraft.wire.api_keys import ApiKey
from kraft.wire.messages.fetch import decode_fetch_request
from kraft.wire.messages.named_partitions import NamedPartition, named_partitions
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.fetch.sessions import FetchSessionCache
    from kraft.image import MetadataImage


def request_partitions(
    newest_image: Callable[[], MetadataImage], sessions: FetchSessionCache, request: Request
) -> list[NamedPartition]:
    """Return the partitions that the request names and, for a Fetch, also those of its session. Topic ids are replaced
    by names if the topics are known. Raises WireError if the request does not parse."""
    found = named_partitions(request.api_key, request.api_version, request.body)
    if request.api_key == ApiKey.FETCH:
        found += _of_session(sessions, request)
    names = newest_image().topics
    return [
        one if one.topic is not None or one.topic_id is None else one._replace(topic=names.name_of(one.topic_id))
        for one in found
    ]


def _of_session(sessions: FetchSessionCache, request: Request) -> Iterator[NamedPartition]:
    fetch = decode_fetch_request(request.api_version, request.body)
    session = sessions.peek(fetch.session_id)
    for topic, index in session.partitions if session is not None else ():
        if isinstance(topic, UUID):
            yield NamedPartition(None, topic, index)
        else:
            yield NamedPartition(topic, None, index)
