"""Forwarded admin requests: every version is converted to the controller's newest version and back, and gets an error
if no controller answers.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft.image import ConfigResourceType, events
from kraft.node.peers import CallOutcome
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.broker_harness import BrokerHarness
from tests.stages.deciding import DecidingController
from tests.stages.images import ORDERS, broker_event, image_of, orders

TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER


class Cluster:
    """A broker and its active controller. Every decision of the controller is published at once."""

    def __init__(self) -> None:
        image = image_of(broker_event(1), broker_event(2), broker_event(3), *orders())
        self.harness = BrokerHarness(image)
        self.controller = DecidingController(image, self.harness.broker.config)
        self.harness.use_controller(self.controller)

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        response = self.harness.ask(key, version, **fields)
        self.harness.holder.image = self.controller.image
        return response


def nested(key: int, field: str, **fields: Any) -> Any:
    return messages.build(messages.nested_class(messages.request_class(key), field), **fields)


def new_topic(name: str, partitions: int = 2, factor: int = 3) -> Any:
    return nested(ApiKey.CREATE_TOPICS, "topics", name=name, num_partitions=partitions, replication_factor=factor)


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_created_in_every_version(version: int) -> None:
    cluster = Cluster()
    wanted = [new_topic("new"), new_topic("orders"), new_topic("bad/name"), new_topic("__cluster_metadata")]
    response = cluster.ask(ApiKey.CREATE_TOPICS, version, topics=wanted, timeout=5_000)
    assert {t.name: t.error_code for t in response.topics} == {
        "new": 0,
        "orders": ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "__cluster_metadata": ErrorCode.INVALID_REQUEST,
    }
    created = cluster.controller.image.topics.get("new")
    assert created is not None
    assert created.partition_count == 2
    if version >= 5:
        told = response.topics[0]
        assert (told.num_partitions, told.replication_factor) == (2, 3)
        assert "retention.ms" in {config.name for config in told.configs}
    if version >= 7:
        assert response.topics[0].topic_id == created.topic_id
    assert cluster.controller.requests[0][2] == 5_000


def test_create_topics_with_validate_only_creates_no_topic() -> None:
    cluster = Cluster()
    response = cluster.ask(ApiKey.CREATE_TOPICS, 7, topics=[new_topic("new")], validate_only=True, timeout=1)
    assert response.topics[0].error_code == 0
    assert "new" not in cluster.controller.image.topics


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name_in_every_version(version: int) -> None:
    cluster = Cluster()
    wanted = [nested(ApiKey.DELETE_TOPICS, "topics", name=name) for name in ("orders", "missing")]
    response = cluster.ask(ApiKey.DELETE_TOPICS, version, topics=wanted, timeout=1_000)
    assert {t.name: t.error_code for t in response.responses} == {
        "orders": 0,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert "orders" not in cluster.controller.image.topics


def test_topics_are_deleted_by_id_from_version_6() -> None:
    cluster = Cluster()
    wanted = [nested(ApiKey.DELETE_TOPICS, "topics", name=None, topic_id=ORDERS)]
    (result,) = cluster.ask(ApiKey.DELETE_TOPICS, 6, topics=wanted, timeout=1_000).responses
    assert (result.name, result.topic_id, result.error_code) == ("orders", ORDERS, 0)


@pytest.mark.parametrize("version", range(4))
def test_topics_get_more_partitions_in_every_version(version: int) -> None:
    cluster = Cluster()
    wanted = [
        nested(ApiKey.CREATE_PARTITIONS, "topics", name=name, count=5, assignments=None)
        for name in ("orders", "missing")
    ]
    response = cluster.ask(ApiKey.CREATE_PARTITIONS, version, topics=wanted, timeout=1_000)
    assert {r.name: r.error_code for r in response.results} == {
        "orders": 0,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    topic = cluster.controller.image.topics.get("orders")
    assert topic is not None
    assert topic.partition_count == 5


@pytest.mark.parametrize("version", range(3))
def test_leaders_are_elected_in_every_version(version: int) -> None:
    cluster = Cluster()
    wanted = [nested(ApiKey.ELECT_LEADERS, "topic_partitions", topic="orders", partitions=(0, 9))]
    response = cluster.ask(ApiKey.ELECT_LEADERS, version, topic_partitions=wanted, timeout=1_000)
    (topic,) = response.replica_election_results
    assert {p.partition_id: p.error_code for p in topic.partition_result} == {
        0: ErrorCode.ELECTION_NOT_NEEDED,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def alteration(type_: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    resource = messages.nested_class(messages.request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS), "resources")
    config = messages.nested_class(resource, "configs")
    configs = [messages.build(config, name=key, config_operation=op, value=value) for key, op, value in changes]
    return messages.build(resource, resource_type=type_, resource_name=name, configs=configs)


@pytest.mark.parametrize("version", range(2))
def test_configs_are_altered_in_every_version_and_logger_levels_are_not_forwarded(version: int) -> None:
    cluster = Cluster()
    wanted = [
        alteration(TOPIC, "orders", ("retention.ms", 0, "5000")),
        alteration(BROKER, "", ("log.retention.ms", 0, "7000")),
        alteration(TOPIC, "orders-2", ("retention.ms", 0, "5000")),
        alteration(ConfigResourceType.BROKER_LOGGER, "1", ("kraft", 0, "INFO")),
        alteration(ConfigResourceType.BROKER_LOGGER, "2", ("kraft", 0, "INFO")),
    ]
    response = cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, resources=wanted, validate_only=False)
    assert {(r.resource_type, r.resource_name): r.error_code for r in response.responses} == {
        (TOPIC, "orders"): 0,
        (BROKER, ""): 0,
        (TOPIC, "orders-2"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (ConfigResourceType.BROKER_LOGGER, "1"): 0,
        (ConfigResourceType.BROKER_LOGGER, "2"): ErrorCode.INVALID_REQUEST,
    }
    assert cluster.controller.image.topic_configs("orders") == {"retention.ms": "5000"}


def test_a_config_resource_named_twice_in_a_request_gets_two_errors() -> None:
    cluster = Cluster()
    twice = alteration(TOPIC, "orders", ("retention.ms", 0, "5000"))
    response = cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[twice, twice])
    assert [r.error_code for r in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert cluster.controller.image.topic_configs("orders") == {}


REQUESTS: list[tuple[int, int, dict[str, Any], str]] = [
    (ApiKey.CREATE_TOPICS, 7, {"topics": [new_topic("new")]}, "topics"),
    (ApiKey.DELETE_TOPICS, 6, {"topics": [nested(ApiKey.DELETE_TOPICS, "topics", name="orders")]}, "responses"),
    (
        ApiKey.CREATE_PARTITIONS,
        3,
        {"topics": [nested(ApiKey.CREATE_PARTITIONS, "topics", name="orders", count=9)]},
        "results",
    ),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [alteration(TOPIC, "orders")]}, "responses"),
    (ApiKey.ELECT_LEADERS, 2, {"topic_partitions": None}, ""),
    (ApiKey.DESCRIBE_QUORUM, 2, {"topics": []}, ""),
]


@pytest.mark.parametrize(("key", "version", "fields", "results"), REQUESTS)
def test_a_forwarded_request_without_a_controller_response_gets_request_timed_out(
    key: int, version: int, fields: dict[str, Any], results: str
) -> None:
    cluster = Cluster()
    cluster.controller.failing = CallOutcome.TIMED_OUT
    response = cluster.ask(key, version, **fields)
    told = getattr(response, results)[0] if results else response
    assert told.error_code == ErrorCode.REQUEST_TIMED_OUT
    cluster.controller.failing = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    response = cluster.ask(key, version, **fields)
    told = getattr(response, results)[0] if results else response
    assert told.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_forwarded_request_carries_the_clients_principal_and_address() -> None:
    cluster = Cluster()
    client = cluster.harness.connect("OUTSIDE")
    client.ask(ApiKey.CREATE_TOPICS, 7, topics=[new_topic("new")], timeout=1_000)
    session, key, _ = cluster.controller.requests[0]
    assert (session.listener, session.client_id, session.client_address) == ("OUTSIDE", "test", "192.0.2.7")
    assert key == ApiKey.CREATE_TOPICS


def test_a_missing_topic_of_a_metadata_request_is_created_with_the_brokers_defaults() -> None:
    from kraft.broker.coordinator.auto_topics import AutoTopicCreation

    image = image_of(broker_event(1), broker_event(2))
    harness = BrokerHarness(image, properties={"num.partitions": "4", "default.replication.factor": "2"})
    controller = DecidingController(image, harness.broker.config)
    harness.use_controller(controller)
    harness.auto_topics = AutoTopicCreation(  # type: ignore[assignment]
        harness.broker.dynamic_configs,
        harness.broker.gates,
        harness.broker.log_limit,
        forward=controller.forward,
        start_task=harness.broker.start_task,
    )
    topic = nested(ApiKey.METADATA, "topics", name="wanted")
    (first,) = harness.ask(ApiKey.METADATA, 9, topics=[topic]).topics
    assert first.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    harness.holder.image = controller.image
    (second,) = harness.ask(ApiKey.METADATA, 9, topics=[topic]).topics
    assert (second.error_code, len(second.partitions)) == (0, 4)
    assert len(second.partitions[0].replica_nodes) == 2
    assert len(controller.requests) == 1


def test_dynamic_broker_settings_take_effect_when_their_image_is_published() -> None:
    from kraft.image import ImageDelta, replay

    cluster = Cluster()
    configs = cluster.harness.broker.dynamic_configs
    assert configs.topic("orders").retention_ms == 604_800_000
    old = cluster.controller.image
    changes = [
        events.Config(BROKER, "", "log.retention.ms", "7000"),
        events.Config(TOPIC, "orders", "max.message.bytes", "99"),
        events.Config(BROKER, "1", "auto.create.topics.enable", "false"),
    ]
    new = replay(old, changes, old.offset + 3, 1)
    heard: list[bool] = []
    configs.on_change(lambda node: heard.append(node.boolean("auto.create.topics.enable")))
    configs.apply(new, ImageDelta.between(old, new))
    assert (configs.topic("orders").retention_ms, configs.topic("orders").max_message_bytes) == (7000, 99)
    assert heard == [False]
    assert not configs.boolean("auto.create.topics.enable")
