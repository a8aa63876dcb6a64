"""DescribeConfigs: layers, sources, synonyms, and permissions. IncrementalAlterConfigs of loggers."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.serving.config_entries import ConfigOrigin
from kraft.broker.serving.gates import CLUSTER, Operation
from kraft.config import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, KeyType
from kraft.image import ConfigResourceType, MetadataImage, events
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.broker_harness import BrokerHarness, Denying
from tests.stages.images import image_of, orders, three_brokers

TOPIC, BROKER, LOGGER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER


@pytest.fixture
def image() -> MetadataImage:
    return image_of(
        *three_brokers(),
        *orders(),
        events.Config(TOPIC, "orders", "retention.ms", "1000"),
        events.Config(BROKER, "", "log.retention.ms", "2000"),
        events.Config(BROKER, "1", "log.retention.ms", "3000"),
        events.Config(BROKER, "2", "log.retention.ms", "9999"),
        events.Config(BROKER, "", "min.insync.replicas", "2"),
    )


def describe(harness: BrokerHarness, type_: int, name: str, version: int = 4, **fields: Any) -> Any:
    keys = fields.pop("keys", None)
    resource = messages.nested_class(messages.request_class(ApiKey.DESCRIBE_CONFIGS), "resources")
    wanted = [messages.build(resource, resource_type=type_, resource_name=name, configuration_keys=keys)]
    (result,) = harness.ask(ApiKey.DESCRIBE_CONFIGS, version, resources=wanted, **fields).results
    assert (result.resource_type, result.resource_name) == (type_, name)
    return result


def by_name(result: Any) -> dict[str, Any]:
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


@pytest.mark.parametrize("version", range(1, 5))
def test_every_topic_key_is_described_with_value_and_source(image: MetadataImage, version: int) -> None:
    told = by_name(describe(BrokerHarness(image), TOPIC, "orders", version))
    assert set(told) == {name for name, key in TOPIC_KEYS.items() if not key.is_internal}
    assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("1000", ConfigOrigin.DYNAMIC_TOPIC)
    inherited = told["min.insync.replicas"]
    assert (inherited.value, inherited.config_source) == ("2", ConfigOrigin.DYNAMIC_DEFAULT_BROKER)
    default = told["segment.bytes"]
    assert (default.value, default.config_source) == ("1073741824", ConfigOrigin.DEFAULT)
    assert not any(config.read_only for config in told.values())
    if version >= 3:
        assert default.config_type == KeyType.INT


def test_the_synonyms_of_a_config_list_every_layer_that_sets_it_in_order_of_precedence(image: MetadataImage) -> None:
    harness = BrokerHarness(image, properties={"log.retention.hours": "2"})
    told = by_name(describe(harness, TOPIC, "orders", include_synonyms=True, keys=["retention.ms"]))
    assert [(s.name, s.value, s.source) for s in told["retention.ms"].synonyms] == [
        ("retention.ms", "1000", ConfigOrigin.DYNAMIC_TOPIC),
        ("log.retention.ms", "3000", ConfigOrigin.DYNAMIC_BROKER),
        ("log.retention.ms", "2000", ConfigOrigin.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "2", ConfigOrigin.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigOrigin.DEFAULT),
    ]
    assert describe(harness, TOPIC, "orders").configs[0].synonyms == ()


def test_every_group_key_is_described_with_its_layers_although_the_group_does_not_exist() -> None:
    group = ConfigResourceType.GROUP
    image = image_of(
        *three_brokers(),
        events.Config(group, "billing", "consumer.session.timeout.ms", "50000"),
        events.Config(group, "billing", "of.another.release", "x"),
    )
    harness = BrokerHarness(image, properties={"group.consumer.heartbeat.interval.ms": "6000"})
    told = by_name(describe(harness, group, "billing", include_synonyms=True))
    assert set(told) == {*GROUP_KEYS, "of.another.release"}
    assert [(s.name, s.value, s.source) for s in told["consumer.session.timeout.ms"].synonyms] == [
        ("consumer.session.timeout.ms", "50000", ConfigOrigin.GROUP),
        ("group.consumer.session.timeout.ms", "45000", ConfigOrigin.DEFAULT),
    ]
    interval = told["consumer.heartbeat.interval.ms"]
    assert (interval.value, interval.config_source) == ("6000", ConfigOrigin.STATIC_BROKER)
    isolation = told["share.isolation.level"]
    assert (isolation.value, isolation.config_source) == ("read_uncommitted", ConfigOrigin.DEFAULT)
    assert told["of.another.release"].is_sensitive
    assert not any(config.read_only for config in told.values())
    assert by_name(describe(harness, group, "other"))["consumer.session.timeout.ms"].value == "45000"


def test_log_retention_hours_set_only_in_the_file_is_not_a_synonym_of_retention_ms(image: MetadataImage) -> None:
    bare = image_of(*three_brokers(), *orders())
    harness = BrokerHarness(bare, properties={"log.retention.hours": "2", "log.segment.bytes": "2000000"})
    told = by_name(describe(harness, TOPIC, "orders", include_synonyms=True))
    assert (told["retention.ms"].value, told["retention.ms"].config_source, told["retention.ms"].synonyms) == (
        "7200000",
        ConfigOrigin.DEFAULT,
        (),
    )
    assert [(s.name, s.value, s.source) for s in told["segment.bytes"].synonyms] == [
        ("log.segment.bytes", "2000000", ConfigOrigin.STATIC_BROKER),
        ("log.segment.bytes", "1073741824", ConfigOrigin.DEFAULT),
    ]
    assert told["remote.storage.enable"].synonyms == ()


GIVEN_AND_REPORTED = [
    ("retention.ms", " 5000 ", "5000"),
    ("preallocate", "TRUE", "true"),
    ("min.cleanable.dirty.ratio", "0.30", "0.3"),
    ("cleanup.policy", "delete,delete", "delete"),
]


@pytest.mark.parametrize(("key", "given", "reported"), GIVEN_AND_REPORTED)
def test_describe_configs_reports_the_parsed_value_of_a_topic_config(key: str, given: str, reported: str) -> None:
    image = image_of(*three_brokers(), *orders(), events.Config(TOPIC, "orders", key, given))
    told = by_name(describe(BrokerHarness(image), TOPIC, "orders", include_synonyms=True, keys=[key]))[key]
    assert (told.value, told.synonyms[0].value, told.config_source) == (reported, reported, ConfigOrigin.DYNAMIC_TOPIC)


def test_describe_configs_reports_a_parsed_broker_value_and_its_synonyms_as_they_were_set() -> None:
    image = image_of(*three_brokers(), events.Config(BROKER, "1", "log.retention.ms", " 5000 "))
    told = by_name(describe(BrokerHarness(image), BROKER, "1", include_synonyms=True))
    assert told["log.retention.ms"].value == "5000"
    assert [(s.name, s.value, s.source) for s in told["log.retention.ms"].synonyms] == [
        ("log.retention.ms", " 5000 ", ConfigOrigin.DYNAMIC_BROKER),
        ("log.retention.hours", "168", ConfigOrigin.DEFAULT),
    ]
    assert [(s.name, s.value) for s in told["log.retention.hours"].synonyms] == [("log.retention.hours", "168")]
    assert [s.name for s in told["log.flush.interval.ms"].synonyms] == []


def test_describe_configs_hides_the_value_of_a_broker_key_that_kafka_does_not_define() -> None:
    image = image_of(
        *three_brokers(),
        events.Config(BROKER, "1", "my.plugin.key", "x"),
        events.Config(BROKER, "", "other.key", "y"),
        events.Config(BROKER, "", "log.retention.ms", "7"),
    )
    harness = BrokerHarness(image)
    for name, key in (("1", "my.plugin.key"), ("", "other.key")):
        told = by_name(describe(harness, BROKER, name))[key]
        assert (told.value, told.is_sensitive, told.read_only, told.config_type) == (None, True, True, 0)
    assert by_name(describe(harness, BROKER, "1"))["log.retention.ms"].value == "7"


def test_describe_configs_returns_only_the_requested_keys(image: MetadataImage) -> None:
    told = by_name(describe(BrokerHarness(image), TOPIC, "orders", keys=["segment.bytes", "no.such.key"]))
    assert set(told) == {"segment.bytes"}


def test_describe_configs_returns_the_documentation_of_keys_on_request(image: MetadataImage) -> None:
    harness = BrokerHarness(image)
    told = by_name(describe(harness, TOPIC, "orders", include_documentation=True))
    assert all(config.documentation for config in told.values())
    assert all(config.documentation is None for config in by_name(describe(harness, TOPIC, "orders")).values())


def test_describe_configs_of_a_broker_lists_all_keys_and_hides_secrets(image: MetadataImage) -> None:
    harness = BrokerHarness(image, properties={"ssl.keystore.password": "hush", "num.partitions": "7"})
    told = by_name(describe(harness, BROKER, "1", include_synonyms=True))
    assert set(told) >= {name for name, key in BROKER_KEYS.items() if not key.is_internal}
    assert (told["num.partitions"].value, told["num.partitions"].config_source) == ("7", ConfigOrigin.STATIC_BROKER)
    assert (told["log.retention.ms"].value, told["log.retention.ms"].config_source) == ("3000", 2)
    assert told["node.id"].read_only
    assert not told["log.retention.ms"].read_only
    secret = told["ssl.keystore.password"]
    assert (secret.is_sensitive, secret.value) == (True, None)
    assert all(synonym.value is None for synonym in secret.synonyms)


def test_describe_configs_of_the_empty_broker_name_returns_only_the_dynamic_cluster_defaults(
    image: MetadataImage,
) -> None:
    told = by_name(describe(BrokerHarness(image), BROKER, ""))
    assert {name: config.value for name, config in told.items()} == {
        "log.retention.ms": "2000",
        "min.insync.replicas": "2",
    }
    assert {config.config_source for config in told.values()} == {ConfigOrigin.DYNAMIC_DEFAULT_BROKER}


@pytest.mark.parametrize(
    ("type_", "name", "error"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_describe_configs_rejects_only_the_resources_that_this_broker_cannot_describe(
    image: MetadataImage, type_: int, name: str, error: ErrorCode
) -> None:
    result = describe(BrokerHarness(image), type_, name)
    assert (result.error_code, result.configs) == (error, ())
    assert result.error_message


def test_describe_configs_returns_the_authorization_error_whether_or_not_the_topic_exists(image: MetadataImage) -> None:
    denying = Denying((Operation.DESCRIBE_CONFIGS, "missing"), (Operation.DESCRIBE_CONFIGS, CLUSTER.name))
    harness = BrokerHarness(image, authorizer=denying)
    assert describe(harness, TOPIC, "missing").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert describe(harness, BROKER, "7").error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert describe(harness, TOPIC, "orders").error_code == 0


def alter(harness: BrokerHarness, *changes: tuple[str, int, str | None], name: str = "1", **fields: Any) -> Any:
    request = messages.request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    resource = messages.nested_class(request, "resources")
    config = messages.nested_class(resource, "configs")
    configs = [messages.build(config, name=n, config_operation=operation, value=v) for n, operation, v in changes]
    wanted = [messages.build(resource, resource_type=LOGGER, resource_name=name, configs=configs)]
    (result,) = harness.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=wanted, **fields).responses
    return result


def test_a_logger_level_can_be_set_described_and_reset() -> None:
    harness = BrokerHarness()
    assert alter(harness, ("kraft.broker", 0, "DEBUG"), ("root", 0, "ERROR")).error_code == 0
    told = by_name(describe(harness, LOGGER, "1"))
    assert (told["kraft.broker"].value, told["root"].value, told["kraft"].value) == ("DEBUG", "ERROR", "ERROR")
    assert told["root"].config_source == ConfigOrigin.DYNAMIC_BROKER_LOGGER
    assert alter(harness, ("kraft.broker", 1, None)).error_code == 0
    assert by_name(describe(harness, LOGGER, "1"))["kraft.broker"].value == "ERROR"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("no.such.logger", 0, "INFO"), ErrorCode.INVALID_CONFIG),
        (("kraft.broker", 0, "LOUD"), ErrorCode.INVALID_CONFIG),
        (("kraft.broker", 0, "debug"), ErrorCode.INVALID_CONFIG),
        (("kraft.broker", 0, None), ErrorCode.INVALID_REQUEST),
        (("kraft", 0, "ERROR"), ErrorCode.INVALID_REQUEST),
        (("kraft.broker", 2, "INFO"), ErrorCode.INVALID_REQUEST),
        (("root", 1, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_logger_level_change_is_rejected_as_a_whole(
    change: tuple[str, int, str | None], error: ErrorCode
) -> None:
    harness = BrokerHarness()
    before = by_name(describe(harness, LOGGER, "1"))
    assert alter(harness, ("kraft", 0, "FATAL"), change).error_code == error
    assert by_name(describe(harness, LOGGER, "1")) == before


def test_a_logger_level_change_with_validate_only_changes_nothing() -> None:
    harness = BrokerHarness()
    before = by_name(describe(harness, LOGGER, "1"))
    assert alter(harness, ("kraft", 0, "FATAL"), validate_only=True).error_code == 0
    assert alter(harness, ("kraft", 0, "FATAL"), name="2").error_code == ErrorCode.INVALID_REQUEST
    assert by_name(describe(harness, LOGGER, "1")) == before


@pytest.mark.parametrize(
    ("type_", "name", "error", "words"),
    [
        (TOPIC, "no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: 'a/b' contains"),
        (BROKER, "2", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 but received 2"),
        (ConfigResourceType.GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
        (
            ConfigResourceType.CLIENT_METRICS,
            "",
            ErrorCode.INVALID_REQUEST,
            "Client metrics subscription name must not be empty",
        ),
        (77, "x", ErrorCode.INVALID_REQUEST, "Unsupported resource type: 77"),
    ],
)
def test_a_resource_that_cannot_be_described_has_kafkas_error_text(
    image: MetadataImage, type_: int, name: str, error: ErrorCode, words: str
) -> None:
    refused = describe(BrokerHarness(image), type_, name)
    assert refused.error_code == error
    assert refused.error_message.startswith(words)
