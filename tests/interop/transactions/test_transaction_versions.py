"""Foreign clients commit and abort transactions in clusters with transaction.version 0 and 1, and while it is raised.

They learn the level from the ApiVersions responses of brokers, and then use the protocol of that level.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.programs import install_tools
from tests.interop.transactions.clients import CLIENTS
from tests.interop.transactions.producing import TransactionalProducer, check_visible
from tests.interop.transactions.scenario import create_topics, read_log, wait_until
from tests.stages.kraft_command import Command
from tests.stages.started_clusters import LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

NAMES = ("java", "confluent-kafka", "franz-go")
FEATURE = "transaction.version"
NEWEST = 2
LEVEL_SECONDS_MAX = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    install_tools()
    with running() as started:
        yield started


class Level:
    """The finalized transaction.version of a cluster, as the `kraft` command changes and shows it."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self._command = Command(folder)
        self._servers = ("--bootstrap", cluster.bootstrap)

    def set_to(self, level: int) -> None:
        before = self.finalized
        if level != before:
            verb = "upgrade" if level > before else "downgrade"
            self._command.run("features", verb, f"{FEATURE}={level}", *self._servers)
        wait_until(lambda: self.finalized == level, LEVEL_SECONDS_MAX)

    @property
    def finalized(self) -> int:
        features = self._command.json("features", "describe", *self._servers)
        return next(one["level"] for one in features if one["feature"] == FEATURE) or 0


def transact(producer: TransactionalProducer, prefix: str) -> None:
    """Commit and abort several transactions with one producer epoch, which below level 2 do not change it."""
    for number in range(3):
        producer.run("commit", f"{prefix}-commit-{number}")
        producer.run("abort", f"{prefix}-abort-{number}")
    producer.run("commit", f"{prefix}-last")


def check(cluster: LocalCluster, producer: TransactionalProducer, topic: str) -> None:
    check_visible(producer, read_log(cluster.bootstrap, topic, isolation="read_committed"))
    assert set(producer.aborted) <= set(read_log(cluster.bootstrap, topic, isolation="read_uncommitted"))
    assert not producer.uncertain


@pytest.mark.parametrize("level", [0, 1])
def test_foreign_clients_commit_and_abort_below_transaction_version_2(
    cluster: LocalCluster, tmp_path: Path, level: int
) -> None:
    Level(cluster, tmp_path).set_to(level)
    for name in NAMES:
        topic = f"level-{level}-{name}"
        create_topics(cluster, topic)
        with TransactionalProducer(CLIENTS[name], cluster.bootstrap, topic, topic) as producer:
            transact(producer, name)
        with TransactionalProducer(CLIENTS[name], cluster.bootstrap, topic, topic) as following:
            following.run("commit", "following")
        producer.committed += following.committed
        check(cluster, producer, topic)


def test_foreign_clients_continue_while_the_transaction_version_is_raised_within_a_transaction(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    level = Level(cluster, tmp_path)
    for name in NAMES:
        level.set_to(0)
        topic = f"raised-{name}"
        create_topics(cluster, topic)
        with TransactionalProducer(CLIENTS[name], cluster.bootstrap, topic, topic) as producer:
            producer.run("commit", "before")
            producer.run("commit", "across", before_end=lambda: level.set_to(NEWEST))
            transact(producer, "after")
        with TransactionalProducer(CLIENTS[name], cluster.bootstrap, topic, topic) as following:
            following.run("commit", "following")
        producer.committed += following.committed
        check(cluster, producer, topic)
