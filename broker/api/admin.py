"""Admin requests that the active controller decides. They are forwarded unchanged, in the newest version.

The controller authorizes them for the client's principal, so that permissions are checked at one place. The responses
built here are only for the case that no controller answered. Source: KIP-590.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kraft.broker.api.forwarding import Forwarder
from kraft.broker.serving.request_versions import part, read, respond
from kraft.broker.serving.session import Session
from kraft.image import MetadataImage
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import milliseconds
from kraft.wire.server import Request

ANSWER_MS = 1_000
"""Milliseconds that the broker waits for the controller's response beyond the timeout that the controller got."""


def handle_create_topics(forwarder: Forwarder, request: Request, session: Session) -> None:
    """Create or reject each topic, independently of the other topics."""
    message = read(request)
    result = part(ApiKey.CREATE_TOPICS, "CreatableTopicResult")

    def failure(error: ErrorCode, text: str) -> Any:
        topics = [result(name=topic.name, error_code=error, error_message=text) for topic in message.topics]
        return respond(ApiKey.CREATE_TOPICS, topics=topics)

    forwarder.forward(
        request,
        session,
        message,
        failure,
        timeout_ms=milliseconds(message.timeout),
        mutations=sum(max(1, topic.num_partitions, len(topic.assignments)) for topic in message.topics),
    )


def handle_delete_topics(forwarder: Forwarder, request: Request, session: Session) -> None:
    """Delete topics, named by name or, from version 6, by id."""
    message = read(request)
    result = part(ApiKey.DELETE_TOPICS, "DeletableTopicResult")

    def failure(error: ErrorCode, text: str) -> Any:
        responses = [
            result(name=topic.name, topic_id=topic.topic_id, error_code=error, error_message=text)
            for topic in message.topics
        ]
        return respond(ApiKey.DELETE_TOPICS, responses=responses)

    forwarder.forward(
        request,
        session,
        message,
        failure,
        timeout_ms=milliseconds(message.timeout),
        mutations=_deleted_partitions(forwarder.newest_image(), message.topics),
    )


def handle_create_partitions(forwarder: Forwarder, request: Request, session: Session) -> None:
    """Add partitions to each topic, or reject the topic, independently of the other topics."""
    message = read(request)
    result = part(ApiKey.CREATE_PARTITIONS, "CreatePartitionsTopicResult")

    def failure(error: ErrorCode, text: str) -> Any:
        results = [result(name=topic.name, error_code=error, error_message=text) for topic in message.topics]
        return respond(ApiKey.CREATE_PARTITIONS, results=results)

    forwarder.forward(
        request,
        session,
        message,
        failure,
        timeout_ms=milliseconds(message.timeout),
        mutations=_added_partitions(forwarder.newest_image(), message.topics),
    )


def handle_elect_leaders(forwarder: Forwarder, request: Request, session: Session) -> None:
    """Start preferred or unclean leader elections on request."""
    message = read(request)

    def failure(error: ErrorCode, text: str) -> Any:
        return respond(ApiKey.ELECT_LEADERS, error_code=error)

    forwarder.forward(request, session, message, failure, timeout_ms=milliseconds(message.timeout))


def handle_describe_quorum(forwarder: Forwarder, request: Request, session: Session) -> None:
    """Describe the voters and observers of the metadata quorum, as the quorum's leader sees them."""

    def failure(error: ErrorCode, text: str) -> Any:
        return respond(ApiKey.DESCRIBE_QUORUM, error_code=error, error_message=text)

    forwarder.forward(request, session, read(request), failure)


def handle_update_features(forwarder: Forwarder, request: Request, session: Session) -> None:
    """Raise, lower or remove finalized features: either all features that the request names, or none."""
    message = read(request)

    def failure(error: ErrorCode, text: str) -> Any:
        return respond(ApiKey.UPDATE_FEATURES, error_code=error, error_message=text)

    forwarder.forward(request, session, message, failure, timeout_ms=milliseconds(message.timeout))


def handle_unregister_broker(forwarder: Forwarder, request: Request, session: Session) -> None:
    """Unregister a broker that was removed from the cluster."""

    def failure(error: ErrorCode, text: str) -> Any:
        return respond(ApiKey.UNREGISTER_BROKER, error_code=error, error_message=text)

    forwarder.forward(request, session, read(request), failure)


def handle_add_raft_voter(forwarder: Forwarder, request: Request, session: Session) -> None:
    """Make an observing controller a voter of the metadata quorum."""
    message = read(request)

    def failure(error: ErrorCode, text: str) -> Any:
        return respond(ApiKey.ADD_RAFT_VOTER, error_code=error, error_message=text)

    forwarder.forward(request, session, message, failure, timeout_ms=milliseconds(message.timeout) + ANSWER_MS)


def handle_remove_raft_voter(forwarder: Forwarder, request: Request, session: Session) -> None:
    """Remove a voter from the metadata quorum, whether it is alive or dead."""

    def failure(error: ErrorCode, text: str) -> Any:
        return respond(ApiKey.REMOVE_RAFT_VOTER, error_code=error, error_message=text)

    forwarder.forward(request, session, read(request), failure)


def _deleted_partitions(image: MetadataImage, topics: Iterable[Any]) -> int:
    """Return how many partitions these deletions remove. A topic that this broker does not know counts as 1."""
    found = (
        image.topics.get(topic.name) if topic.name is not None else image.topics.get_by_id(topic.topic_id)
        for topic in topics
    )
    return sum(1 if topic is None else topic.partition_count for topic in found)


def _added_partitions(image: MetadataImage, topics: Iterable[Any]) -> int:
    """Return how many partitions these requests add, at least 1 for each request."""
    known = ((topic.count, image.topics.get(topic.name)) for topic in topics)
    return sum(max(1, count - (topic.partition_count if topic is not None else 0)) for count, topic in known)
