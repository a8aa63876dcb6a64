"""Kafka's TransactionalMessageCopier, the program of its own system tests, on our brokers.

It copies partitions in transactions, and aborts a third of them at random.
Source: Kafka's TransactionalMessageCopier.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.test_kafkas_tools import SCRIPT
from tests.interop.transactions.commands import PARTITIONS_RANGE
from tests.interop.transactions.conversation import Conversation
from tests.interop.transactions.scenario import (
    create_topics,
    killed,
    produce,
    read_log,
    transaction_coordinator,
)
from tests.stages.started_clusters import LocalCluster, running

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SOURCE, TARGET = "original", "copy"
RECORDS = 3_000
RECORDS_BEFORE_KILL = 200
TRANSACTION_TIMEOUT_MS = 5_000
"""Transaction timeout of the copiers. A copier that starts again waits until the transaction of its killed predecessor
has timed out, because it reads its committed offset before it begins to produce."""
COPY_SECONDS_MAX = 90


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with running() as started:
        yield started


def copier(cluster: LocalCluster, partition: int) -> Conversation:
    return Conversation(
        (
            str(SCRIPT),
            "tool",
            "org.apache.kafka.tools.TransactionalMessageCopier",
            *("--broker-list", cluster.bootstrap, "--input-topic", SOURCE, "--output-topic", TARGET),
            *("--input-partition", str(partition), "--consumer-group", "copiers"),
            *("--transactional-id", f"copier-{partition}", "--transaction-size", "20"),
            *("--transaction-timeout", str(TRANSACTION_TIMEOUT_MS), "--enable-random-aborts", "--use-group-metadata"),
        )
    )


def wait_copied(program: Conversation, count: int) -> None:
    """Wait until a copier reports this many copied records. Its output is JSON, and lines of its log."""
    status: dict[str, Any] = {"totalProcessed": 0}
    while status["totalProcessed"] < count:
        line = program.next_line()
        status = json.loads(line) if line.startswith("{") else status


def test_kafkas_message_copier_copies_each_record_once_when_it_and_its_coordinator_are_killed(
    cluster: LocalCluster,
) -> None:
    create_topics(cluster, SOURCE, TARGET)
    values = produce(cluster.bootstrap, SOURCE, RECORDS)
    programs = [copier(cluster, partition) for partition in PARTITIONS_RANGE]
    try:
        wait_copied(programs[0], RECORDS_BEFORE_KILL)
        programs[0].kill()
        programs[0] = copier(cluster, 0)
        wait_copied(programs[1], RECORDS_BEFORE_KILL)
        with killed(cluster, transaction_coordinator(cluster, TARGET, "copier-1"), SOURCE, TARGET):
            wait_copied(programs[0], RECORDS_BEFORE_KILL)
        for program in programs:
            assert program.end(COPY_SECONDS_MAX) == 0, program.errors
    finally:
        for program in programs:
            program.kill()
    copied = read_log(cluster.bootstrap, TARGET, isolation="read_committed")
    assert sorted(copied.elements()) == sorted(values)
    assert read_log(cluster.bootstrap, TARGET, isolation="read_uncommitted").total() > RECORDS
