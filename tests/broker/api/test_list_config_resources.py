"""ListConfigResources: names by type, the older version that lists only client metrics, and the required permission."""

from __future__ import annotations

from kraft.broker.serving.gates import CLUSTER, Operation
from kraft.image import ConfigResourceType, MetadataImage, events
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.broker_harness import BrokerHarness, Denying
from tests.stages.images import image_of, orders, three_brokers

KEY = ApiKey.LIST_CONFIG_RESOURCES
TOPIC, BROKER, LOGGER, METRICS, GROUP = ConfigResourceType


def image() -> MetadataImage:
    return image_of(
        *three_brokers(),
        *orders(),
        events.Config(int(METRICS), "slow", "interval.ms", "1000"),
        events.Config(int(GROUP), "workers", "consumer.session.timeout.ms", "45000"),
        events.Config(int(TOPIC), "orders", "retention.ms", "1"),
    )


def rows(version: int, **fields: object) -> list[tuple[str, int]]:
    response = BrokerHarness(image()).ask(KEY, version, **fields)
    assert response.error_code == 0
    return [(row.resource_name, row.resource_type) for row in response.config_resources]


def test_list_config_resources_version_0_lists_only_client_metrics_resources() -> None:
    assert [name for name, _ in rows(0)] == ["slow"]


def test_resources_of_every_type_are_listed_when_the_request_names_no_type() -> None:
    living = [("1", BROKER), ("2", BROKER), ("1", LOGGER), ("2", LOGGER)]
    assert rows(1) == [("orders", TOPIC), *living, ("slow", METRICS), ("workers", GROUP)]


def test_list_config_resources_lists_each_resource_of_the_requested_types_once() -> None:
    assert rows(1, resource_types=[GROUP, TOPIC, GROUP]) == [("workers", GROUP), ("orders", TOPIC)]


def test_list_config_resources_rejects_an_unknown_resource_type() -> None:
    response = BrokerHarness(image()).ask(KEY, 1, resource_types=[TOPIC, 99])
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, ())


def test_list_config_resources_needs_describe_configs_on_the_cluster() -> None:
    harness = BrokerHarness(image(), authorizer=Denying((Operation.DESCRIBE_CONFIGS, CLUSTER.name)))
    for version in (0, 1):
        response = harness.ask(KEY, version)
        assert (response.error_code, response.config_resources) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())
