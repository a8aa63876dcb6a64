"""DeleteTopics, by name or by id: authorised here, decided by the active controller.

A topic id that the client may not describe is answered without its name. Source: DeleteTopicsRequest 1 to 6, KIP-516.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kraft.broker.api.answers import part, read, respond
from kraft.broker.api.forwarding import forward
from kraft.broker.node.gates import Operation
from kraft.broker.node.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import milliseconds
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.node.broker import Broker

NO_TOPIC_ID = UUID(int=0)


def handle_delete_topics(broker: Broker, request: Request, session: Session) -> None:
    """Answer what can be said here, forward the rest."""
    message = read(request)
    seen = Counter((topic.name, topic.topic_id) for topic in message.topics)
    refused: dict[Any, Any] = {}
    wanted: list[Any] = []
    for topic in message.topics:
        key = (topic.name, topic.topic_id)
        if seen[key] > 1:
            refused[key] = _result(topic, ErrorCode.INVALID_REQUEST, "the topic stands twice in the request")
        elif (refusal := _refusal(broker, session, topic)) is not None:
            refused[key] = refusal
        else:
            wanted.append(topic)

    def finish(response: Any) -> Any:
        return replace(response, responses=(*response.responses, *refused.values()))

    def failure(error: ErrorCode, text: str) -> Any:
        failed = (_result(topic, error, text) for topic in wanted)
        return respond(ApiKey.DELETE_TOPICS, responses=(*failed, *refused.values()))

    forward(
        broker,
        request,
        session,
        replace(message, topics=tuple(wanted)),
        finish=finish,
        failure=failure,
        timeout_ms=milliseconds(message.timeout),
        mutations=sum(_partitions(broker, topic) for topic in wanted),
    )


def _refusal(broker: Broker, session: Session, topic: Any) -> Any | None:
    gates = broker.gates
    by_id = topic.topic_id is not None and topic.topic_id != NO_TOPIC_ID
    if by_id and topic.name is not None:
        return _result(topic, ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id, not by both")
    if not by_id and topic.name is None:
        return _result(topic, ErrorCode.INVALID_REQUEST, "neither the name nor the id of the topic is given")
    name = broker.image.topics.name_of(topic.topic_id) if by_id else topic.name
    if name is None:
        return None
    if by_id and not gates.authorize_topic(session, Operation.DESCRIBE, name):
        return _result(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "describing this topic is not allowed")
    if not gates.authorize_topic(session, Operation.DELETE, name):
        shown = replace(topic, name=name)
        return _result(shown, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "deleting this topic is not allowed")
    return None


def _partitions(broker: Broker, topic: Any) -> int:
    topics = broker.image.topics
    image = topics.get(topic.name) if topic.name is not None else topics.get_by_id(topic.topic_id)
    return 1 if image is None else image.partition_count


def _result(topic: Any, error: ErrorCode, text: str) -> Any:
    return part(ApiKey.DELETE_TOPICS, "DeletableTopicResult")(
        name=topic.name, topic_id=topic.topic_id, error_code=error, error_message=text
    )
