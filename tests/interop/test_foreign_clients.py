"""Foreign clients work with our brokers as with Kafka's: topics, every codec, reading by assignment, times, leader
kills.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import confluent_kafka
import pytest

from tests.interop.foreign import Aiokafka, Confluent, ForeignClient, KafkaPython, Kcat
from tests.interop.programs import FRANZ_GO, JAVA, KAFKAJS, install_tools
from tests.stages.started_clusters import LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]  # foreign libraries emit warnings

CLIENTS: dict[str, ForeignClient] = {
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": Aiokafka(),
    "kcat": Kcat(),
    "kafkajs": KAFKAJS,
    "franz-go": FRANZ_GO,
    "java": JAVA,
}
RECORDS = 20
KILLS = 5
STREAM_S = 1.0
FIRST_MS = int(time.time()) * 1000 - 3_600_000
"""Timestamp of the first record, recent enough to be kept by retention."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with running() as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    install_tools()


@pytest.mark.parametrize("name", CLIENTS)
def test_a_foreign_client_produces_with_each_codec_and_reads_by_assignment(cluster: LocalCluster, name: str) -> None:
    client = CLIENTS[name]
    topic = f"codecs-{name}"
    client.create_topic(cluster.bootstrap, topic)
    expected: list[str] = []
    for codec in client.codecs:
        values = [f"{codec}-{index}" for index in range(RECORDS)]
        client.produce(cluster.bootstrap, topic, codec, values)
        expected += values
    assert client.read(cluster.bootstrap, topic) == expected


@pytest.mark.parametrize("name", CLIENTS)
def test_a_foreign_client_finds_offsets_by_time(cluster: LocalCluster, name: str) -> None:
    client = CLIENTS[name]
    topic = f"times-{name}"
    cluster.create_topic(topic, partitions=1, replication_factor=3)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, "at a time", partition=0, timestamp=FIRST_MS + 1000 * number)
    assert producer.flush(20) == 0
    times_ms = [FIRST_MS + after_ms for after_ms in (-1, 0, 1, 3_500, 1000 * (RECORDS - 1), 1000 * RECORDS)]
    *found, after_all = client.offsets_at(cluster.bootstrap, topic, times_ms)
    assert found == [0, 0, 1, 4, RECORDS - 1]
    assert after_all in (None, RECORDS)


@pytest.mark.parametrize("name", CLIENTS)
def test_every_acknowledged_record_is_read_once_after_five_leader_kills(cluster: LocalCluster, name: str) -> None:
    client = CLIENTS[name]
    topic = f"kills-{name}"
    client.create_topic(cluster.bootstrap, topic)
    stream = client.stream(cluster.bootstrap, topic)
    time.sleep(STREAM_S)
    for _ in range(KILLS):
        with cluster.killed(cluster.leader(topic)):
            time.sleep(STREAM_S)
        cluster.wait_in_sync(topic, 3)
    acknowledged = stream.stop()
    assert len(acknowledged) > KILLS * 10
    read = Counter(client.read(cluster.bootstrap, topic))
    lost = [value for value in acknowledged if not read[value]]
    doubled = [value for value, count in read.items() if count > 1]
    assert (lost, doubled) == ([], [])
