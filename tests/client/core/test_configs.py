"""Settings: Kafka's names in either spelling, text or values, and errors that say what would be right."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.client import ConfigError, Consumer, Producer
from kraft.client.core.configs import ConsumerConfig, ProducerConfig, parse_bootstrap
from kraft.seam import Address
from kraft.wire.records.compression import Compression

HERE = {"bootstrap_servers": "localhost:9092"}


def test_both_spellings_and_the_text_of_a_properties_file_are_understood() -> None:
    config = ProducerConfig.of({"bootstrap.servers": "a:1", "linger.ms": "5", "enable_idempotence": " False "})
    assert (config.linger_ms, config.is_idempotent) == (5, False)
    assert config.addresses == [Address("a", 1)]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"lingerms": 5}, "did you mean linger_ms"),
        ({"nonsense_xyz": 5}, "there is no setting nonsense_xyz"),
        ({"linger.ms": "soon"}, "linger.ms=soon: expected a number"),
        ({"linger.ms": "--5"}, "linger.ms=--5: expected a number"),
        ({"linger_ms": 1.5}, "expected a whole number"),
        ({"linger_ms": -1}, "expected 0 or more"),
        ({"request.timeout.ms": "99999999999"}, "request_timeout_ms=99999999999: expected at most 2147483647"),
        ({"acks": "some"}, "expected all, 1 or 0"),
        ({"acks": "1", "enable_idempotence": True}, "needs acks=all"),
        ({"enable.idempotence": "yes"}, "expected true or false"),
        ({"compression_type": "zip"}, "none, gzip, snappy, lz4 or zstd"),
        ({"max_in_flight_requests_per_connection": 6}, "expected 1 to 5"),
        ({"bootstrap_servers": "localhost"}, "is not HOST:PORT"),
        ({"bootstrap_servers": ""}, "bootstrap_servers is missing"),
    ],
)
def test_a_wrong_producer_setting_says_what_is_right(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        _ = Producer(**(HERE | settings)).config.addresses


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"auto_offset_reset": "begin"}, "earliest, latest, none, or by_duration: and a duration"),
        ({"auto_offset_reset": "by_duration"}, "such as by_duration:PT1H30M"),
        ({"auto_offset_reset": "by_duration:1h"}, "such as by_duration:PT1H30M"),
        ({"auto.offset.reset": "by_duration:-PT1S"}, "that is not negative"),
        ({"isolation.level": "dirty"}, "read_uncommitted or read_committed"),
        ({"group_instance_id": "me"}, "needs a group_id"),
        ({"fetch.max.bytes": 1 << 31}, "expected at most 2147483647"),
        ({"group_id": ""}, "group_id is empty"),
        ({"heartbeat_interval_ms": 50_000}, "expected less than session_timeout_ms"),
    ],
)
def test_a_wrong_consumer_setting_says_what_is_right(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Consumer(**(HERE | settings))


@pytest.mark.parametrize("key", ["transactional.id", "sasl.mechanism", "ssl.truststore.location", "group.protocol"])
def test_what_cannot_be_done_is_refused_with_a_reason(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} cannot be set: "):
        Producer(**(HERE | {key: "x"}))


def test_one_file_serves_all_kinds_of_clients() -> None:
    shared = HERE | {"linger.ms": "5", "group.id": "billing", "key.serializer": "x", "retries": "3"}
    assert Producer(**shared).config.linger_ms == 5
    assert Consumer(**shared).config.group_id == "billing"


def test_who_waits_for_ever_may_say_so_as_for_kafka() -> None:
    assert ProducerConfig.of(HERE | {"max.block.ms": "9223372036854775807"}).max_block_ms == (1 << 63) - 1


def test_acknowledgements_decide_about_idempotence() -> None:
    assert ProducerConfig.of(HERE).is_idempotent
    assert not ProducerConfig.of(HERE | {"acks": 1}).is_idempotent
    assert ProducerConfig.of(HERE | {"acks": "0"}).required_acks == 0
    assert ProducerConfig.of(HERE | {"compression_type": "zstd"}).compression is Compression.ZSTD


def test_a_reset_may_go_back_by_a_duration() -> None:
    assert ConsumerConfig.of(HERE | {"auto.offset.reset": "by_duration:PT1H"}).reset_duration_ms == 3_600_000
    assert ConsumerConfig.of(HERE | {"auto.offset.reset": "latest"}).reset_duration_ms is None


def test_assignors_are_a_list_or_text() -> None:
    assert ConsumerConfig.of(HERE).assignors == ["range", "cooperative-sticky"]
    assert ConsumerConfig.of(HERE | {"partition.assignment.strategy": "sticky, range"}).assignors == ["sticky", "range"]


def test_bootstrap_servers_are_text_or_a_list() -> None:
    assert parse_bootstrap("a:1, [::1]:2") == [Address("a", 1), Address("::1", 2)]
    assert parse_bootstrap(["a:1"]) == [Address("a", 1)]
    with pytest.raises(ConfigError, match="no bootstrap servers"):
        parse_bootstrap([])
