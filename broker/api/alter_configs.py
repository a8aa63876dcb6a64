"""IncrementalAlterConfigs and AlterConfigs. The active controller decides everything except the log levels of this
broker's loggers, which the broker sets itself (IncrementalAlterConfigs only).

Each resource succeeds or fails independently. A resource that a request names twice fails, and has two results.
Source: AlterConfigsRequest 0 to 2, IncrementalAlterConfigsRequest 0 to 1, KIP-339, KIP-412.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from kraft.broker.api.describe_configs import ConfigsRefused, require_config_right
from kraft.broker.api.forwarding import Forwarder
from kraft.broker.serving.gates import Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.image import ConfigResourceType
from kraft.node.loggers.levels import RefusedLevels, alter_loggers
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request


def handle_incremental_alter_configs(node_id: int, forwarder: Forwarder, request: Request, session: Session) -> None:
    """Set the levels of loggers on this broker, and forward the remaining resources to the controller."""
    message = read(request)
    times = Counter(map(_key_of, message.resources))
    done: dict[int, Any] = {}
    for index, resource in enumerate(message.resources):
        try:
            if times[_key_of(resource)] > 1:
                raise ConfigsRefused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
                name = resource.resource_name
                require_config_right(
                    forwarder.gates, session, Operation.ALTER_CONFIGS, ConfigResourceType.BROKER_LOGGER, name
                )
                alter_loggers(node_id, resource, validate_only=message.validate_only)
                done[index] = _result(resource, ErrorCode.NONE, None)
        except (ConfigsRefused, RefusedLevels) as refused:
            done[index] = _result(resource, refused.error, str(refused))
    wanted = [resource for index, resource in enumerate(message.resources) if index not in done]

    def finish(response: Any) -> Any:
        """Merge the controller's results with those of the loggers, in the order of the request."""
        decided = {_key_of(result): result for result in response.responses}
        results = (done.get(index) or decided[_key_of(one)] for index, one in enumerate(message.resources))
        return replace(response, responses=tuple(results))

    def failure(error: ErrorCode, text: str) -> Any:
        failed = tuple(_result(resource, error, text) for resource in wanted)
        return respond(ApiKey.INCREMENTAL_ALTER_CONFIGS, responses=failed)

    if wanted:
        forwarder.forward(request, session, replace(message, resources=tuple(wanted)), failure, finish=finish)
    else:
        answer(request, respond(ApiKey.INCREMENTAL_ALTER_CONFIGS, responses=tuple(done.values())))


def handle_alter_configs(forwarder: Forwarder, request: Request, session: Session) -> None:
    """Forward an AlterConfigs request, which replaces all configs of each resource that it names."""
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

    forwarder.forward(request, session, message, failure)


def _key_of(resource: Any) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _result(resource: Any, error: ErrorCode, text: str | None) -> Any:
    return part(ApiKey.INCREMENTAL_ALTER_CONFIGS, "AlterConfigsResourceResponse")(
        error_code=error,
        error_message=text,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
