"""Tests of tables of a cluster of processes, read without Spark. The tables must equal the results of the
admin client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import confluent_kafka
import pytest

from kraft.client.admin import (
    EARLIEST,
    LATEST,
    Admin,
    ClusterDescription,
    ConfigResource,
    ConfigSource,
    Feature,
    GroupDescription,
    LogDir,
    ProducerState,
    QuorumDescription,
    ResourceType,
    TopicDescription,
)
from kraft.client.core.records import TopicPartition
from kraft.client.spark.state import StateError
from kraft.client.spark.state.cells import id_text
from tests.client.spark.state.state_requests import protocol_columns, read_table, with_admin
from tests.client.spark.topic_records import create_topic, numbered, write_records
from tests.stages.started_clusters import LocalCluster, running

pytestmark = pytest.mark.interop

RECORDS = 300
SECRET = "do-not-show-this"


@pytest.fixture(scope="module")
def bootstrap(cluster: LocalCluster) -> str:
    """Bootstrap address of a cluster with two topics. One has records, of which a group has read a part."""
    create_topic(cluster.bootstrap, "orders", partitions=3, replication_factor=2, retention_ms=1234567)
    create_topic(cluster.bootstrap, "empty", partitions=1, replication_factor=1)
    write_records(cluster.bootstrap, "orders", numbered(RECORDS, partitions=3))
    with_admin(
        cluster.bootstrap, lambda admin: admin.groups.alter_offsets("billing", {("orders", 0): 40, ("orders", 1): 100})
    )
    return cluster.bootstrap


def test_table_brokers_has_all_brokers_with_their_replica_counts(bootstrap: str) -> None:
    async def reported(admin: Admin) -> tuple[ClusterDescription, tuple[TopicDescription, ...], tuple[LogDir, ...]]:
        return await admin.nodes.cluster(), await admin.topics.list(), await admin.nodes.log_dirs()

    cluster, topics, dirs = with_admin(bootstrap, reported)
    parts = [part for topic in topics for part in topic.partitions]
    rows = read_table(bootstrap, "brokers")
    assert [(row["broker_id"], row["host"], row["port"], row["is_fenced"]) for row in rows] == [
        (one.node_id, one.address.host, one.address.port, False) for one in cluster.brokers
    ]
    for row in rows:
        broker = row["broker_id"]
        assert row["leaders"] == sum(part.leader == broker for part in parts)
        assert row["replicas"] == sum(broker in part.replicas for part in parts)
        assert row["preferred_leaders"] == sum(part.replicas[0] == broker for part in parts)
        assert row["size_bytes"] == sum(one.size_bytes for one in dirs if one.broker == broker) > 0
    assert read_table(bootstrap, "brokers", "broker_id", where={"broker_id": 2}) == [{"broker_id": 2}]


def test_table_controllers_has_voters_with_endpoints_and_observers(bootstrap: str) -> None:
    async def reported(admin: Admin) -> QuorumDescription:
        return await admin.nodes.quorum()

    quorum = with_admin(bootstrap, reported)
    rows = read_table(bootstrap, "controllers")
    voters = [row for row in rows if row["role"] == "voter"]
    assert [row["node_id"] for row in voters] == [one.node_id for one in quorum.voters]
    assert [row["node_id"] for row in rows if row["role"] == "observer"] == [one.node_id for one in quorum.observers]
    assert [row["directory_id"] for row in voters] == [id_text(one.directory_id) for one in quorum.voters]
    assert {row["node_id"] for row in rows if row["is_leader"]} == {quorum.leader}
    for row in voters:
        (endpoint,) = quorum.endpoints[row["node_id"]]
        assert row["endpoints"] == [(endpoint.name, endpoint.address.host, endpoint.address.port, None)]


def test_table_topics_has_settings_sizes_and_records(bootstrap: str) -> None:
    (orders,) = read_table(bootstrap, "topics", where={"topic": "orders"})
    (described,) = with_admin(bootstrap, lambda admin: admin.topics.describe(["orders"]))
    dirs = with_admin(bootstrap, lambda admin: admin.nodes.log_dirs())
    size = sum(replica.size_bytes for one in dirs for replica in one.replicas if replica.topic == "orders")
    assert orders["topic_id"] == id_text(described.topic_id)
    assert (orders["partitions"], orders["replication_factor"], orders["is_internal"]) == (3, 2, False)
    assert (orders["retention_ms"], orders["cleanup_policy"]) == (1234567, "delete")
    assert (orders["size_bytes"], orders["records"]) == (size, RECORDS)
    assert (orders["under_replicated"], orders["leaderless"]) == (0, 0)
    every = read_table(bootstrap, "topics", "topic", "is_internal")
    assert {"orders", "empty"} <= {row["topic"] for row in every if not row["is_internal"]}


def test_table_partitions_equals_topic_descriptions_and_offsets(bootstrap: str) -> None:
    (described,) = with_admin(bootstrap, lambda admin: admin.topics.describe_partitions(["orders"]))
    wanted = [("orders", part.index) for part in described.partitions]
    starts = with_admin(bootstrap, lambda admin: admin.partitions.offsets(dict.fromkeys(wanted, EARLIEST)))
    ends = with_admin(bootstrap, lambda admin: admin.partitions.offsets(dict.fromkeys(wanted, LATEST)))
    rows = read_table(bootstrap, "partitions", where={"topic": "orders"})
    assert [row["partition"] for row in rows] == [0, 1, 2]
    for row, part in zip(rows, described.partitions, strict=True):
        assert (row["leader"], row["leader_epoch"]) == (part.leader, part.leader_epoch)
        assert (row["replicas"], row["isr"]) == (list(part.replicas), list(part.isr))
        assert (row["elr"], row["adding"], row["removing"]) == (list(part.elr), [], [])
        assert row["start_offset"] == starts["orders", part.index].offset
        assert row["end_offset"] == row["stable_offset"] == ends["orders", part.index].offset
        assert row["records"] == RECORDS // 3
        assert row["size_bytes"] > 0
        assert row["newest_timestamp"] is not None
        assert (row["is_under_replicated"], row["is_under_min_isr"], row["is_offline"]) == (False, False, False)
    (empty,) = read_table(bootstrap, "partitions", where={"topic": "empty"})
    assert (empty["records"], empty["newest_timestamp"]) == (0, None)


def test_table_replicas_has_every_replica_with_its_log_directory_and_size(bootstrap: str) -> None:
    (described,) = with_admin(bootstrap, lambda admin: admin.topics.describe(["orders"]))
    dirs = with_admin(bootstrap, lambda admin: admin.nodes.log_dirs())
    paths = {(one.broker, replica.topic, replica.partition): one.path for one in dirs for replica in one.replicas}
    rows = read_table(bootstrap, "replicas", where={"topic": "orders"})
    assert [(row["partition"], row["position"], row["broker_id"]) for row in rows] == [
        (part.index, position, broker) for part in described.partitions for position, broker in enumerate(part.replicas)
    ]
    for row in rows:
        assert row["log_dir"] == paths[row["broker_id"], "orders", row["partition"]]
        assert row["is_leader"] == (described.partitions[row["partition"]].leader == row["broker_id"])
        assert (row["is_in_sync"], row["is_offline"], row["is_future"]) == (True, False, False)
    one = read_table(bootstrap, "replicas", "topic", "broker_id", where={"topic": "orders", "broker_id": 1})
    assert {row["broker_id"] for row in one} == {1}


def test_tables_with_a_filter_that_matches_no_topic_have_no_rows(bootstrap: str) -> None:
    for name in ("no-such-topic", "not a name!"):
        for table in ("topics", "partitions", "replicas", "producers"):
            assert read_table(bootstrap, table, where={"topic": name}) == []
    assert read_table(bootstrap, "configs", where={"resource_type": "TOPIC", "resource": "no-such-topic"}) == []
    for table in ("groups", "group_members", "group_offsets"):
        assert read_table(bootstrap, table, where={"group_id": "no-such-group"}) == []


def test_table_configs_has_types_and_synonyms_and_documentation_only_on_request(bootstrap: str) -> None:
    where = {"resource_type": "TOPIC", "resource": "orders"}
    rows = {row["name"]: row for row in read_table(bootstrap, "configs", where=where)}
    entries = with_admin(bootstrap, lambda admin: admin.configs.describe(ConfigResource(ResourceType.TOPIC, "orders")))
    assert {name: row["value"] for name, row in rows.items()} == {entry.name: entry.value for entry in entries}
    assert {name: row["is_default"] for name, row in rows.items()} == {
        entry.name: entry.source is ConfigSource.DEFAULT for entry in entries
    }
    retention = rows["retention.ms"]
    assert (retention["source"], retention["type"], retention["documentation"]) == ("TOPIC", "LONG", None)
    assert retention["synonyms"][0] == ("retention.ms", "1234567", "TOPIC")
    documented = read_table(bootstrap, "configs", "documentation", where=where, with_docs=True)
    assert all(row["documentation"] for row in documented)
    every = read_table(bootstrap, "configs", "resource_type", "resource")
    kinds = {(row["resource_type"], row["resource"]) for row in every}
    assert {("TOPIC", "orders"), ("BROKER", ""), ("BROKER", "1"), ("BROKER", "2"), ("BROKER", "3")} <= kinds


def test_tables_groups_and_group_offsets_equal_the_committed_offsets(bootstrap: str) -> None:
    (group,) = read_table(bootstrap, "groups", where={"group_id": "billing"})
    assert (group["state"], group["type"], group["members"]) == ("Empty", "Classic", 0)
    assert (group["topics"], group["lag"]) == (["orders"], 60)
    assert group in [{**row, "as_of": group["as_of"]} for row in read_table(bootstrap, "groups")]
    rows = read_table(bootstrap, "group_offsets", where={"group_id": "billing"}, with_lag_time=True)
    found = [(row["partition"], row["offset"], row["end_offset"], row["lag"], row["is_expired"]) for row in rows]
    assert found == [(0, 40, 100, 60, False), (1, 100, 100, 0, False)]
    behind, level = (row["lag_time_ms"] for row in rows)
    assert level == 0
    assert 0 < behind < 600_000
    without = read_table(bootstrap, "group_offsets", "lag_time_ms", where={"group_id": "billing"})
    assert [row["lag_time_ms"] for row in without] == [None, None]


def test_table_offset_commits_lists_commits_in_order(bootstrap: str) -> None:
    for offset in (3, 1, 2):
        with_admin(
            bootstrap, lambda admin, to=offset: admin.groups.alter_offsets("back-and-forth", {("orders", 2): to})
        )
    rows = [row for row in read_table(bootstrap, "offset_commits") if row["group_id"] == "back-and-forth"]
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [("orders", 2, at) for at in (3, 1, 2)]
    assert [row["log_offset"] for row in rows] == sorted(row["log_offset"] for row in rows)
    assert all(row["committed"] is not None and not row["is_tombstone"] for row in rows)


@contextmanager
def member(bootstrap: str, group: str, topic: str) -> Iterator[list[confluent_kafka.TopicPartition]]:
    """A consumer of librdkafka that has assigned partitions and has committed nothing."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "reader", "enable.auto.commit": False}
    with closing(confluent_kafka.Consumer(settings | {"auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(30) is not None, "no record within 30 s"
        yield consumer.assignment()


def test_assigned_partition_without_a_commit_is_a_group_offsets_row_with_null_lag(bootstrap: str) -> None:
    with member(bootstrap, "readers", "orders"):
        described: GroupDescription = with_admin(bootstrap, lambda admin: admin.groups.describe("readers"))
        (reader,) = described.members
        (row,) = read_table(bootstrap, "group_members", where={"group_id": "readers"})
        offsets = read_table(bootstrap, "group_offsets", where={"group_id": "readers"})
        (group,) = read_table(bootstrap, "groups", where={"group_id": "readers"})
    assert (row["member_id"], row["client_id"], row["host"]) == (reader.member_id, "reader", reader.host)
    assert row["assigned"] == [("orders", 0), ("orders", 1), ("orders", 2)]
    assert (row["subscribed"], row["target"], row["epoch"]) == (["orders"], None, None)
    assert [(one["partition"], one["offset"], one["lag"]) for one in offsets] == [(n, None, None) for n in range(3)]
    assert {one["member_id"] for one in offsets} == {reader.member_id}
    assert (group["members"], group["topics"], group["lag"]) == (1, ["orders"], None)


def test_tables_log_dirs_features_apis_and_producers_equal_the_admin_client(bootstrap: str) -> None:
    async def reported(admin: Admin) -> tuple[tuple[LogDir, ...], tuple[Feature, ...], dict[int, tuple[int, int]]]:
        return await admin.nodes.log_dirs(), await admin.nodes.features(), await admin.nodes.api_versions(2)

    dirs, features, versions = with_admin(bootstrap, reported)
    rows = read_table(bootstrap, "log_dirs")
    assert [(row["broker_id"], row["path"], row["error"], row["replicas"]) for row in rows] == [
        (one.broker, one.path, None, len(one.replicas)) for one in dirs
    ]
    levels = [(row["feature"], row["level"], row["max_level"]) for row in read_table(bootstrap, "features")]
    assert levels == [(one.name, one.level, one.max_level) for one in features]
    apis = read_table(bootstrap, "apis", where={"broker_id": 2})
    assert {row["api_key"]: (row["min_version"], row["max_version"]) for row in apis} == versions
    assert {"Fetch", "Metadata"} <= {row["api"] for row in apis}

    parts = [("orders", index) for index in range(3)]
    states: dict[TopicPartition, tuple[ProducerState, ...]]
    states = with_admin(bootstrap, lambda admin: admin.partitions.producers(parts))
    producers = read_table(bootstrap, "producers", where={"topic": "orders"})
    assert [(row["partition"], row["producer_id"], row["last_sequence"]) for row in producers] == [
        (index, state.producer_id, state.last_sequence) for (_, index), found in states.items() for state in found
    ]


@pytest.mark.parametrize(
    ("table", "api"),
    [
        ("quotas", "DescribeClientQuotas version 0"),
        ("scram_users", "DescribeUserScramCredentials version 0"),
    ],
)
def test_query_of_a_table_that_brokers_do_not_support_raises_an_error_that_names_the_api(
    bootstrap: str, table: str, api: str
) -> None:
    with pytest.raises(StateError, match=f"table {table} needs {api} or newer, and these brokers do not answer it"):
        read_table(bootstrap, table)


def test_table_acls_without_an_authorizer_is_an_error_and_unused_transactions_table_is_empty(bootstrap: str) -> None:
    with pytest.raises(StateError, match="No Authorizer is configured"):
        read_table(bootstrap, "acls")
    assert read_table(bootstrap, "transactions") == []


def test_tables_request_only_filtered_topics_and_only_the_live_columns_that_are_read(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, object]] = []
    from kraft.client.connections import Link

    request = Link.request

    async def noted(self: Link, key: object, message: object, **options: object) -> object:
        asked.append((getattr(key, "name", ""), getattr(message, "topics", None)))
        return await request(self, key, message, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Link, "request", noted)
    read_table(bootstrap, "partitions", "topic", "partition", "leader", "isr", where={"topic": "orders"})
    names = [name for name, _ in asked if name != "API_VERSIONS"]
    assert names == ["METADATA"]
    assert [topic.name for _, topics in asked if topics for topic in topics] == ["orders"]
    asked.clear()
    read_table(bootstrap, "partitions", "topic", "end_offset", where={"topic": "orders"})
    assert {name for name, _ in asked} >= {"METADATA", "LIST_OFFSETS"}
    assert "DESCRIBE_LOG_DIRS" not in {name for name, _ in asked}


def test_query_of_a_table_of_an_unreachable_cluster_raises_an_error_that_names_the_address() -> None:
    with pytest.raises(StateError, match=r"table topics cannot be read: no broker answered .*127\.0\.0\.1:1"):
        read_table("127.0.0.1:1", "topics", timeout_ms=1_000)


def test_tables_of_a_cluster_with_a_dead_broker_have_all_rows() -> None:
    with running(settings=["group.initial.rebalance.delay.ms=0"]) as cluster:
        create_topic(cluster.bootstrap, "wide", partitions=3, replication_factor=3)
        create_topic(cluster.bootstrap, "lone", partitions=6, replication_factor=1)
        write_records(cluster.bootstrap, "lone", numbered(6, partitions=6))
        before = read_table(cluster.bootstrap, "partitions", "topic", "partition", "leader")
        cluster.kill(3)
        while not any(row["is_fenced"] for row in read_table(cluster.bootstrap, "brokers", "is_fenced")):
            pass
        after = read_table(cluster.bootstrap, "partitions")
        dirs = read_table(cluster.bootstrap, "log_dirs")
        brokers = read_table(cluster.bootstrap, "brokers")
        replicas = read_table(cluster.bootstrap, "replicas", where={"broker_id": 3})
    assert [(row["topic"], row["partition"]) for row in after] == [(row["topic"], row["partition"]) for row in before]
    lost = [row for row in after if row["leader"] is None]
    assert {row["topic"] for row in lost} == {"lone"}
    live = ("start_offset", "end_offset", "stable_offset", "records", "size_bytes")
    assert all(row[name] is None for row in lost for name in live)
    assert all(row["is_offline"] and row["offline_replicas"] == [3] for row in lost)
    assert all(row["end_offset"] is not None for row in after if row["leader"] is not None)
    (dead,) = [row for row in dirs if row["broker_id"] == 3]
    assert dead["path"] is None
    assert "broker 3 is fenced" in dead["error"]
    assert [row["size_bytes"] is None for row in brokers] == [False, False, True]
    assert replicas
    assert all(row["is_offline"] and row["log_dir"] is None for row in replicas)


def test_state_tables_show_no_secret() -> None:
    secret = f"ssl.key.password={SECRET}"
    with running(combined=1, settings=[secret]) as cluster:
        for table in ("configs", "brokers", "topics", "features"):
            assert SECRET not in repr(read_table(cluster.bootstrap, table, *protocol_columns(table), with_docs=True))
        rows = read_table(cluster.bootstrap, "configs", where={"resource_type": "BROKER", "resource": "1"})
        assert read_table(cluster.bootstrap, "offset_commits") == [], "no group has committed: there is no such topic"
    hidden = {row["name"]: row for row in rows if row["is_sensitive"]}
    assert "ssl.key.password" in hidden
    assert all(row["value"] is None for row in hidden.values())
