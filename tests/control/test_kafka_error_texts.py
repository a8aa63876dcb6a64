"""Error texts begin with the text that Kafka's tools print and scripts parse; details of this project may follow."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.control.decision import EVENTS_PER_COMMAND_MAX
from kraft.image.events import Partition
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from tests.stages.admin_requests import (
    altered,
    deleted,
    elections,
    feature_update,
    more_partitions,
    new_topic,
    part,
    reassigned,
)
from tests.stages.decided_cluster import Cluster, node_config, topic_id

BROKERS = (1, 2, 3)
ILLEGAL = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
MANUAL = "A manual partition assignment was specified, but"
INCLUDES = "The manual partition assignment includes"
UNABLE = "Unable to replicate the partition"
INVALID_UPDATE = "The update failed for all features since the following feature had an error: Invalid update version"
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."


def cluster() -> Cluster:
    made = Cluster()
    made.add_brokers(*BROKERS)
    made.add_topic("orders", (1, 2), (2, 1), number=1)
    made.add_topic("pay.ments", (1,), number=2)
    return made


def refusals(found: Any) -> list[str]:
    """Return all error texts in a response."""
    texts = []
    if getattr(found, "error_code", 0) and getattr(found, "error_message", None):
        texts.append(found.error_message)
    for name in ("topics", "results", "responses", "replica_election_results", "partitions", "partition_result"):
        for row in getattr(found, name, None) or ():
            texts += refusals(row)
    return texts


CREATE: list[tuple[Any, str]] = [
    (new_topic("orders"), "Topic 'orders' already exists."),
    (new_topic(""), "Topic name is invalid: the empty string is not allowed"),
    (new_topic("."), "Topic name is invalid: '.' is not allowed"),
    (new_topic(".."), "Topic name is invalid: '..' is not allowed"),
    (new_topic("a/b"), f"Topic name is invalid: 'a/b' {ILLEGAL}"),
    (
        new_topic("a" * 250),
        f"Topic name is invalid: the length of '{'a' * 250}' is longer than the max allowed length 249",
    ),
    (new_topic("pay_ments"), "Topic 'pay_ments' collides with existing topic: pay.ments"),
    (new_topic("__cluster_metadata"), "Creation of internal topic __cluster_metadata is prohibited."),
    (new_topic("t", 0), "Number of partitions was set to an invalid non-positive value."),
    (new_topic("t", 0, 0), "Replication factor must be larger than 0, or -1 to use the default value."),
    (
        new_topic("t", 1, 4),
        f"{UNABLE} 4 time(s): The target replication factor of 4 cannot be reached because only 3 broker(s) are",
    ),
    (new_topic("t", EVENTS_PER_COMMAND_MAX + 1, 1), TOO_MANY_PARTITIONS),
    (new_topic("t", configs={"retention.ms": None}), "Null value not supported for topic configs: retention.ms"),
    (new_topic("t", configs={"retention": "1"}), "Unknown topic config name: retention"),
    (new_topic("t", configs={"retention.ms": "abc"}), "Invalid value abc for configuration retention.ms: "),
    (new_topic("t", configs={"retention.ms": "-2"}), "Invalid value -2 for configuration retention.ms: "),
    (new_topic("t", 2, -1, assignments={0: [1]}), f"{MANUAL} numPartitions was not set to -1."),
    (new_topic("t", 2, 2, assignments={0: [1]}), f"{MANUAL} replication factor was not set to -1."),
    (new_topic("t", -1, -1, assignments={1: [1]}), "partitions should be a consecutive 0-based integer sequence"),
    (new_topic("t", -1, -1, assignments={0: []}), f"{INCLUDES} an empty replica list."),
    (new_topic("t", -1, -1, assignments={0: [1, 9]}), f"{INCLUDES} broker 9, but no such broker is registered."),
    (new_topic("t", -1, -1, assignments={0: [1, 1]}), f"{INCLUDES} the broker 1 more than once."),
    (
        new_topic("t", -1, -1, assignments={0: [1], 1: [1, 2]}),
        f"{INCLUDES} a partition with 2 replica(s), but this is not consistent with previous partitions, which have "
        "1 replica(s).",
    ),
]


@pytest.mark.parametrize(("topic", "words"), CREATE, ids=[words[:60] for _, words in CREATE])
def test_create_topics_errors_begin_with_kafkas_text(topic: Any, words: str) -> None:
    (text,) = refusals(cluster().admin(ApiKey.CREATE_TOPICS, topics=[topic]))
    assert text.startswith(words)


DOUBLE = messages.build(
    part(ApiKey.CREATE_TOPICS, "topics"),
    name="t",
    num_partitions=-1,
    replication_factor=-1,
    assignments=[{"partition_index": 0, "broker_ids": [1]}, {"partition_index": 0, "broker_ids": [2]}],
)
OTHERS: list[tuple[ApiKey, list[Any], str]] = [
    (ApiKey.CREATE_TOPICS, [new_topic("t"), new_topic("t")], "Duplicate topic name."),
    (ApiKey.CREATE_TOPICS, [DOUBLE], "Found multiple manual partition assignments for partition 0"),
    (ApiKey.DELETE_TOPICS, [deleted("no")], "This server does not host this topic-partition."),
    (ApiKey.DELETE_TOPICS, [deleted(None, topic_id(9))], "This server does not host this topic ID."),
    (ApiKey.DELETE_TOPICS, [deleted("orders")] * 2, "Duplicate topic name."),
    (ApiKey.DELETE_TOPICS, [deleted(None, topic_id(1))] * 2, "Duplicate topic id."),
    (ApiKey.DELETE_TOPICS, [deleted()], "Neither topic name nor id were specified."),
    (ApiKey.DELETE_TOPICS, [deleted("orders", topic_id(1))], "You may not specify both topic name and topic id."),
    (
        ApiKey.DELETE_TOPICS,
        [deleted("orders"), deleted(None, topic_id(1))],
        "The provided topic name maps to an ID that was already supplied.",
    ),
    (ApiKey.CREATE_PARTITIONS, [more_partitions("no", 3)], "This server does not host this topic-partition."),
    (ApiKey.CREATE_PARTITIONS, [more_partitions("orders", 2)], "Topic already has 2 partition(s)."),
    (
        ApiKey.CREATE_PARTITIONS,
        [more_partitions("orders", 1)],
        "The topic orders currently has 2 partition(s); 1 would not be an increase.",
    ),
    (
        ApiKey.CREATE_PARTITIONS,
        [more_partitions("orders", 4, [[1, 2]])],
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
    ),
    (
        ApiKey.CREATE_PARTITIONS,
        [more_partitions("orders", 3, [[1]])],
        f"{INCLUDES} a partition with 1 replica(s), but this is not consistent with previous partitions, which have 2",
    ),
    (ApiKey.CREATE_PARTITIONS, [more_partitions("orders", 3)] * 2, "Duplicate topic name."),
    (ApiKey.CREATE_PARTITIONS, [more_partitions("orders", EVENTS_PER_COMMAND_MAX + 3)], TOO_MANY_PARTITIONS),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, [reassigned("no", {0: (1,)})], "Unable to find a topic named no."),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, [reassigned("orders", {9: (1,)})], "Unable to find partition orders:9."),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        [reassigned("orders", {0: None})],
        "No partition reassignment is in progress.",
    ),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, [reassigned("orders", {0: ()})], f"{INCLUDES} an empty replica list."),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        [reassigned("orders", {0: (1, 9)})],
        f"{INCLUDES} broker 9, but no such broker is registered.",
    ),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        [reassigned("orders", {0: (1,)})],
        "The replication factor is changed from 2 to 1",
    ),
    (ApiKey.ELECT_LEADERS, [elections("no", 0)], "No such topic as no"),
    (ApiKey.ELECT_LEADERS, [elections("orders", 9)], "No such partition as orders-9"),
    (ApiKey.ELECT_LEADERS, [elections("orders", 0)], "Leader election not needed for topic partition."),
    (
        ApiKey.UPDATE_FEATURES,
        [feature_update("no.such", 1)],
        f"{INVALID_UPDATE} 1 for feature no.such. Local controller does not support this feature.",
    ),
    (
        ApiKey.UPDATE_FEATURES,
        [feature_update("metadata.version", 999)],
        f"{INVALID_UPDATE} 999 for feature metadata.version. Local controller only supports versions ",
    ),
    (
        ApiKey.UPDATE_FEATURES,
        [feature_update("metadata.version", 1, 0)],
        f"{INVALID_UPDATE} 1 for feature metadata.version. The controller does not support the given upgrade type.",
    ),
    (
        ApiKey.UPDATE_FEATURES,
        [feature_update("group.version", -1)],
        f"{INVALID_UPDATE} -1 for feature group.version. A feature version cannot be less than 0.",
    ),
    *(
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, [resource], words)
        for resource, words in [
            (altered(2, "no", ("retention.ms", 0, "1")), "The topic 'no' does not exist."),
            (altered(2, "orders", ("retention", 0, "1")), "Unknown topic config name: retention"),
            (altered(2, "orders", ("retention.ms", 0, "abc")), "Invalid value abc for configuration retention.ms: "),
            (altered(2, "orders", ("retention.ms", 0, None)), "Null value not supported for : retention.ms"),
            (altered(2, "orders", ("retention.ms", 9, "1")), "Unknown operations type 9"),
            (altered(4, "9", ("log.retention.ms", 0, "1")), "No node with id 9 found."),
            (altered(32, "g", ("a", 0, "1")), "Unknown group config name: a"),
            (altered(32, "", ("a", 0, "1")), "Default group resources are not allowed."),
            (
                altered(32, "g", ("consumer.session.timeout.ms", 0, "1")),
                "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
            ),
            (altered(16, "g", ("a", 0, "1")), "Unknown resource type CLIENT_METRICS"),
            (altered(77, "g", ("a", 0, "1")), "Unknown resource type 77"),
            (
                altered(2, "orders", ("retention.ms", 2, "1")),
                "Can't APPEND to key retention.ms because its type is not LIST.",
            ),
            (
                altered(2, "orders", ("retention.ms", 0, "1"), ("retention.ms", 0, "2")),
                "Error due to duplicate config keys",
            ),
            (
                altered(4, "one", ("log.retention.ms", 0, "1")),
                "Unable to parse broker name as a base 10 number.",
            ),
            (
                altered(4, "1", ("min.insync.replicas", 0, "1")),
                "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
            ),
        ]
    ),
]
FIELD_OF = {
    ApiKey.CREATE_TOPICS: "topics",
    ApiKey.DELETE_TOPICS: "topics",
    ApiKey.CREATE_PARTITIONS: "topics",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "topics",
    ApiKey.ELECT_LEADERS: "topic_partitions",
    ApiKey.UPDATE_FEATURES: "feature_updates",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "resources",
}


@pytest.mark.parametrize(
    ("key", "asked", "words"), OTHERS, ids=[f"{key.name}-{words[-50:]}" for key, _, words in OTHERS]
)
def test_admin_request_errors_begin_with_kafkas_text(key: ApiKey, asked: list[Any], words: str) -> None:
    fixed = {"allow_replication_factor_change": False} if key is ApiKey.ALTER_PARTITION_REASSIGNMENTS else {}
    texts = refusals(cluster().admin(key, **{FIELD_OF[key]: asked}, **fixed))
    assert [text for text in texts if text.startswith(words)], texts


def test_disabled_topic_deletion_is_rejected_with_kafkas_text() -> None:
    made = Cluster(node_config(delete_topic_enable="false"))
    made.add_broker(1)
    made.add_topic("orders", (1,))
    (text,) = refusals(made.admin(ApiKey.DELETE_TOPICS, topics=[deleted("orders")]))
    assert text.startswith("Topic deletion is disabled.")


def test_topic_without_active_brokers_is_rejected_with_kafkas_text() -> None:
    made = cluster()
    made.fence(*BROKERS)
    (text,) = refusals(made.admin(ApiKey.CREATE_TOPICS, topics=[new_topic("t", 1, 1)]))
    assert text.startswith(f"{UNABLE} 1 time(s): All brokers are currently fenced.")
    (text,) = refusals(made.admin(ApiKey.CREATE_TOPICS, topics=[new_topic("t", -1, -1, assignments={0: [1]})]))
    words = (
        "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown."
    )
    assert text.startswith(words)


def test_unregistering_an_unknown_broker_is_rejected_with_kafkas_text() -> None:
    (text,) = refusals(cluster().admin(ApiKey.UNREGISTER_BROKER, broker_id=9))
    assert text.startswith("Broker ID 9 is not currently registered")


def test_unavailable_leaders_are_reported_with_kafkas_text() -> None:
    made = cluster()
    made.add_topic("led", Partition(topic_id(3), 0, (2, 1), (1,), leader=1), number=3)
    made.add_topic("lost", Partition(topic_id(4), 0, (2,), (2,), leader=-1), number=4)
    made.fence(2)
    for topic, election_type, words in [
        ("led", 0, "The preferred leader was not available."),
        ("lost", 1, "Eligible topic partition leaders are not available."),
    ]:
        wanted = [elections(topic, 0)]
        (text,) = refusals(made.admin(ApiKey.ELECT_LEADERS, election_type=election_type, topic_partitions=wanted))
        assert text.startswith(words)


def test_rejected_secret_config_is_not_repeated_in_the_error() -> None:
    change = altered(4, "", ("ssl.keystore.password", 0, "secret-word"))
    texts = refusals(cluster().admin(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[change]))
    assert not [text for text in texts if "secret-word" in text]
