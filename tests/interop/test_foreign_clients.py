"""Foreign clients cannot tell the difference: topics, every codec, reading by assignment, and five leader kills."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.clusters import LocalCluster, running
from tests.interop.foreign import Aiokafka, Confluent, ForeignClient, Java, KafkaPython, Kcat

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]  # foreign libraries warn of their own

CLIENTS: dict[str, ForeignClient] = {
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": Aiokafka(),
    "kcat": Kcat(),
    "java": Java(),
}
RECORDS = 20
KILLS = 5
STREAM_S = 1.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with running() as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    missing = [tool for tool in ("kcat", "java", "mvn") if shutil.which(tool) is None]
    assert not missing, f"not installed: {', '.join(missing)}; `make interop` installs them"
    Java.build()


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
    assert client.read(cluster.bootstrap, topic, len(expected)) == expected


@pytest.mark.parametrize("name", CLIENTS)
def test_every_acknowledged_record_is_read_once_after_five_leader_kills(cluster: LocalCluster, name: str) -> None:
    client = CLIENTS[name]
    topic = f"kills-{name}"
    client.create_topic(cluster.bootstrap, topic)
    stream = client.stream(cluster.bootstrap, topic)
    time.sleep(STREAM_S)
    for _ in range(KILLS):
        leader = cluster.leader(topic)
        cluster.kill(leader)
        time.sleep(STREAM_S)
        cluster.start(leader)
        cluster.wait_in_sync(topic, 3)
    acknowledged = stream.stop()
    assert len(acknowledged) > KILLS * 10
    read = Counter(client.read(cluster.bootstrap, topic, len(acknowledged)))
    lost = [value for value in acknowledged if not read[value]]
    doubled = [value for value, count in read.items() if count > 1]
    assert (lost, doubled) == ([], [])
