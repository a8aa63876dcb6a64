"""CreateTopics: authorised here, decided by the active controller.

Who may create in the whole cluster may create every topic, else the right is asked per topic; the configs of what was
created are told only to who may describe them. Source: CreateTopicsRequest 2 to 7, KIP-195, KIP-525.
"""

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

METADATA_TOPIC = "__cluster_metadata"


def handle_create_topics(broker: Broker, request: Request, session: Session) -> None:
    """Answer what can be said here, forward the rest."""
    message = read(request)
    may_create_all = broker.gates.authorize_cluster(session, Operation.CREATE)
    seen = Counter(topic.name for topic in message.topics)
    refused: dict[str, Any] = {}
    wanted: list[Any] = []
    for topic in message.topics:
        name = topic.name
        if seen[name] > 1:
            refused[name] = _result(name, ErrorCode.INVALID_REQUEST, "the topic stands twice in the request")
        elif name == METADATA_TOPIC:
            refused[name] = _result(name, ErrorCode.INVALID_REQUEST, f"{METADATA_TOPIC} is the cluster's own log")
        elif not (may_create_all or broker.gates.authorize_topic(session, Operation.CREATE, name)):
            refused[name] = _result(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "creating this topic is not allowed")
        else:
            wanted.append(topic)

    def finish(response: Any) -> Any:
        created = (_visible(broker, session, topic) for topic in response.topics)
        return replace(response, topics=(*created, *refused.values()))

    def failure(error: ErrorCode, text: str) -> Any:
        failed = (_result(topic.name, error, text) for topic in wanted)
        return respond(ApiKey.CREATE_TOPICS, topics=(*failed, *refused.values()))

    forward(
        broker,
        request,
        session,
        replace(message, topics=tuple(wanted)),
        finish=finish,
        failure=failure,
        timeout_ms=milliseconds(message.timeout),
        mutations=sum(max(1, topic.num_partitions, len(topic.assignments)) for topic in wanted),
    )


def _result(name: str, error: ErrorCode, text: str) -> Any:
    return part(ApiKey.CREATE_TOPICS, "CreatableTopicResult")(name=name, error_code=error, error_message=text)


def _visible(broker: Broker, session: Session, topic: Any) -> Any:
    if topic.error_code or broker.gates.authorize_topic(session, Operation.DESCRIBE_CONFIGS, topic.name):
        return topic
    return replace(
        topic,
        topic_config_error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        num_partitions=-1,
        replication_factor=-1,
        configs=(),
    )
