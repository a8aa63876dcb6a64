"""DescribeConfigs and IncrementalAlterConfigs on a controller's listener. They cover only the loggers of this node,
because brokers cannot forward requests for the loggers of a controller-only node. Source: KIP-412, KIP-919.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kraft.control import Requester
from kraft.image import ConfigResourceType
from kraft.node.loggers.levels import RefusedLevels, alter_loggers, logger_levels_of
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.controller.controller import Controller

SOURCE_LOGGER, TYPE_STRING = 6, 2
"""Kafka's DescribeConfigs source DYNAMIC_BROKER_LOGGER_CONFIG, and its type STRING."""


def describe_loggers(controller: Controller, requester: Requester, message: Any) -> Any:
    """Answer DescribeConfigs: each resource succeeds or fails alone. A resource may be named only once, because a short
    request could otherwise demand a very long response."""
    cls = messages.response_class(ApiKey.DESCRIBE_CONFIGS)
    repeated = _repeated(message.resources)
    results = [_described(controller, requester, one, is_repeated=_id(one) in repeated) for one in message.resources]
    return messages.build(cls, results=results)


def alter_levels(controller: Controller, requester: Requester, message: Any) -> Any:
    """Answer IncrementalAlterConfigs: each resource succeeds or fails alone. A resource may be named only once."""
    cls = messages.response_class(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    result_class = messages.nested_class(cls, "responses")
    results, repeated = [], _repeated(message.resources)
    for resource in message.resources:
        error, text = ErrorCode.NONE, None
        try:
            _check_once(is_repeated=_id(resource) in repeated)
            _check(controller, requester, "ALTER_CONFIGS", resource)
            alter_loggers(controller.config.node_id, resource, validate_only=message.validate_only)
        except RefusedLevels as refused:
            error, text = refused.error, str(refused)
        results.append(messages.build(result_class, error_code=error, error_message=text, **_key(resource)))
    return messages.build(cls, responses=results)


def _described(controller: Controller, requester: Requester, resource: Any, *, is_repeated: bool) -> Any:
    result_class = messages.nested_class(messages.response_class(ApiKey.DESCRIBE_CONFIGS), "results")
    entry_class = messages.nested_class(result_class, "configs")
    wanted = set(resource.configuration_keys or ())
    try:
        _check_once(is_repeated=is_repeated)
        _check(controller, requester, "DESCRIBE_CONFIGS", resource)
        levels = logger_levels_of(controller.config.node_id, resource.resource_name)
    except RefusedLevels as refused:
        return messages.build(result_class, error_code=refused.error, error_message=str(refused), **_key(resource))
    entries = [
        messages.build(entry_class, name=name, value=level, config_source=SOURCE_LOGGER, config_type=TYPE_STRING)
        for name, level in levels.items()
        if not wanted or name in wanted
    ]
    return messages.build(result_class, configs=entries, **_key(resource))


def _check(controller: Controller, requester: Requester, operation: str, resource: Any) -> None:
    if resource.resource_type != ConfigResourceType.BROKER_LOGGER:
        text = (
            "a controller's listener serves only the loggers of its node (BROKER_LOGGER); send this request to a broker"
        )
        raise RefusedLevels(ErrorCode.INVALID_REQUEST, text)
    if not controller.authorize(requester, operation, "CLUSTER", "kafka-cluster"):
        text = f"{operation} is not allowed on BROKER_LOGGER {resource.resource_name!r}"
        raise RefusedLevels(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)


def _check_once(*, is_repeated: bool) -> None:
    if is_repeated:
        raise RefusedLevels(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def _repeated(resources: Iterable[Any]) -> frozenset[tuple[int, str]]:
    return frozenset(one for one, times in Counter(map(_id, resources)).items() if times > 1)


def _id(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _key(resource: Any) -> dict[str, Any]:
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
