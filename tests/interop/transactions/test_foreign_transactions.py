"""Transactions of foreign clients are exactly once on three brokers, while brokers and the clients are killed.

Each client runs the same scenarios. In each of them the broker that coordinates the transactions is killed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from tests.interop.programs import install_tools
from tests.interop.transactions.clients import CLIENTS
from tests.interop.transactions.commands import COPIED
from tests.interop.transactions.conversation import Conversation
from tests.interop.transactions.copier import Copier
from tests.interop.transactions.producing import TransactionalProducer, check_visible
from tests.interop.transactions.scenario import (
    Victim,
    Writer,
    create_topics,
    killed,
    partition_leader,
    read_log,
    transaction_coordinator,
    wait_seen,
)
from tests.stages.started_clusters import LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

BROKERS = (1, 2, 3)
VICTIMS: tuple[Victim, ...] = (transaction_coordinator, partition_leader)
LOST_WITHOUT_COORDINATOR = frozenset({"kafka-python"})
"""Libraries that drop a request to a coordinator that refuses the connection. They send it when the broker is back."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    install_tools()
    with running(settings=["group.min.session.timeout.ms=1000"]) as started:
        yield started


def started(cluster: LocalCluster, name: str, topic: str) -> TransactionalProducer:
    """Start a client's producer, whose transactional id is the topic's name."""
    return TransactionalProducer(CLIENTS[name], cluster.bootstrap, topic, topic)


def committed_reader(cluster: LocalCluster, name: str, topic: str) -> Conversation:
    return Conversation((*CLIENTS[name], "committed", cluster.bootstrap, topic))


@pytest.mark.parametrize("name", CLIENTS)
def test_committed_values_of_a_foreign_client_are_visible_once_and_aborted_ones_never(
    cluster: LocalCluster, name: str
) -> None:
    topic = f"ends-{name}"
    create_topics(cluster, topic)
    with started(cluster, name, topic) as producer, committed_reader(cluster, name, topic) as reader:
        for number, victim in enumerate(VICTIMS):
            for verb in ("commit", "abort"):
                producer.run(verb, f"{verb}-{number}")
                with ExitStack() as killing:
                    kill = killed(cluster, victim(cluster, topic, topic), topic)
                    producer.run(verb, f"{verb}-{number}-kill", before_end=partial(killing.enter_context, kill))
        producer.run("commit", "last")
        wait_seen(reader, set(producer.committed))
        check_visible(producer, Counter(reader.lines))
    check_visible(producer, read_log(cluster.bootstrap, topic, isolation="read_committed"))
    assert set(producer.aborted) <= set(read_log(cluster.bootstrap, topic, isolation="read_uncommitted"))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_foreign_transaction_that_is_open_when_all_brokers_restart_is_committed_whole_or_aborted(
    cluster: LocalCluster, name: str
) -> None:
    topic = f"restart-{name}"
    create_topics(cluster, topic)

    def restart_all() -> None:
        for node in BROKERS:
            cluster.kill(node)
        for node in BROKERS:
            cluster.start(node)

    with started(cluster, name, topic) as producer:
        producer.run("abort", "aborted")
        producer.run("commit", "open", before_end=restart_all)
        producer.run("commit", "last")
    cluster.wait_in_sync(topic, 3)
    check_visible(producer, read_log(cluster.bootstrap, topic, isolation="read_committed"))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_second_foreign_producer_fences_the_first_one_while_their_coordinator_is_dead(
    cluster: LocalCluster, name: str
) -> None:
    topic = f"fence-{name}"
    create_topics(cluster, topic)
    with started(cluster, name, topic) as first:
        assert first.request("begin") == "done"
        assert first.request("send 0 fenced") == "done"
        with (
            killed(cluster, transaction_coordinator(cluster, topic, topic), topic),
            started(cluster, name, topic) as second,
        ):
            if name not in LOST_WITHOUT_COORDINATOR:
                assert first.request("commit") == "fenced"
            second.run("commit", "second")
        if name in LOST_WITHOUT_COORDINATOR:
            assert first.request("commit") == "fenced"
    check_visible(second, read_log(cluster.bootstrap, topic, isolation="read_committed"))
    assert "fenced" in read_log(cluster.bootstrap, topic, isolation="read_uncommitted")


@pytest.mark.parametrize("name", CLIENTS)
def test_a_foreign_program_that_copies_in_transactions_and_is_killed_copies_each_value_once(
    cluster: LocalCluster, name: str
) -> None:
    source, target, transactional_id = f"from-{name}", f"to-{name}", f"copy-{name}"
    create_topics(cluster, source, target)
    copying = (*CLIENTS[name], "copy", cluster.bootstrap, source, target, f"group-{name}", transactional_id)
    with (
        Writer(cluster.bootstrap, source) as writer,
        Copier(copying) as copier,
        committed_reader(cluster, name, target) as reader,
    ):
        copier.crash_at("sent")
        for victim, line in zip(VICTIMS, ("offsets", "committed"), strict=True):
            with killed(cluster, victim(cluster, source, transactional_id), source, target):
                copier.crash_at(line)
        expected = [COPIED + value for value in writer.stop()]
        copier.wait_until(lambda: set(expected) <= set(reader.lines))
    assert sorted(reader.lines) == sorted(expected)
    assert sorted(read_log(cluster.bootstrap, target, isolation="read_committed").elements()) == sorted(expected)
