"""Settings of groups: inheritance from the broker, and the bounds that brokers set."""

from __future__ import annotations

import pytest

from kraft.config import ConfigError, group_integer, group_value, validate_group_configs
from tests.stages.decided_cluster import node_config as node

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def test_a_group_inherits_what_it_does_not_override_from_the_broker() -> None:
    broker = node(group_consumer_session_timeout_ms="55000")
    assert group_integer(SESSION, {}, broker) == 55_000
    assert group_integer(SESSION, {SESSION: "50000"}, broker) == 50_000
    assert group_value("share.isolation.level", {}, broker) == "read_uncommitted"


def test_an_override_that_does_not_parse_is_ignored() -> None:
    assert group_integer(SESSION, {SESSION: "soon"}, node()) == 45_000


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (SESSION, "44999", f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, "60001", f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        ("share.delivery.count.limit", "11", "must be less than or equal to group.share.max.delivery.count.limit"),
        ("consumer.sesion.timeout.ms", "1", "did you mean consumer.session.timeout.ms?"),
        ("retention.ms", "1", "it is a topic key"),
    ],
)
def test_an_invalid_override_is_rejected_with_the_bound_or_a_hint(name: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        validate_group_configs({name: value}, node())


def test_a_session_is_longer_than_the_interval_that_the_group_inherits() -> None:
    broker = node(
        group_consumer_min_session_timeout_ms="1000",
        group_consumer_heartbeat_interval_ms="9000",
    )
    validate_group_configs({SESSION: "9001"}, broker)
    with pytest.raises(ConfigError, match=f"{SESSION} must be greater than {INTERVAL}"):
        validate_group_configs({SESSION: "9000"}, broker)


@pytest.mark.parametrize(
    "properties",
    [
        {"group_consumer_session_timeout_ms": "44999"},
        {"group_consumer_session_timeout_ms": "60001"},
        {"group_consumer_min_session_timeout_ms": "60001"},
        {"group_consumer_max_heartbeat_interval_ms": "4999"},
        {"group_consumer_min_session_timeout_ms": "1", "group_consumer_session_timeout_ms": "5000"},
        {"group_share_record_lock_duration_ms": "60001"},
        {"group_consumer_assignors": "sticky"},
        {"group_consumer_assignors": "range,org.apache.kafka.coordinator.group.assignor.RangeAssignor"},
        {"group_consumer_assignors": ""},
    ],
)
def test_a_broker_does_not_start_with_defaults_of_groups_outside_its_bounds(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        node(**properties)
