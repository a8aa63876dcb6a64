"""Client requests in their newest classes, built from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraft.wire import messages
from kraft.wire.api_keys import ApiKey


def part(api_key: int, *path: str) -> Any:
    """Return the class of a nested struct of a request, for example `part(ApiKey.CREATE_TOPICS, "topics",
    "configs")`."""
    cls = messages.request_class(api_key)
    for name in path:
        cls = messages.nested_class(cls, name)
    return cls


def new_topic(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    *,
    assignments: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> Any:
    assignment = part(ApiKey.CREATE_TOPICS, "topics", "assignments")
    config = part(ApiKey.CREATE_TOPICS, "topics", "configs")
    return messages.build(
        part(ApiKey.CREATE_TOPICS, "topics"),
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            messages.build(assignment, partition_index=index, broker_ids=brokers)
            for index, brokers in (assignments or {}).items()
        ],
        configs=[messages.build(config, name=key, value=value) for key, value in (configs or {}).items()],
    )


def more_partitions(name: str, count: int, assignments: list[list[int]] | None = None) -> Any:
    assignment = part(ApiKey.CREATE_PARTITIONS, "topics", "assignments")
    given = None if assignments is None else [messages.build(assignment, broker_ids=one) for one in assignments]
    return messages.build(part(ApiKey.CREATE_PARTITIONS, "topics"), name=name, count=count, assignments=given)


def altered(resource_type: int, name: str, *operations: tuple[str, int, str | None]) -> Any:
    """Return a resource for an IncrementalAlterConfigs request, with (key, operation code, value) of each setting."""
    config = part(ApiKey.INCREMENTAL_ALTER_CONFIGS, "resources", "configs")
    return messages.build(
        part(ApiKey.INCREMENTAL_ALTER_CONFIGS, "resources"),
        resource_type=resource_type,
        resource_name=name,
        configs=[
            messages.build(config, name=key, config_operation=code, value=value) for key, code, value in operations
        ],
    )


def elections(topic: str, *partitions: int) -> Any:
    return messages.build(part(ApiKey.ELECT_LEADERS, "topic_partitions"), topic=topic, partitions=partitions)


def feature_update(feature: str, level: int, upgrade_type: int = 1) -> Any:
    return messages.build(
        part(ApiKey.UPDATE_FEATURES, "feature_updates"),
        feature=feature,
        max_version_level=level,
        upgrade_type=upgrade_type,
    )


def deleted(name: str | None = None, topic_id: Any = None) -> Any:
    return messages.build(part(ApiKey.DELETE_TOPICS, "topics"), name=name, topic_id=topic_id)


def reassigned(topic: str, targets: Mapping[int, tuple[int, ...] | None]) -> Any:
    row = part(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "topics", "partitions")
    return messages.build(
        part(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "topics"),
        name=topic,
        partitions=[messages.build(row, partition_index=at, replicas=one) for at, one in targets.items()],
    )
