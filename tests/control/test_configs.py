"""The controller's decisions about IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.image import ConfigResourceType
from kraft.image.events import ClearElr, PartitionChange
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.stages.admin_requests import altered
from tests.stages.decided_cluster import Cluster, topic_id

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def cluster_with_topics() -> Cluster:
    cluster = Cluster()
    cluster.add_brokers(1, 2)
    cluster.add_topic("orders", (1, 2), number=1)
    cluster.add_topic("users", (1, 2), number=2)
    return cluster


def alter(cluster: Cluster, *resources: Any, validate_only: bool = False) -> list[int]:
    response = cluster.admin(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=resources, validate_only=validate_only)
    return [one.error_code for one in response.responses]


def test_config_key_is_set_changed_and_deleted() -> None:
    cluster = cluster_with_topics()
    assert alter(cluster, altered(TOPIC, "orders", ("retention.ms", SET, "5"), ("flush.ms", SET, "6"))) == [0]
    assert dict(cluster.image.topic_configs("orders")) == {"flush.ms": "6", "retention.ms": "5"}
    assert alter(cluster, altered(TOPIC, "orders", ("retention.ms", SET, "7"), ("flush.ms", DELETE, None))) == [0]
    assert dict(cluster.image.topic_configs("orders")) == {"retention.ms": "7"}


def test_config_list_grows_by_append_and_shrinks_by_subtract() -> None:
    cluster = cluster_with_topics()
    alter(cluster, altered(TOPIC, "orders", ("cleanup.policy", APPEND, "compact,delete")))
    assert cluster.image.topic_configs("orders")["cleanup.policy"] == "delete,compact"
    alter(cluster, altered(TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete")))
    assert cluster.image.topic_configs("orders")["cleanup.policy"] == "compact"


def test_append_to_a_config_that_is_not_a_list_is_rejected() -> None:
    assert alter(cluster_with_topics(), altered(TOPIC, "orders", ("retention.ms", APPEND, "5"))) == [
        ErrorCode.INVALID_CONFIG
    ]


def test_setting_a_config_to_its_present_value_is_written_for_a_broker_but_not_for_a_topic() -> None:
    cluster = cluster_with_topics()
    same = altered(TOPIC, "orders", ("retention.ms", SET, "5"))
    alter(cluster, same)
    assert cluster.decide(cluster.admin_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[same])).events == ()
    same = altered(BROKER, "1", ("log.cleaner.threads", SET, "2"))
    assert alter(cluster, same) == [0]
    again = cluster.decide(cluster.admin_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[same]))
    assert len(again.events) == 1


WRONG: list[tuple[Any, ErrorCode]] = [
    (lambda: altered(TOPIC, "gone", ("retention.ms", SET, "5")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (lambda: altered(TOPIC, "orders", ("retention.ms", SET, "soon")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(TOPIC, "orders", ("no.such.key", SET, "1")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(TOPIC, "orders", ("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST),
    (lambda: altered(TOPIC, "orders", ("retention.ms", 9, "1")), ErrorCode.INVALID_REQUEST),
    (
        lambda: altered(TOPIC, "orders", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
        ErrorCode.INVALID_REQUEST,
    ),
    (lambda: altered(BROKER, "9", ("log.cleaner.threads", SET, "2")), ErrorCode.INVALID_REQUEST),
    (lambda: altered(BROKER, "01", ("log.cleaner.threads", SET, "2")), ErrorCode.INVALID_REQUEST),
    (lambda: altered(BROKER, "\u00b2", ("log.cleaner.threads", SET, "2")), ErrorCode.INVALID_REQUEST),
    (lambda: altered(BROKER, "one", ("log.cleaner.threads", SET, "2")), ErrorCode.INVALID_REQUEST),
    (lambda: altered(BROKER, "1", ("node.id", SET, "2")), ErrorCode.INVALID_REQUEST),
    (lambda: altered(BROKER, "1", ("log.cleaner.threads", SET, "many")), ErrorCode.INVALID_REQUEST),
    (lambda: altered(BROKER, "", ("log.retention.ms", SET, "soon")), ErrorCode.INVALID_REQUEST),
    (lambda: altered(BROKER, "1", ("log.retention.ms", APPEND, "5")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(BROKER, "1", ("ssl.keystore.location", SET, "/k.pem")), ErrorCode.INVALID_REQUEST),
    (lambda: altered(BROKER, "", ("listener.name.a.ssl.keystore.location", SET, "/k")), ErrorCode.INVALID_REQUEST),
    (lambda: altered(TOPIC, "", ("retention.ms", SET, "1")), ErrorCode.INVALID_REQUEST),
    (lambda: altered(TOPIC, "a b", ("retention.ms", SET, "1")), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (lambda: altered(TOPIC, "..", ("retention.ms", SET, "1")), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (lambda: altered(TOPIC, "gone", ("retention.ms", SET, "soon")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(TOPIC, "orders", ("", SET, "1")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(TOPIC, "orders", ("cleanup.policy", SET, "delete,")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(TOPIC, "orders", ("retention.ms", SET, "9" * 5_000)), ErrorCode.INVALID_CONFIG),
    (lambda: altered(TOPIC, "orders", ("compression.gzip.level", SET, "0")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(TOPIC, "orders", ("min.cleanable.dirty.ratio", SET, "0_1")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(16, "x", ("interval.ms", SET, "2")), ErrorCode.INVALID_REQUEST),
    (lambda: altered(GROUP, "", ("consumer.session.timeout.ms", SET, "50000")), ErrorCode.INVALID_REQUEST),
    (lambda: altered(GROUP, "g", ("consumer.session.timeout.ms", SET, None)), ErrorCode.INVALID_REQUEST),
    (lambda: altered(GROUP, "g", ("consumer.session.timeout.ms", SET, "soon")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(GROUP, "g", ("consumer.session.timeout.ms", SET, "44999")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(GROUP, "g", ("consumer.session.timeout.ms", SET, "60001")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "4999")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "15001")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(GROUP, "g", ("consumer.heartbeat.interval.ms", APPEND, "5000")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(GROUP, "g", ("retention.ms", SET, "1")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(GROUP, "g", ("share.auto.offset.reset", SET, "by_duration:-PT1H")), ErrorCode.INVALID_CONFIG),
    (lambda: altered(GROUP, "g", ("share.isolation.level", SET, "serializable")), ErrorCode.INVALID_CONFIG),
]


@pytest.mark.parametrize(("resource", "code"), WRONG)
def test_alter_configs_applies_each_valid_resource_although_another_one_is_rejected(
    resource: Any, code: ErrorCode
) -> None:
    cluster = cluster_with_topics()
    assert alter(cluster, resource(), altered(TOPIC, "users", ("retention.ms", SET, "5"))) == [code, ErrorCode.NONE]
    assert dict(cluster.image.topic_configs("users")) == {"retention.ms": "5"}


def test_a_group_that_does_not_exist_can_have_configs() -> None:
    cluster = Cluster()
    session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert alter(cluster, altered(GROUP, "g", (session, SET, "50000"), (interval, SET, "6000"))) == [0]
    assert dict(cluster.image.configs_of(ConfigResourceType.GROUP, "g")) == {session: "50000", interval: "6000"}
    assert alter(cluster, altered(GROUP, "g", (session, DELETE, None), (interval, DELETE, None))) == [0]
    assert not cluster.image.configs_of(ConfigResourceType.GROUP, "g")


@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H30M", "by_duration:P2DT0.5S"])
def test_the_keys_of_share_groups_are_checked_and_stored(policy: str) -> None:
    cluster = Cluster()
    keys = (("share.auto.offset.reset", SET, policy), ("share.delivery.count.limit", SET, "10"))
    assert alter(cluster, altered(GROUP, "g", *keys)) == [0]


def test_the_legacy_request_replaces_all_configs_of_a_group() -> None:
    cluster = Cluster()
    alter(cluster, altered(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")))
    wanted = {"name": "consumer.heartbeat.interval.ms", "value": "6000"}
    resource = {"resource_type": GROUP, "resource_name": "g", "configs": [wanted]}
    assert cluster.admin(ApiKey.ALTER_CONFIGS, resources=[resource]).responses[0].error_code == 0
    assert dict(cluster.image.configs_of(ConfigResourceType.GROUP, "g")) == {"consumer.heartbeat.interval.ms": "6000"}


def test_configs_of_a_group_need_alter_configs_on_the_group() -> None:
    cluster = Cluster()
    cluster.authorize = lambda requester, operation, kind, name: (
        (operation, kind, name)
        == (
            "ALTER_CONFIGS",
            "GROUP",
            "mine",
        )
    )
    change = ("consumer.session.timeout.ms", SET, "50000")
    assert alter(cluster, altered(GROUP, "mine", change), altered(GROUP, "theirs", change)) == [
        ErrorCode.NONE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ]


def test_config_resource_named_twice_in_a_request_is_rejected_in_both_places() -> None:
    cluster = cluster_with_topics()
    twice = [altered(TOPIC, "orders", ("retention.ms", SET, value)) for value in ("5", "6")]
    assert alter(cluster, *twice) == [ErrorCode.INVALID_REQUEST] * 2
    assert not cluster.image.topic_configs("orders")


def test_alter_configs_with_validate_only_writes_nothing() -> None:
    cluster = cluster_with_topics()
    assert alter(cluster, altered(TOPIC, "orders", ("retention.ms", SET, "5")), validate_only=True) == [0]
    assert not cluster.image.topic_configs("orders")


def test_alter_configs_needs_alter_configs_permission() -> None:
    cluster = cluster_with_topics()
    cluster.authorize = lambda *_: False
    resources = [
        altered(TOPIC, "gone", ("retention.ms", SET, "5")),
        altered(BROKER, "", ("log.cleaner.threads", SET, "2")),
    ]
    assert alter(cluster, *resources) == [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ]


def shrunk(cluster: Cluster) -> None:
    alter(cluster, altered(TOPIC, "orders", ("min.insync.replicas", SET, "2")))
    cluster.apply([PartitionChange(topic_id(1), 0, isr=(1,), elr=(2,))])


def test_changing_min_insync_replicas_of_a_topic_clears_its_elr() -> None:
    cluster = cluster_with_topics()
    shrunk(cluster)
    cluster.apply([PartitionChange(topic_id(2), 0, isr=(1,), elr=(2,))])
    alter(cluster, altered(TOPIC, "orders", ("min.insync.replicas", SET, "1")))
    assert (cluster.partition("orders").elr, cluster.partition("users").elr) == ((), (2,))


def test_changing_the_clusters_min_insync_replicas_clears_every_elr() -> None:
    cluster = cluster_with_topics()
    shrunk(cluster)
    assert alter(cluster, altered(BROKER, "", ("min.insync.replicas", SET, "2"))) == [0]
    assert cluster.partition("orders").elr == ()


def test_changing_min_insync_replicas_keeps_the_elr_of_a_partition_with_an_empty_isr() -> None:
    cluster = cluster_with_topics()
    cluster.apply([PartitionChange(topic_id(1), 0, isr=(), leader=-1, elr=(2, 1), last_known_elr=(1,))])
    cluster.apply([ClearElr("orders")])
    assert cluster.partition("orders").elr == (2, 1)


def test_config_changes_other_than_min_insync_replicas_do_not_clear_the_elr() -> None:
    cluster = cluster_with_topics()
    shrunk(cluster)
    alter(cluster, altered(TOPIC, "orders", ("retention.ms", SET, "1")))
    assert cluster.partition("orders").elr == (2,)


def test_min_insync_replicas_is_never_set_per_broker_nor_removed_from_the_cluster() -> None:
    cluster = cluster_with_topics()
    assert (
        alter(
            cluster,
            altered(BROKER, "1", ("min.insync.replicas", SET, "2")),
            altered(BROKER, "", ("min.insync.replicas", DELETE, None)),
        )
        == [ErrorCode.INVALID_CONFIG] * 2
    )
    assert cluster.image.configs_of(ConfigResourceType.BROKER, "")["min.insync.replicas"] == "1"


def test_append_to_an_unknown_config_key_is_rejected() -> None:
    assert alter(cluster_with_topics(), altered(TOPIC, "orders", ("no.such.list", APPEND, "5"))) == [
        ErrorCode.INVALID_CONFIG
    ]


def test_alter_configs_with_too_many_changes_is_a_policy_violation() -> None:
    cluster = cluster_with_topics()
    resources = []
    for number in range(5_001):
        cluster.add_topic(f"t{number}", (1,), number=10 + number)
        resources.append(altered(TOPIC, f"t{number}", ("retention.ms", SET, "5"), ("flush.ms", SET, "6")))
    codes = alter(cluster, *resources)
    assert set(codes) == {ErrorCode.POLICY_VIOLATION}
    assert not cluster.image.topic_configs("t1")


class CountedName(str):
    """A string that counts its comparisons."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        type(self).compared += 1
        return str.__eq__(self, other)


