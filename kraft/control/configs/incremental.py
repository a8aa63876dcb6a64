"""IncrementalAlterConfigs of topics, brokers and groups.

Invariants: each resource succeeds or fails alone. First the resulting configuration is checked, and then whether the
resource exists; a group need not exist. A resource that a request names twice fails and is answered twice. An invalid
setting is an INVALID_REQUEST for a broker, an INVALID_CONFIG for a topic or a group. A change of min.insync.replicas
clears the ELR that was built under the old value. min.insync.replicas is always set for the cluster and is never set
for a single broker.
Source: IncrementalAlterConfigsRequest, KIP-339, KIP-966, Kafka's ConfigurationControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kraft.config import (
    ConfigError,
    ConfigKey,
    KeyType,
    broker_key,
    group_key,
    topic_key,
    validate_broker_config,
    validate_group_configs,
    validate_topic_configs,
)
from kraft.control.commands import AdminRequest
from kraft.control.configs.refusal import config_refusal
from kraft.control.decision import EVENTS_PER_COMMAND_MAX, TOO_LARGE, Context, Decision
from kraft.control.topics.assignment import Refusal
from kraft.control.topics.names import topic_name_problem
from kraft.image import ConfigResourceType, MetadataImage, config_type_name
from kraft.image.events import ClearElr, Config, Event
from kraft.wire.error_codes import ErrorCode

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
"""Kafka's operation codes of IncrementalAlterConfigs."""

MIN_INSYNC_REPLICAS = "min.insync.replicas"
HAVE_CONFIGS = "Topics, brokers and groups have configurations here."
BROKER_ID_DIGITS_MAX = 10
"""Maximum digits of a broker id, a 32-bit number. Python refuses to parse very long numbers."""

Values = Mapping[str, str]

_LOOK_UP: Mapping[ConfigResourceType, Callable[[str], ConfigKey]] = MappingProxyType(
    {
        ConfigResourceType.TOPIC: topic_key,
        ConfigResourceType.BROKER: broker_key,
        ConfigResourceType.GROUP: group_key,
    }
)
"""Type of resource → the function that returns the definition of one of its keys."""


class _Resource(NamedTuple):
    type: int
    name: str


def decide_incremental_alter_configs(image: MetadataImage, context: Context, command: AdminRequest) -> Decision:
    """Decide an IncrementalAlterConfigs request of the newest version."""
    events, results = _alter(image, context, command)
    if command.request.validate_only:
        events = []
    return Decision(events=tuple(events), reply=_response(results), depends_on=image.offset)


def _alter(
    image: MetadataImage, context: Context, command: AdminRequest
) -> tuple[list[Event], list[tuple[_Resource, ErrorCode, str | None]]]:
    asked = [_Resource(one.resource_type, one.resource_name) for one in command.request.resources]
    events: list[Event] = []
    results: list[tuple[_Resource, ErrorCode, str | None]] = []
    times = Counter(asked)
    for resource, one in zip(asked, command.request.resources, strict=True):
        if times[resource] > 1:
            results.append((resource, ErrorCode.INVALID_REQUEST, f"Duplicate resource. Name {resource.name!r} once."))
            continue
        outcome = _alter_one(image, context, command, resource, one)
        if isinstance(outcome, Refusal):
            results.append((resource, outcome.code, outcome.message))
        else:
            events += outcome
            results.append((resource, ErrorCode.NONE, None))
    if len(events) > EVENTS_PER_COMMAND_MAX:
        return [], [(resource, ErrorCode.POLICY_VIOLATION, TOO_LARGE) for resource in asked]
    return events, results


def _alter_one(
    image: MetadataImage, context: Context, command: AdminRequest, resource: _Resource, asked: Any
) -> list[Event] | Refusal:
    refusal = _refuse_resource(context, command, resource)
    if refusal is not None:
        return refusal
    resource_type = ConfigResourceType(resource.type)
    now = image.configs_of(resource_type, resource.name)
    afterwards = _changed(asked, now, resource_type)
    if isinstance(afterwards, Refusal):
        return afterwards
    refusal = _refuse_values(image, context, resource, now, afterwards) or _refuse_absent(image, resource)
    if refusal is not None:
        return refusal
    # Setting a broker key to its present value makes the broker reload it (a keystore file that was replaced).
    named = {config.name for config in asked.configs} if resource_type is ConfigResourceType.BROKER else set()
    events: list[Event] = [
        Config(int(resource_type), resource.name, name, afterwards.get(name))
        for name in sorted({*now, *afterwards})
        if now.get(name) != afterwards.get(name) or (name in named and name in afterwards)
    ]
    if now.get(MIN_INSYNC_REPLICAS) != afterwards.get(MIN_INSYNC_REPLICAS):
        events.append(ClearElr(resource.name if resource_type is ConfigResourceType.TOPIC else ""))
    return events


