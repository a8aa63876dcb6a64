"""Client settings: Kafka's names in either spelling, text or native values, and errors that name the valid values."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.client import ConfigError, Consumer, Producer
from kraft.client.core.configs import ConsumerConfig, ProducerConfig, ShareConsumerConfig, parse_bootstrap
from kraft.seam import Address
from kraft.wire.records.compression import Compression

HERE = {"bootstrap_servers": "localhost:9092"}


def test_settings_accept_both_spellings_and_values_as_text() -> None:
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
        ({"transactional.id": ""}, "transactional_id is empty"),
        ({"transactional.id": "payments", "acks": "1"}, "transactional_id needs acks=all"),
        ({"transactional_id": "payments", "enable_idempotence": False}, "transactional_id needs acks=all"),
        ({"transaction.timeout.ms": "0"}, "transaction_timeout_ms=0: expected 1 or more"),
        ({"enable.idempotence": "yes"}, "expected true or false"),
        ({"compression_type": "zip"}, "none, gzip, snappy, lz4 or zstd"),
        ({"max_in_flight_requests_per_connection": 6}, "expected 1 to 5"),
        ({"bootstrap_servers": "localhost"}, "is not HOST:PORT"),
        ({"bootstrap_servers": ""}, "bootstrap_servers is missing"),
    ],
)
def test_an_invalid_producer_setting_is_an_error_that_names_valid_values(settings: dict[str, Any], text: str) -> None:
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
        ({"group.protocol": "streams"}, "expected classic or consumer"),
        ({"group_remote_assignor": "uniform"}, "needs group_protocol=consumer"),
        ({"group_protocol": "consumer", "session.timeout.ms": "9000"}, r"the group has group\.consumer\.session"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 900}, r"the group has group\.consumer\.heartbeat"),
        ({"group_protocol": "consumer", "partition_assignment_strategy": "range"}, "see group_remote_assignor"),
    ],
)
def test_an_invalid_consumer_setting_is_an_error_that_names_valid_values(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Consumer(**(HERE | settings))


@pytest.mark.parametrize("key", ["transaction.two.phase.commit.enable", "sasl.mechanism", "ssl.truststore.location"])
def test_an_unsupported_setting_is_rejected_with_a_reason(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} cannot be set: "):
        Producer(**(HERE | {key: "x"}))


def test_settings_of_other_kinds_of_clients_are_ignored() -> None:
    shared = HERE | {"linger.ms": "5", "group.id": "billing", "key.serializer": "x", "retries": "3"}
    assert Producer(**shared).config.linger_ms == 5
    assert Consumer(**shared).config.group_id == "billing"


def test_max_block_ms_accepts_the_largest_64_bit_number() -> None:
    assert ProducerConfig.of(HERE | {"max.block.ms": "9223372036854775807"}).max_block_ms == (1 << 63) - 1


def test_a_producer_is_idempotent_only_with_acks_all() -> None:
    assert ProducerConfig.of(HERE).is_idempotent
    assert not ProducerConfig.of(HERE | {"acks": 1}).is_idempotent
    assert ProducerConfig.of(HERE | {"acks": "0"}).required_acks == 0
    assert ProducerConfig.of(HERE | {"compression_type": "zstd"}).compression is Compression.ZSTD


def test_auto_offset_reset_accepts_a_duration() -> None:
    assert ConsumerConfig.of(HERE | {"auto.offset.reset": "by_duration:PT1H"}).reset_duration_ms == 3_600_000
    assert ConsumerConfig.of(HERE | {"auto.offset.reset": "latest"}).reset_duration_ms is None


def test_group_protocol_is_classic_unless_it_is_set_to_consumer() -> None:
    assert not ConsumerConfig.of(HERE).is_consumer_protocol
    config = ConsumerConfig.of(HERE | {"group.protocol": "consumer", "group.remote.assignor": "range"})
    assert (config.is_consumer_protocol, config.group_remote_assignor) == (True, "range")


def test_assignors_can_be_given_as_a_list_or_as_text() -> None:
    assert ConsumerConfig.of(HERE).assignors == ["range", "cooperative-sticky"]
    assert ConsumerConfig.of(HERE | {"partition.assignment.strategy": "sticky, range"}).assignors == ["sticky", "range"]


def test_bootstrap_servers_can_be_given_as_text_or_as_a_list() -> None:
    assert parse_bootstrap("a:1, [::1]:2") == [Address("a", 1), Address("::1", 2)]
    assert parse_bootstrap(["a:1"]) == [Address("a", 1)]
    with pytest.raises(ConfigError, match="no bootstrap servers"):
        parse_bootstrap([])


def test_a_share_consumer_has_settings_of_its_own() -> None:
    config = ShareConsumerConfig.of(HERE | {"group.id": "jobs", "share.acknowledgement.mode": "explicit"})
    assert (config.is_explicit, config.is_record_limit, config.max_poll_records) == (True, False, 500)
    assert ShareConsumerConfig.of(HERE | {"group.id": "jobs", "share.acquire.mode": "record_limit"}).is_record_limit
    assert ConsumerConfig.of(HERE | {"share.acquire.mode": "record_limit"}).group_id is None


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "group_id is missing"),
        ({"group.id": ""}, "group_id is missing"),
        ({"group.id": "g", "max.poll.records": "0"}, "expected 1 or more"),
        ({"group.id": "g", "share.acquire.mode": "fast"}, "expected batch_optimized or record_limit"),
        ({"group.id": "g", "share.acknowledgement.mode": "auto"}, "expected implicit or explicit"),
        ({"group.id": "g", "auto.offset.reset": "earliest"}, "the group has share.auto.offset.reset"),
        ({"group.id": "g", "group_instance_id": "a"}, "no static members"),
        ({"group.id": "g", "enable_auto_commit": True}, "see share_acknowledgement_mode"),
    ],
)
def test_a_share_consumer_refuses_what_its_group_decides(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ShareConsumerConfig.of(HERE | settings)