def test_cost_of_alter_configs_is_linear_in_resources_and_keys() -> None:
    cluster = cluster_with_topics()
    CountedName.compared = 0
    codes = alter(
        cluster, *(altered(TOPIC, CountedName(f"topic-{number}"), ("flush.ms", SET, "1")) for number in range(2_000))
    )
    assert set(codes) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    keys = [(CountedName(f"key-{number}"), SET, "1") for number in range(2_000)]
    assert alter(cluster, altered(TOPIC, "orders", *keys)) == [ErrorCode.INVALID_CONFIG]
    assert CountedName.compared < 20_000


def test_broker_resource_name_with_very_many_digits_is_rejected_as_unknown() -> None:
    assert alter(cluster_with_topics(), altered(BROKER, "9" * 5_000, ("background.threads", SET, "1"))) == [
        ErrorCode.INVALID_REQUEST
    ]


def test_unknown_broker_config_key_is_stored() -> None:
    cluster = cluster_with_topics()
    assert alter(
        cluster, altered(BROKER, "1", ("my.plugin.key", SET, "x")), altered(BROKER, "", ("other", SET, "y"))
    ) == [
        0,
        0,
    ]
    assert cluster.image.configs_of(ConfigResourceType.BROKER, "1")["my.plugin.key"] == "x"


def test_config_values_are_stored_as_given() -> None:
    cluster = cluster_with_topics()
    assert alter(cluster, altered(TOPIC, "orders", ("retention.ms", SET, " 5000 "), ("preallocate", SET, "FALSE"))) == [
        0
    ]
    assert dict(cluster.image.topic_configs("orders")) == {"retention.ms": " 5000 ", "preallocate": "FALSE"}


def test_min_compaction_lag_above_the_inherited_maximum_is_rejected() -> None:
    cluster = cluster_with_topics()
    assert alter(cluster, altered(BROKER, "", ("log.cleaner.max.compaction.lag.ms", SET, "10"))) == [0]
    lag = altered(TOPIC, "orders", ("min.compaction.lag.ms", SET, "11"))
    assert alter(cluster, lag) == [ErrorCode.INVALID_CONFIG]