def _refuse_resource(context: Context, command: AdminRequest, resource: _Resource) -> Refusal | None:
    """Return why no setting of this resource may be changed, or None. Authorisation is checked first, then the kind of
    resource, then its name."""
    if resource.type == ConfigResourceType.TOPIC:
        if not context.authorize(command.requester, "ALTER_CONFIGS", "TOPIC", resource.name):
            return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        if resource.name == "":
            return Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed. Name a topic.")
        problem = topic_name_problem(resource.name)
        return None if problem is None else Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if resource.type == ConfigResourceType.GROUP:
        if not context.authorize(command.requester, "ALTER_CONFIGS", "GROUP", resource.name):
            return Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
        if resource.name == "":
            return Refusal(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed. Name a group.")
        return None
    if not context.authorize(command.requester, "ALTER_CONFIGS", "CLUSTER", "kafka-cluster"):
        return Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    if resource.type != ConfigResourceType.BROKER:
        return Refusal(
            ErrorCode.INVALID_REQUEST, f"Unknown resource type {config_type_name(resource.type)}. {HAVE_CONFIGS}"
        )
    if resource.name == "" or (resource.name.isascii() and resource.name.isdigit()):
        return None
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"Unable to parse broker name as a base 10 number. It is {resource.name!r}; '' stands for all brokers.",
    )


def _refuse_absent(image: MetadataImage, resource: _Resource) -> Refusal | None:
    if resource.type == ConfigResourceType.TOPIC:
        if resource.name in image.topics:
            return None
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.name}' does not exist.")
    if resource.type == ConfigResourceType.GROUP or resource.name == "":
        return None
    node_id = int(resource.name) if len(resource.name) <= BROKER_ID_DIGITS_MAX else None
    known = str(node_id) == resource.name and (node_id in image.brokers or node_id in image.controllers)
    return None if known else Refusal(ErrorCode.INVALID_REQUEST, f"No node with id {resource.name} found.")


def _changed(asked: Any, now: Values, resource_type: ConfigResourceType) -> dict[str, str] | Refusal:
    values = dict(now)
    times = Counter(config.name for config in asked.configs)
    for config in asked.configs:
        name, operation = config.name, config.config_operation
        if times[name] > 1:
            return Refusal(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: name {name!r} once.")
        if operation == DELETE:
            values.pop(name, None)
        elif config.value is None:
            return Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        elif operation == SET:
            values[name] = config.value
        elif operation in (APPEND, SUBTRACT):
            changed = _changed_list(resource_type, name, values.get(name), config.value, operation)
            if isinstance(changed, Refusal):
                return changed
            values[name] = changed
        else:
            text = f"Unknown operations type {operation} of {name}. Use SET 0, DELETE 1, APPEND 2 or SUBTRACT 3."
            return Refusal(ErrorCode.INVALID_REQUEST, text)
    return values


def _changed_list(
    resource_type: ConfigResourceType, name: str, now: str | None, text: str, operation: int
) -> str | Refusal:
    """Return the list after APPEND (no duplicates) or SUBTRACT, or why the operation is rejected. If the key is not
    set, the operation applies to the key's default."""
    try:
        key = _LOOK_UP[resource_type](name)
    except ConfigError as problem:
        return Refusal(ErrorCode.INVALID_CONFIG, str(problem))
    if key.type is not KeyType.LIST:
        verb = "APPEND" if operation == APPEND else "SUBTRACT"
        return Refusal(ErrorCode.INVALID_CONFIG, f"Can't {verb} to key {name} because its type is not LIST.")
    old = _split(key.default or "" if now is None else now)
    given = _split(text)
    if operation == APPEND:
        return ",".join([*old, *(part for part in given if part not in old)])
    return ",".join(part for part in old if part not in given)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _refuse_values(
    image: MetadataImage, context: Context, resource: _Resource, now: Values, afterwards: Values
) -> Refusal | None:
    """Return why these values are invalid, or None."""
    resource_type = ConfigResourceType(resource.type)
    try:
        dynamic = image.broker_configs(context.config.node_id)
        if resource_type is ConfigResourceType.TOPIC:
            validate_topic_configs(afterwards, dynamic, context.config)
            return None
        if resource_type is ConfigResourceType.GROUP:
            validate_group_configs(afterwards, context.config.overlay(dynamic))
            return None
        for key, value in afterwards.items():
            if now.get(key) != value:
                validate_broker_config(key, value, per_broker=resource.name != "")
    except ConfigError as problem:
        of_broker = resource_type is ConfigResourceType.BROKER
        code = ErrorCode.INVALID_REQUEST if of_broker else ErrorCode.INVALID_CONFIG
        return Refusal(code, config_refusal(problem, afterwards, resource_type))
    return _refuse_min_insync_replicas(resource, now, afterwards)


def _refuse_min_insync_replicas(resource: _Resource, now: Values, afterwards: Values) -> Refusal | None:
    if resource.name != "" and MIN_INSYNC_REPLICAS in afterwards:
        text = f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled. Set that of the cluster."
        return Refusal(ErrorCode.INVALID_CONFIG, text)
    if resource.name == "" and MIN_INSYNC_REPLICAS in now and MIN_INSYNC_REPLICAS not in afterwards:
        text = f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled. Set it to another value."
        return Refusal(ErrorCode.INVALID_CONFIG, text)
    return None


def _response(results: list[tuple[_Resource, ErrorCode, str | None]]) -> Any:
    from datetime import timedelta

    from kio.schema.incremental_alter_configs.v1 import response as kio

    return kio.IncrementalAlterConfigsResponse(
        throttle_time=timedelta(0),
        responses=tuple(
            kio.AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=resource.type, resource_name=resource.name
            )
            for resource, code, message in results
        ),
    )
