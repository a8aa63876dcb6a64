"""CreatePartitions: authorised here, decided by the active controller. Source: CreatePartitionsRequest 0 to 3."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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


def handle_create_partitions(broker: Broker, request: Request, session: Session) -> None:
    """Answer what can be said here, forward the rest."""
    message = read(request)
    seen = Counter(topic.name for topic in message.topics)
    refused: dict[str, Any] = {}
    wanted: list[Any] = []
    for topic in message.topics:
        if seen[topic.name] > 1:
            refused[topic.name] = _result(
                topic.name, ErrorCode.INVALID_REQUEST, "the topic stands twice in the request"
            )
        elif not broker.gates.authorize_topic(session, Operation.ALTER, topic.name):
            refused[topic.name] = _result(
                topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "altering this topic is not allowed"
            )
        else:
            wanted.append(topic)

    def finish(response: Any) -> Any:
        return replace(response, results=(*response.results, *refused.values()))

    def failure(error: ErrorCode, text: str) -> Any:
        failed = (_result(topic.name, error, text) for topic in wanted)
        return respond(ApiKey.CREATE_PARTITIONS, results=(*failed, *refused.values()))

    forward(
        broker,
        request,
        session,
        replace(message, topics=tuple(wanted)),
        finish=finish,
        failure=failure,
        timeout_ms=milliseconds(message.timeout),
        mutations=sum(_added(broker, topic) for topic in wanted),
    )


def _added(broker: Broker, topic: Any) -> int:
    image = broker.image.topics.get(topic.name)
    count: int = topic.count
    return max(1, count - (image.partition_count if image is not None else 0))


def _result(name: str, error: ErrorCode, text: str) -> Any:
    return part(ApiKey.CREATE_PARTITIONS, "CreatePartitionsTopicResult")(
        name=name, error_code=error, error_message=text
    )
