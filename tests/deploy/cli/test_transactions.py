"""`kraft transactions` and `kraft consume --isolation` as a user runs them, on a cluster of real processes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from unittest import mock
from unittest.mock import ANY

import pytest
import trio
from confluent_kafka import KafkaException, Producer

from kraft.client.admin import Admin, PartitionDescription, hanging
from kraft.deploy.cli import topics, transactions
from tests.deploy.cli.hanging_transaction import leave_hanging
from tests.stages.kraft_command import Command

LOST = 4_242
HOUR_MS = 3_600_000
TRANSACTION_TIMEOUT_MS = 45_000


def transactional(up: Command, transactional_id: str) -> Producer:
    bootstrap = up.json("status")["bootstrap"]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
    )
    producer.init_transactions(20)
    return producer


def send(producer: Producer, topic: str, *values: str) -> None:
    """Send the values in the open transaction, and wait until partition leaders have them."""
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0


def test_transactions_are_listed_and_described_while_open_and_after_their_end(up: Command) -> None:
    up.run("topics", "create", "paid", "--partitions", "1")
    producer = transactional(up, "payments-1")
    producer.begin_transaction()
    send(producer, "paid", "1")
    (listed,) = up.json("transactions", "list", "--state", "ongoing")
    assert (listed["transactional_id"], listed["state"]) == ("payments-1", "Ongoing")
    assert up.json("transactions", "list", "--state", "Ongoing", "--longer-than", "1h") == []
    assert up.json("transactions", "list", "--producer-id", str(listed["producer_id"])) == [listed]
    assert up.json("transactions", "list", "--pattern", "pay.*-1") == [listed]
    assert up.json("transactions", "list", "--pattern", "pay") == []
    described = up.json("transactions", "describe", "payments-1")
    assert described["partitions"] == [{"topic": "paid", "partition": 0}]
    assert 0 <= described["open_ms"] < HOUR_MS
    text = up.run("transactions", "describe", "payments-1")
    assert "state Ongoing" in text
    assert "TOPIC  PARTITION\npaid           0\n" in text
    (shown,) = up.json("transactions", "describe-producers", "paid")
    assert (shown["producer_id"], shown["open_transaction_from"]) == (listed["producer_id"], 0)
    assert up.json("partitions", "producers", "paid") == [shown]
    producer.commit_transaction(20)
    ended = up.json_when(lambda told: told["state"] == "CompleteCommit", "transactions", "describe", "payments-1")
    assert (ended["open_ms"], ended["started_ms"], ended["partitions"]) == (None, None, [])


def test_a_missing_transactional_id_and_unknown_filters_are_refused(up: Command) -> None:
    said = up.run("transactions", "describe", "nobody", code=4)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in said
    assert "see kraft transactions list" in said
    assert "expected one of Empty" in up.run("transactions", "list", "--state", "open", code=2)
    assert "is not a duration" in up.run("transactions", "list", "--longer-than", "soon", code=2)
    assert "INVALID_REGULAR_EXPRESSION" in up.run("transactions", "list", "--pattern", "(", code=1)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in up.run("transactions", "force-terminate", "nobody", "--yes", code=4)
    assert [one["transactional_id"] for one in up.json("transactions", "list", "--pattern", "nobody")] == []


def test_force_terminate_aborts_the_transaction_and_fences_the_producer(up: Command) -> None:
    up.run("topics", "create", "ended", "--partitions", "1")
    producer = transactional(up, "ended-1")
    producer.begin_transaction()
    send(producer, "ended", "1")
    assert "give --yes" in up.run("transactions", "force-terminate", "ended-1", code=2)
    assert "earlier producers are fenced" in up.run("transactions", "force-terminate", "ended-1", "--yes")
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)
    described = up.json("transactions", "describe", "ended-1")
    assert described["state"] in ("CompleteAbort", "Empty")
    assert described["timeout_ms"] == TRANSACTION_TIMEOUT_MS, "the brokers may not allow a longer one"
    assert up.run("consume", "ended", "--isolation", "read_committed") == ""


def test_consume_shows_records_of_open_and_aborted_transactions_only_if_uncommitted(up: Command) -> None:
    up.run("topics", "create", "isolated", "--partitions", "1")
    producer = transactional(up, "isolated-1")
    for value, ends in (("committed", producer.commit_transaction), ("aborted", producer.abort_transaction)):
        producer.begin_transaction()
        send(producer, "isolated", value)
        ends(20)
    producer.begin_transaction()
    send(producer, "isolated", "open")
    everything = "committed\naborted\nopen\n"
    assert up.run("consume", "isolated") == everything
    assert up.run("consume", "isolated", "--isolation", "read_uncommitted") == everything
    assert up.run("consume", "isolated", "--isolation", "read_committed") == "committed\n"
    assert up.run("consume", "isolated", "-X", "isolation.level=read_committed") == "committed\n"
    override = ("-X", "isolation.level=read_committed", "--isolation", "read_uncommitted")
    assert up.run("consume", "isolated", *override) == everything
    said = up.run("consume", "isolated", "--isolation", "committed", code=2)
    assert "--isolation committed: expected read_committed or read_uncommitted" in said
    producer.abort_transaction(20)


def test_a_hanging_transaction_is_found_and_aborted(up: Command) -> None:
    up.run("topics", "create", "hung", "--partitions", "2")
    up.run("produce", "hung", "--partition", "1", text="before\n")
    off = "transaction.partition.verification.enable=false"
    up.run("configs", "alter", "--broker", "all", "--set", off)
    bootstrap = up.json("status")["bootstrap"]
    start = trio.run(lambda: leave_hanging(bootstrap, "hung", 1, LOST, age_ms=HOUR_MS))
    up.run("produce", "hung", "--partition", "1", text="after\n")
    up.run("configs", "alter", "--broker", "all", "--delete", off.partition("=")[0])
    assert up.run("consume", "hung", "--isolation", "read_committed") == "before\n"

    (found,) = up.json("transactions", "find-hanging")
    assert (found["topic"], found["partition"], found["producer_id"]) == ("hung", 1, LOST)
    assert (found["start_offset"], found["coordinator_epoch"]) == (start, None)
    assert found["age_ms"] >= HOUR_MS
    assert up.json("transactions", "find-hanging", "hung:1", "--older-than", "30m") == [found | {"age_ms": ANY}]
    assert up.json("transactions", "find-hanging", "hung:0") == []
    assert up.json("transactions", "find-hanging", "--older-than", "2h") == []
    for broker in (1, 2):
        assert len(up.json("transactions", "find-hanging", "--broker", str(broker))) == 1, "both have a replica"
    assert "there is no broker 7" in up.run("transactions", "find-hanging", "--broker", "7", code=4)

    abort = ("transactions", "abort", "hung:1", "--start-offset")
    assert "give --yes" in up.run(*abort, str(start), code=2)
    assert f"open transactions start at: {start}" in up.run(*abort, str(start + 1), "--yes", code=4)
    assert "name one partition" in up.run("transactions", "abort", "hung", "--start-offset", "1", "--yes", code=2)
    done = json.loads(up.run(*abort, str(start), "--yes", "--json"))
    assert done == {"topic": "hung", "partition": 1, "producer_id": LOST, "aborted": True}
    assert up.run("consume", "hung", "--isolation", "read_committed") == "before\nafter\n"
    assert up.json("transactions", "find-hanging", "--older-than", "0s") == []
    assert "open transactions start at: none" in up.run(*abort, str(start), "--yes", code=4)


def test_find_hanging_with_a_broker_searches_only_partitions_with_a_replica_there(up: Command) -> None:
    """The second partition has no replica on broker 1. The third has one, but no leader."""
    up.run("topics", "create", "spread", "--replica-assignment", "1,2,1")
    choose = topics.choose_described

    async def without_a_leader(admin: Admin, wanted: Iterable[str]) -> dict[tuple[str, int], PartitionDescription]:
        found = await choose(admin, wanted)
        return found | {("spread", 2): replace(found[("spread", 2)], leader=None)}

    with mock.patch.object(topics, "choose_described", without_a_leader):
        said = up.run("transactions", "find-hanging", "spread", "--broker", "1", code=1)
    assert "not searched, because they have no leader: spread-2" in said
    assert up.json("transactions", "find-hanging", "spread", "--broker", "1") == []
    up.run("topics", "delete", "spread")


def test_find_hanging_names_the_transactions_of_coordinators_that_cannot_be_asked(up: Command) -> None:
    up.run("topics", "create", "doubted", "--partitions", "1")
    off = "transaction.partition.verification.enable=false"
    up.run("configs", "alter", "--broker", "all", "--set", off)
    start = trio.run(lambda: leave_hanging(up.json("status")["bootstrap"], "doubted", 0, LOST))
    up.run("configs", "alter", "--broker", "all", "--delete", off.partition("=")[0])
    find = ("transactions", "find-hanging", "doubted", "--older-than", "0s")

    async def without_leaders(_admin: Admin) -> tuple[int, ...]:
        return 3, 7

    with mock.patch.object(hanging, "_unled_partitions", without_leaders):
        said = up.run(*find, code=1)
    assert "partitions of __transaction_state (3, 7) have no leader: doubted-0 from offset 0 on (producer 4242)" in said
    assert len(up.json(*find)) == 1
    up.run("transactions", "abort", "doubted:0", "--start-offset", str(start), "--yes")
    up.run("topics", "delete", "doubted")


def test_abort_checks_the_transaction_again_after_the_confirmation(up: Command) -> None:
    """While the user is asked, the transaction is aborted by another command."""
    up.run("topics", "create", "asked", "--partitions", "1")
    off = "transaction.partition.verification.enable=false"
    up.run("configs", "alter", "--broker", "all", "--set", off)
    start = trio.run(lambda: leave_hanging(up.json("status")["bootstrap"], "asked", 0, LOST))
    up.run("configs", "alter", "--broker", "all", "--delete", off.partition("=")[0])
    abort = ("transactions", "abort", "asked:0", "--start-offset", str(start))

    def confirm(question: str, *, is_confirmed: bool) -> None:
        if not is_confirmed:
            up.run(*abort, "--yes")

    with mock.patch.object(transactions, "confirm", confirm):
        said = up.run(*abort, code=4)
    assert "open transactions start at: none" in said


def test_abort_refuses_a_transaction_that_its_coordinator_knows(up: Command) -> None:
    up.run("topics", "create", "alive", "--partitions", "1")
    producer = transactional(up, "alive-1")
    producer.begin_transaction()
    send(producer, "alive", "1")
    said = up.run("transactions", "abort", "alive:0", "--start-offset", "0", "--yes", code=1)
    assert "it belongs to transactional id alive-1, which is Ongoing" in said
    assert "kraft transactions force-terminate alive-1" in said
    producer.commit_transaction(20)
    assert up.run("consume", "alive", "--isolation", "read_committed") == "1\n"
