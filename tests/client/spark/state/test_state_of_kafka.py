"""Tests of tables that pykraft's brokers do not serve yet, and of columns that only Apache Kafka fills, read from
Apache Kafka without Spark.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kraft.client.spark.state import StateError
from tests.client.spark.state.state_requests import read_table, with_admin
from tests.client.spark.topic_records import create_topic, numbered, write_records
from tests.interop.kafka_nodes import kafka_in_racks

pytestmark = pytest.mark.interop

AUTHORIZED = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found=true",
    "super.users=User:ANONYMOUS",
)
KAFKA_TOOLS = Path(__file__).parents[3] / "interop" / "kafka.sh"
PASSWORD, SALT = b"do-not-show-this", b"salt-not-shown"


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    """Address of Apache Kafka with an authorizer, and with a topic."""
    with kafka_in_racks(["a"], AUTHORIZED) as cluster:
        create_topic(cluster.bootstrap, "orders", partitions=2)
        yield cluster.bootstrap


def test_table_acls_has_a_row_per_acl_and_requests_only_the_filtered_resource(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    literal = ResourcePatternType.LITERAL
    of_orders = AclBinding(
        ResourceType.TOPIC, "orders", literal, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    prefixed = ResourcePatternType.PREFIXED
    of_group = AclBinding(
        ResourceType.GROUP, "bill", prefixed, "User:bob", "*", AclOperation.ALL, AclPermissionType.DENY
    )
    for future in admin.create_acls([of_orders, of_group]).values():
        future.result(30)
    # the broker learns of the change only after the controller has responded
    while len(read_table(kafka, "acls", "resource")) < 2:
        time.sleep(0.05)
    names = ("resource_type", "resource", "pattern_type", "principal", "host", "operation", "permission")
    alice = ("TOPIC", "orders", "LITERAL", "User:alice", "*", "READ", "ALLOW")
    bob = ("GROUP", "bill", "PREFIXED", "User:bob", "*", "ALL", "DENY")
    assert {tuple(row.values()) for row in read_table(kafka, "acls", *names)} == {alice, bob}
    where = {"resource_type": "TOPIC", "resource": "orders"}
    assert [tuple(row.values()) for row in read_table(kafka, "acls", *names, where=where)] == [alice]
    assert read_table(kafka, "acls", where={"resource": "nothing"}) == []


def test_table_scram_users_has_no_salts_or_keys(kafka: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 5000)
    alice = UserScramCredentialUpsertion("alice", scram, PASSWORD, SALT)
    admin.alter_user_scram_credentials([alice])["alice"].result(30)
    (row,) = read_table(kafka, "scram_users", where={"user": "alice"})
    assert (row["user"], row["mechanism"], row["iterations"]) == ("alice", "SCRAM-SHA-512", 5000)
    assert row in [{**one, "as_of": row["as_of"]} for one in read_table(kafka, "scram_users")]
    assert read_table(kafka, "scram_users", where={"user": "nobody"}) == []


def test_open_transaction_is_in_tables_transactions_and_producers_with_its_age(kafka: str) -> None:
    create_topic(kafka, "transfers", partitions=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka, "transactional.id": "hanging"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("transfers", b"x", partition=1)
    assert producer.flush(30) == 0
    (row,) = read_table(kafka, "transactions", where={"transactional_id": "hanging"})
    (other,) = read_table(kafka, "transactions", where={"producer_id": row["producer_id"]})
    (state,) = read_table(kafka, "producers", where={"topic": "transfers", "partition": 1})
    producer.abort_transaction(30)
    after = row
    while after["state"] in ("Ongoing", "PrepareAbort"):
        (after,) = read_table(kafka, "transactions", where={"transactional_id": "hanging"})
    assert (row["state"], row["partitions"], row["timeout_ms"]) == ("Ongoing", [("transfers", 1)], 60_000)
    assert timedelta(0) <= datetime.now(UTC) - row["started"] < timedelta(minutes=5)
    assert row["age_ms"] >= 0
    assert other["transactional_id"] == "hanging"
    assert state["producer_id"] == row["producer_id"]
    assert state["transaction_start"] == 0
    assert state["open_ms"] >= 0
    assert (after["started"], after["age_ms"]) == (None, None)
    assert read_table(kafka, "transactions", where={"transactional_id": "nobody"}) == []


def test_table_quotas_has_a_column_for_each_part_of_the_entity(kafka: str) -> None:
    assert read_table(kafka, "quotas") == []
    entity = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-default")
    change = ("--alter", "--add-config", "producer_byte_rate=1024")
    tool = ("tool", "kafka.admin.ConfigCommand", "--bootstrap-server", kafka, *change, *entity)
    subprocess.run([KAFKA_TOOLS, *tool], check=True, timeout=60, stdout=subprocess.DEVNULL)
    (row,) = read_table(kafka, "quotas")
    assert (row["user"], row["client_id"], row["ip"]) == ("alice", "<default>", None)
    assert (row["quota"], row["value"]) == ("producer_byte_rate", 1024.0)


def test_table_group_members_of_a_consumer_protocol_group_has_epochs_targets_and_subscriptions(kafka: str) -> None:
    write_records(kafka, "orders", numbered(2, partitions=2))
    settings = {"bootstrap.servers": kafka, "group.id": "new", "group.protocol": "consumer", "client.rack": "a"}
    with closing(confluent_kafka.Consumer(settings | {"auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe(["orders"])
        assert consumer.poll(30) is not None, "no record within 30 s"
        (group,) = read_table(kafka, "groups", where={"group_id": "new"})
        (member,) = read_table(kafka, "group_members", where={"group_id": "new"})
    assert (group["type"], group["members"]) == ("Consumer", 1)
    assert group["epoch"] == group["assignment_epoch"] > 0
    assert (member["rack"], member["subscribed"]) == ("a", ["orders"])
    assert member["assigned"] == member["target"] == [("orders", 0), ("orders", 1)]
    assert member["epoch"] > 0


def test_table_group_offsets_of_apache_kafka_has_lag(kafka: str) -> None:
    with_admin(kafka, lambda admin: admin.groups.alter_offsets("billing", {("orders", 0): 0}))
    (row,) = read_table(kafka, "group_offsets", where={"group_id": "billing"})
    assert (row["topic"], row["partition"], row["offset"], row["lag"]) == ("orders", 0, 0, row["end_offset"])


def test_table_acls_without_an_authorizer_is_an_error_that_names_the_cause(apache_kafka: str) -> None:
    with pytest.raises(StateError, match="table acls cannot be read: SECURITY_DISABLED"):
        read_table(apache_kafka, "acls")
