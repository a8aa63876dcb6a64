"""DescribeConfigs: every key of a topic, of a group, of this broker, or of all brokers, with the sources of its value.

A broker describes itself and the cluster's defaults. For the configs of another broker, a client sends its request to
that broker. Source: DescribeConfigsRequest 1 to 4, KIP-133, KIP-226, KIP-569.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kraft.broker.serving.config_entries import (
    BrokerLayers,
    ConfigOrigin,
    DescribedKey,
    broker_entries,
    cluster_entries,
    group_entries,
    topic_entries,
)
from kraft.broker.serving.gates import Gates, Operation, Resource, ResourceType
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.broker.serving.turns import Steps
from kraft.control.topics.create_delete import NO_SUCH_TOPIC
from kraft.control.topics.names import topic_name_problem
from kraft.image import ConfigResourceType, config_type_name
from kraft.node.loggers.levels import RefusedLevels, logger_levels_of
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext


class ConfigsRefused(Exception):
    """Raised when a resource cannot be described; it has the error code and text of the response."""

    def __init__(self, error: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.error = error


def handle_describe_configs(context: HandlerContext, request: Request, session: Session) -> Steps:
    """Describe each resource; each succeeds or fails independently."""
    return _answer_in_steps(context, request, session, read(request))


def _answer_in_steps(context: HandlerContext, request: Request, session: Session, message: Any) -> Steps:
    results: list[Any] = []
    for resource in message.resources:
        yield  # a broker has hundreds of keys
        results.append(_result(context, session, message, resource))
    answer(request, respond(ApiKey.DESCRIBE_CONFIGS, results=results))


def _result(context: HandlerContext, session: Session, message: Any, resource: Any) -> Any:
    error, text, configs = ErrorCode.NONE, None, ()
    try:
        configs = tuple(_configs(context, session, message, resource))
    except ConfigsRefused as refused:
        error, text = refused.error, str(refused)
    return part(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigsResult")(
        error_code=error,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _configs(context: HandlerContext, session: Session, message: Any, resource: Any) -> Iterator[Any]:
    name = resource.resource_name
    try:
        type_ = ConfigResourceType(resource.resource_type)
    except ValueError:
        text = f"Unsupported resource type: {config_type_name(resource.resource_type)}"
        raise ConfigsRefused(ErrorCode.INVALID_REQUEST, text) from None
    require_config_right(context.gates, session, Operation.DESCRIBE_CONFIGS, type_, name)
    wanted = set(resource.configuration_keys or ())
    for entry in _DESCRIBERS[type_](context, name):
        if not wanted or entry[0] in wanted:
            yield _described(entry, message)


def require_config_right(
    gates: Gates, session: Session, operation: Operation, type_: ConfigResourceType, name: str
) -> None:
    """Raise ConfigsRefused unless the session is allowed this operation on the configs of this resource."""
    if type_ is ConfigResourceType.TOPIC:
        allowed = gates.authorize_topic(session, operation, name)
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif type_ is ConfigResourceType.GROUP:
        allowed = gates.authorize(session, operation, Resource(ResourceType.GROUP, name))
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        allowed = gates.authorize_cluster(session, operation)
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if not allowed:
        raise ConfigsRefused(error, f"{operation.name} is not allowed on {type_.name} {name!r}")


UNKNOWN_TYPE = 0
"""Config type of a key that no table defines."""

# One row per key: (name, value, source, read only, sensitive, type, doc, [(name, value, source) …])
Row = tuple[str, str | None, int, bool, bool, int, str | None, list[tuple[str, str | None, int]]]


def _topic(context: HandlerContext, name: str) -> Iterable[Row]:
    problem = topic_name_problem(name)
    if problem is not None:
        raise ConfigsRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name not in context.image.topics:
        raise ConfigsRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_TOPIC.format(name))
    return map(_row, topic_entries(context.image.topic_configs(name), _layers(context)))


def _broker(context: HandlerContext, name: str) -> Iterable[Row]:
    if name == "":
        return map(_row, cluster_entries(_layers(context).cluster))
    if name != str(context.node_id):
        raise ConfigsRefused(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {context.node_id} or empty string, but received {name}",
        )
    return map(_row, broker_entries(_layers(context)))


def _loggers(context: HandlerContext, name: str) -> Iterable[Row]:
    try:
        return _plain(logger_levels_of(context.node_id, name), ConfigOrigin.DYNAMIC_BROKER_LOGGER)
    except RefusedLevels as refused:
        raise ConfigsRefused(refused.error, str(refused)) from None


def _client_metrics(context: HandlerContext, name: str) -> Iterable[Row]:
    if name == "":
        raise ConfigsRefused(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    return _plain(context.image.configs_of(ConfigResourceType.CLIENT_METRICS, name), ConfigOrigin.CLIENT_METRICS)


def _group(context: HandlerContext, name: str) -> Iterable[Row]:
    if name == "":
        raise ConfigsRefused(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    return map(_row, group_entries(context.image.configs_of(ConfigResourceType.GROUP, name), _layers(context)))


_DESCRIBERS: Mapping[ConfigResourceType, Callable[[HandlerContext, str], Iterable[Row]]] = MappingProxyType(
    {
        ConfigResourceType.TOPIC: _topic,
        ConfigResourceType.BROKER: _broker,
        ConfigResourceType.BROKER_LOGGER: _loggers,
        ConfigResourceType.CLIENT_METRICS: _client_metrics,
        ConfigResourceType.GROUP: _group,
    }
)


def _layers(context: HandlerContext) -> BrokerLayers:
    return BrokerLayers(
        own=context.image.configs_of(ConfigResourceType.BROKER, str(context.node_id)),
        cluster=context.image.configs_of(ConfigResourceType.BROKER, ""),
        node=context.config,
    )


def _row(entry: DescribedKey) -> Row:
    return (
        entry.name,
        entry.value,
        entry.source,
        entry.read_only,
        entry.is_sensitive,
        UNKNOWN_TYPE if entry.key is None else entry.key.type,
        None if entry.key is None else entry.key.doc,
        [(layer.name, layer.value, layer.source) for layer in entry.layers],
    )


def _plain(values: Mapping[str, str], source: ConfigOrigin) -> Iterator[Row]:
    for name in sorted(values):
        yield name, values[name], source, False, False, UNKNOWN_TYPE, None, []


def _described(row: Row, message: Any) -> Any:
    name, value, source, read_only, sensitive, type_, doc, layers = row
    synonym = part(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigsSynonym")
    return part(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigsResourceResult")(
        name=name,
        value=value,
        read_only=read_only,
        config_source=int(source),
        is_sensitive=sensitive,
        synonyms=tuple(
            synonym(name=layer_name, value=layer_value, source=int(layer_source))
            for layer_name, layer_value, layer_source in layers
        )
        if message.include_synonyms
        else (),
        config_type=int(type_),
        documentation=doc if message.include_documentation else None,
    )
