"""Kafka Streams counts words exactly once on our brokers, while an instance of it and a broker are killed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.interop.programs import HERE, JAVA_QUICK_START, install_tools
from tests.interop.transactions.conversation import Conversation
from tests.interop.transactions.scenario import (
    create_topics,
    killed,
    partition_leader,
    read_pairs,
    wait_until,
)
from tests.stages.started_clusters import LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

LINES, COUNTS = "lines", "counts"
WORDS = tuple(f"word-{number}" for number in range(20))
LINES_PER_WAVE = 200
WORDS_PER_LINE = 3
CLASSES = f"{HERE / 'streams/target/classes'}:{HERE / 'streams/target/dependency'}/*"
COUNT_SECONDS_MAX = 90


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    install_tools()
    with running(settings=["group.min.session.timeout.ms=1000"]) as started:
        yield started


def word_count(cluster: LocalCluster, folder: Path) -> Conversation:
    program = ("java", *JAVA_QUICK_START, "-cp", CLASSES, "kraft.interop.WordCount")
    return Conversation((*program, cluster.bootstrap, LINES, COUNTS, "word-count", str(folder)))


def write_wave(cluster: LocalCluster, wave: int) -> Counter[str]:
    """Write lines to both partitions. Return how often they have each word."""
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    failures: list[object] = []
    written: Counter[str] = Counter()
    for number in range(LINES_PER_WAVE):
        words = [WORDS[(wave + number * step) % len(WORDS)] for step in range(1, WORDS_PER_LINE + 1)]
        written.update(words)
        producer.produce(LINES, " ".join(words), None, number % 2, lambda error, _message: failures.append(error))
    assert producer.flush(30) == 0
    assert failures == [None] * LINES_PER_WAVE
    return written


def counted(cluster: LocalCluster) -> dict[str, list[int]]:
    """Return for each word the committed counts, in the order of the log."""
    counts: dict[str, list[int]] = defaultdict(list)
    for word, count in read_pairs(cluster.bootstrap, COUNTS, isolation="read_committed"):
        counts[word].append(int(count))
    return dict(counts)


def test_kafka_streams_counts_each_word_once_when_an_instance_and_a_broker_are_killed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    create_topics(cluster, LINES, COUNTS)
    expected: Counter[str] = Counter()

    def write_and_wait(wave: int) -> None:
        expected.update(write_wave(cluster, wave))
        wait_until(lambda: sum(map(len, counted(cluster).values())) >= expected.total(), COUNT_SECONDS_MAX)

    with word_count(cluster, tmp_path / "first") as first, word_count(cluster, tmp_path / "second") as second:
        for instance in (first, second):
            instance.wait_until(lambda lines: "RUNNING" in lines, COUNT_SECONDS_MAX)
        write_and_wait(0)
        expected.update(write_wave(cluster, 1))
        first.kill()
        write_and_wait(2)
        with killed(cluster, partition_leader(cluster, COUNTS, ""), LINES, COUNTS):
            write_and_wait(3)
        with word_count(cluster, tmp_path / "first"):
            write_and_wait(4)
    assert counted(cluster) == {word: list(range(1, count + 1)) for word, count in expected.items()}
