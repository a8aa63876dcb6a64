"""AlterConfigs: afterwards, a resource has exactly the configs that the request names."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.image import ConfigResourceType
from kraft.node.peers import CallOutcome
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.api.test_admin import Cluster

KEY = ApiKey.ALTER_CONFIGS
TOPIC, BROKER, LOGGER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER


def resource(type_: ConfigResourceType, name: str, **configs: str | None) -> dict[str, Any]:
    rows = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {"resource_type": int(type_), "resource_name": name, "configs": rows}


def alter(cluster: Cluster, *resources: dict[str, Any], version: int = 2, **fields: Any) -> list[int]:
    response = cluster.ask(KEY, version, resources=list(resources), **fields)
    assert [(row.resource_type, row.resource_name) for row in response.responses] == [
        (one["resource_type"], one["resource_name"]) for one in resources
    ]
    return [row.error_code for row in response.responses]


def configs(cluster: Cluster, type_: ConfigResourceType, name: str) -> dict[str, str]:
    return dict(cluster.controller.image.configs_of(type_, name))


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_all_configs_of_a_resource_in_every_version(version: int) -> None:
    cluster = Cluster()
    first = resource(TOPIC, "orders", retention_ms="5", max_message_bytes="77")
    assert alter(cluster, first, version=version) == [0]
    assert configs(cluster, TOPIC, "orders") == {"retention.ms": "5", "max.message.bytes": "77"}
    assert alter(cluster, resource(TOPIC, "orders", retention_ms="6"), version=version) == [0]
    assert configs(cluster, TOPIC, "orders") == {"retention.ms": "6"}
    assert alter(cluster, resource(TOPIC, "orders"), version=version) == [0]
    assert configs(cluster, TOPIC, "orders") == {}


def test_alter_configs_of_all_brokers_keeps_min_insync_replicas_when_it_is_not_named() -> None:
    cluster = Cluster()
    assert alter(cluster, resource(BROKER, "", min_insync_replicas="2", log_retention_ms="9")) == [0]
    assert alter(cluster, resource(BROKER, "", log_retention_ms="8")) == [0]
    assert configs(cluster, BROKER, "") == {"min.insync.replicas": "2", "log.retention.ms": "8"}


def test_a_resource_that_alter_configs_rejects_keeps_its_configs_and_others_are_changed() -> None:
    cluster = Cluster()
    alter(cluster, resource(TOPIC, "orders", retention_ms="5"))
    errors = alter(
        cluster,
        resource(TOPIC, "orders", retention_ms="soon"),
        resource(TOPIC, "missing"),
        resource(BROKER, "1", log_retention_ms="9"),
        resource(LOGGER, "1", root="DEBUG"),
    )
    assert errors == [
        ErrorCode.INVALID_CONFIG,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert configs(cluster, TOPIC, "orders") == {"retention.ms": "5"}


def test_alter_configs_rejects_a_null_value_and_a_repeated_key_or_resource() -> None:
    cluster = Cluster()
    assert alter(cluster, resource(TOPIC, "orders", retention_ms=None)) == [ErrorCode.INVALID_REQUEST]
    twice = resource(TOPIC, "orders", retention_ms="5")
    twice["configs"] *= 2
    assert alter(cluster, twice) == [ErrorCode.INVALID_REQUEST]
    response = cluster.ask(KEY, 2, resources=[resource(TOPIC, "orders")] * 2)
    assert {row.error_code for row in response.responses} == {ErrorCode.INVALID_REQUEST}
    assert configs(cluster, TOPIC, "orders") == {}


def test_alter_configs_with_validate_only_changes_nothing() -> None:
    cluster = Cluster()
    assert alter(cluster, resource(TOPIC, "orders", retention_ms="5"), validate_only=True) == [0]
    assert configs(cluster, TOPIC, "orders") == {}


def test_alter_configs_returns_an_error_for_each_resource_when_no_controller_answers() -> None:
    cluster = Cluster()
    cluster.controller.failing = CallOutcome.TIMED_OUT
    errors = alter(cluster, resource(TOPIC, "orders"), resource(BROKER, "1"))
    assert errors == [ErrorCode.REQUEST_TIMED_OUT] * 2


def test_alter_configs_returns_its_results_in_the_order_of_the_request() -> None:
    cluster = Cluster()
    wanted = [
        resource(TOPIC, "orders", retention_ms="1"),
        resource(LOGGER, "1", root="INFO"),
        resource(TOPIC, "missing", retention_ms="1"),
        resource(TOPIC, "orders", retention_ms="2"),
    ]
    response = cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=wanted, validate_only=True)
    assert [(row.resource_name, row.error_code) for row in response.responses] == [
        ("orders", ErrorCode.INVALID_REQUEST),
        ("1", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", ErrorCode.INVALID_REQUEST),
    ]
