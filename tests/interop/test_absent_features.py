"""Foreign clients that request a missing feature get a clear error. A foreign producer waits for a topic that is
auto-created.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka.admin import KafkaAdminClient

from tests.stages.started_clusters import LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]  # foreign libraries emit warnings

SECONDS_MAX = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with running() as started:
        yield started


def test_acl_requests_are_refused_as_by_kafka_without_an_authorizer(cluster: LocalCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    allow = (AclOperation.READ, AclPermissionType.ALLOW)
    acl = AclBinding(ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:a", "*", *allow)
    anything = (None, None, AclOperation.ANY, AclPermissionType.ANY)
    every = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, *anything)
    for asked in (*admin.create_acls([acl]).values(), *admin.delete_acls([every]).values()):
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            asked.result(SECONDS_MAX)
        error = refused.value.args[0]
        assert error.code() == confluent_kafka.KafkaError.SECURITY_DISABLED
        assert error.str().startswith("No Authorizer is configured.")


def test_a_client_with_sasl_gets_an_unsupported_error(cluster: LocalCluster) -> None:
    heard: list[confluent_kafka.KafkaError] = []
    sasl = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "a",
        "sasl.password": "b",
    }
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, **sasl, "error_cb": heard.append})
    deadline = time.monotonic() + SECONDS_MAX
    while not heard and time.monotonic() < deadline:
        producer.poll(0.1)
    assert heard[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "SASL" in heard[0].str()


def test_list_transactions_returns_an_empty_list(cluster: LocalCluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    assert not any(admin.list_transactions().values())
    admin.close()


def _confluent(bootstrap: str, topic: str) -> int:
    offsets: list[int] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"v", callback=lambda error, message: offsets.append(message.offset()))
    assert producer.flush(SECONDS_MAX) == 0
    return offsets[0]


def _kafka_python(bootstrap: str, topic: str) -> int:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    offset: int = producer.send(topic, b"v").get(SECONDS_MAX).offset
    producer.close()
    return offset


def _aiokafka(bootstrap: str, topic: str) -> int:
    async def send() -> int:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            offset: int = (await producer.send_and_wait(topic, b"v")).offset
            return offset

    return asyncio.run(send())


@pytest.mark.parametrize("send", [_confluent, _kafka_python, _aiokafka])
def test_a_foreign_producer_waits_for_an_auto_created_topic(
    cluster: LocalCluster, send: Callable[[str, str], int]
) -> None:
    assert send(cluster.bootstrap, f"auto{send.__name__}") == 0
