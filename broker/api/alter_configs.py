"""IncrementalAlterConfigs: levels of this process's loggers are set here, all else is decided by the active controller.
AlterConfigs, its older way, knows no loggers.

Each resource succeeds or fails alone; a resource that a request names twice fails and is answered twice. Source:
AlterConfigsRequest 0 to 2, IncrementalAlterConfigsRequest 0 to 1, KIP-339, KIP-412.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from kraft.broker.api.answers import answer, part, read, respond
from kraft.broker.api.describe_configs import Refused, require_config_right
from kraft.broker.api.forwarding import forward
from kraft.broker.node.gates import Operation
from kraft.broker.node.session import Session
from kraft.image import ConfigResourceType
from kraft.node.log_levels import ROOT, is_level, logger_levels, set_level
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.node.broker import Broker


class AlterOperation(IntEnum):
    """Kafka's AlterConfigOp."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def handle_incremental_alter_configs(broker: Broker, request: Request, session: Session) -> None:
    """Answer what can be said here, forward the rest."""
    message = read(request)
    times = Counter(map(_key_of, message.resources))
    done: dict[int, Any] = {}
    for index, resource in enumerate(message.resources):
        try:
            if times[_key_of(resource)] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
                name = resource.resource_name
                require_config_right(broker, session, Operation.ALTER_CONFIGS, ConfigResourceType.BROKER_LOGGER, name)
                _alter_loggers(broker, resource, validate_only=message.validate_only)
                done[index] = _result(resource, ErrorCode.NONE, None)
        except Refused as refused:
            done[index] = _result(resource, refused.error, str(refused))
    wanted = [resource for index, resource in enumerate(message.resources) if index not in done]

    def finish(response: Any) -> Any:
        """In the order of the request."""
        decided = {_key_of(result): result for result in response.responses}
        results = (done.get(index) or decided[_key_of(one)] for index, one in enumerate(message.resources))
        return replace(response, responses=tuple(results))

    def failure(error: ErrorCode, text: str) -> Any:
        failed = tuple(_result(resource, error, text) for resource in wanted)
        return respond(ApiKey.INCREMENTAL_ALTER_CONFIGS, responses=failed)

    if wanted:
        forward(broker, request, session, replace(message, resources=tuple(wanted)), failure, finish=finish)
    else:
        answer(request, respond(ApiKey.INCREMENTAL_ALTER_CONFIGS, responses=tuple(done.values())))


def handle_alter_configs(broker: Broker, request: Request, session: Session) -> None:
    """The older way, in which what is named replaces all that was set; the active controller decides."""
    message = read(request)
    result = part(ApiKey.ALTER_CONFIGS, "AlterConfigsResourceResponse")

    def failure(error: ErrorCode, text: str) -> Any:
        failed = tuple(
            result(
                error_code=error,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in message.resources
        )
        return respond(ApiKey.ALTER_CONFIGS, responses=failed)

    forward(broker, request, session, message, failure)


def _alter_loggers(broker: Broker, resource: Any, *, validate_only: bool) -> None:
    if resource.resource_name != str(broker.node_id):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {broker.node_id}, but received {resource.resource_name}",
        )
    times = Counter(config.name for config in resource.configs)
    for config in resource.configs:
        if times[config.name] > 1:
            text = f"Error due to duplicate config keys: name {config.name!r} once."
            raise Refused(ErrorCode.INVALID_REQUEST, text)
        if config.value is None and config.config_operation != AlterOperation.DELETE:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
    known = logger_levels()
    for config in resource.configs:
        if config.name not in known:
            raise Refused(ErrorCode.INVALID_CONFIG, f"there is no logger {config.name}")
        if config.config_operation == AlterOperation.SET:
            if not is_level(config.value):
                raise Refused(ErrorCode.INVALID_CONFIG, f"{config.value!r} is not a level of logger {config.name}")
        elif config.config_operation != AlterOperation.DELETE:
            raise Refused(ErrorCode.INVALID_REQUEST, "a logger's level can be set and deleted only")
        elif config.name == ROOT:
            raise Refused(ErrorCode.INVALID_REQUEST, "the level of the root logger cannot be deleted")
    if not validate_only:
        for config in resource.configs:
            set_level(config.name, config.value if config.config_operation == AlterOperation.SET else None)


def _key_of(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _result(resource: Any, error: ErrorCode, text: str | None) -> Any:
    return part(ApiKey.INCREMENTAL_ALTER_CONFIGS, "AlterConfigsResourceResponse")(
        error_code=error,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
