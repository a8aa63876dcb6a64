"""The admin client on transactions: lists with filters, descriptions, fencing, and hanging transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from kraft.client import KafkaError, Producer, ProducerFenced
from kraft.client.admin import AbortMarker, Admin
from kraft.client.admin.hanging import OpenTransaction, find_hanging, find_open, with_coordinators
from kraft.client.connections import VersionMismatch
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyAction
from tests.stages.clients_in_world import PLACE, Stage
from tests.stages.plane import batch
from tests.stages.transactions_in_world import ID, LEVELS, V1, V2, at_level, committed, until_stable

LOST = 4_242
"""A producer id that no coordinator has given."""
OLD_PRODUCE = 9
"""A version of Produce in which partition leaders do not add partitions to transactions."""
UNVERIFIED = {"transaction_partition_verification_enable": "false"}
MINUTE_MS = 60_000


@asynccontextmanager
async def admin_of(stage: Stage, timeout_ms: float = 20_000) -> AsyncIterator[Admin]:
    servers, seam = stage.bootstrap, stage.world.node("admin-2")
    async with Admin(bootstrap_servers=servers, seam=seam, timeout_ms=timeout_ms) as admin:
        yield admin


def producer_of(stage: Stage, transactional_id: str) -> Producer:
    seam = stage.world.node(transactional_id)
    return Producer(bootstrap_servers=stage.bootstrap, seam=seam, transactional_id=transactional_id)


async def hanging_in(admin: Admin, *arguments: Any, **settings: Any) -> list[OpenTransaction]:
    """Return the hanging transactions, none of which may be undecided."""
    search = await find_hanging(admin, *arguments, **settings)
    assert search.undecided == ()
    return list(search.found)


def now_ms(stage: Stage) -> int:
    return stage.seam.clock.wall_ms()


async def leave_hanging(stage: Stage, *, age_ms: int = 0, index: int = 0) -> int:
    """Write a transactional batch of which no coordinator knows, and return its offset."""
    lost = batch(
        "lost",
        timestamp=now_ms(stage) - age_ms,
        producer_id=LOST,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    result = await stage.produce(
        "orders", lost, index, version=OLD_PRODUCE, transactional_id="lost", broker_id=stage.leader("orders")
    )
    assert result.error_code == ErrorCode.NONE
    return int(result.base_offset)


def test_listed_transactions_pass_all_given_filters() -> None:
    async def test(stage: Stage) -> None:
        async with (
            admin_of(stage) as admin,
            producer_of(stage, "open-1") as first,
            producer_of(stage, "done-1") as other,
        ):
            async with other.transaction():
                await other.send("orders", b"1", partition=1)
            await first.begin_transaction()
            await first.send("orders", b"1", partition=0)
            await until_stable(stage, ("orders", 1))
            listed = {one.transactional_id: one for one in await admin.transactions.list()}
            assert {name: one.state for name, one in listed.items()} == {
                "open-1": "Ongoing",
                "done-1": "CompleteCommit",
            }

            async def names(**filters: object) -> list[str]:
                return [one.transactional_id for one in await admin.transactions.list(**filters)]  # type: ignore[arg-type]

            assert await names(states=["Ongoing", "Empty"]) == ["open-1"]
            assert await names(producer_ids=[listed["done-1"].producer_id]) == ["done-1"]
            assert await names(id_pattern="do.*") == ["done-1"]
            assert await names(id_pattern="do") == []
            assert await names(longer_than_ms=5_000) == []
            await stage.world.sleep_ms(6_000)
            assert await names(longer_than_ms=5_000) == ["open-1"]
            assert await names(longer_than_ms=5_000, states=["Empty"]) == []
            with pytest.raises(KafkaError) as refused:
                await names(id_pattern="(")
            assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION

    at_level(V2, test)


def test_a_filter_that_a_broker_does_not_support_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from kraft.client import connections

    negotiate = connections._negotiate

    async def limited(*arguments: object) -> connections.Negotiated:
        found = await negotiate(*arguments)  # type: ignore[arg-type]
        return connections.Negotiated({**found.ranges, int(ApiKey.LIST_TRANSACTIONS): (0, 1)}, found.features)

    async def test(stage: Stage) -> None:
        monkeypatch.setattr(connections, "_negotiate", limited)
        async with admin_of(stage) as admin:
            assert await admin.transactions.list(longer_than_ms=1) == ()
            with pytest.raises(VersionMismatch, match="needs version 2, the broker supports versions up to 1"):
                await admin.transactions.list(id_pattern="a.*")

    at_level(V2, test)


def test_a_transactional_id_is_described_by_its_coordinator() -> None:
    async def test(stage: Stage) -> None:
        async with admin_of(stage) as admin, stage.producer(transactional_id=ID) as producer:
            with pytest.raises(KafkaError) as missing:
                await admin.transactions.describe_id(ID)
            assert missing.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            async with producer.transaction():
                await producer.send("orders", b"1", partition=1)
                await producer.send("orders", b"2", partition=0)
                described = await admin.transactions.describe_id(ID)
                assert (described.state, described.timeout_ms) == ("Ongoing", MINUTE_MS)
                assert described.partitions == (("orders", 0), ("orders", 1))
                assert described.started_ms is not None
            await until_stable(stage)
            described = await admin.transactions.describe_id(ID)
            assert (described.state, described.started_ms, described.partitions) == ("CompleteCommit", None, ())

    at_level(V2, test, combined=0, controllers=1, brokers=2)


def test_a_description_is_requested_again_while_the_coordinator_loads() -> None:
    async def test(stage: Stage) -> None:
        async with admin_of(stage) as admin, stage.producer(transactional_id=ID) as producer:
            await producer.init_transactions()
            for error in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
                stage.fault(api_key=ApiKey.DESCRIBE_TRANSACTIONS, action=ReplyAction.ERROR, error=error, times=1)
            assert (await admin.transactions.describe_id(ID)).state == "Empty"

    at_level(V2, test)


@LEVELS
def test_fencing_a_producer_aborts_its_open_transaction(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with admin_of(stage) as admin, stage.producer(transactional_id=ID) as producer:
            await producer.begin_transaction()
            await producer.send("orders", b"1", partition=0)
            before = await admin.transactions.describe_id(ID)
            fenced = await admin.transactions.fence_producers([ID])
            assert fenced[ID].producer_id == before.producer_id
            assert fenced[ID].producer_epoch > before.producer_epoch
            with pytest.raises(ProducerFenced):
                await producer.commit_transaction()
            await until_stable(stage)
            assert await committed(stage) == []

    at_level(level, test)


def test_producers_are_fenced_with_a_timeout_that_the_brokers_allow() -> None:
    async def test(stage: Stage) -> None:
        timeout_ms = 20_000
        async with (
            admin_of(stage) as admin,
            stage.producer(transactional_id=ID, transaction_timeout_ms=timeout_ms) as producer,
        ):
            await producer.init_transactions()
            with pytest.raises(KafkaError) as refused:
                await admin.transactions.fence_producers([ID])
            assert refused.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
            await admin.transactions.fence_producers([ID], transaction_timeout_ms=timeout_ms)
            with pytest.raises(ProducerFenced):
                async with producer.transaction():
                    await producer.send("orders", b"1", partition=0)
            assert (await admin.transactions.describe_id(ID)).timeout_ms == timeout_ms

    at_level(V2, test, transaction_max_timeout_ms="30000")


def test_producers_can_be_described_by_a_follower() -> None:
    async def test(stage: Stage) -> None:
        async with admin_of(stage) as admin, stage.producer(transactional_id=ID) as producer:
            await producer.begin_transaction()
            await producer.send("orders", b"1", partition=0)
            leader = stage.leader("orders")
            (follower,) = (one for one in stage.cluster.broker_ids if one != leader)
            here = await admin.partitions.producers([PLACE])
            there = await admin.partitions.producers([PLACE], broker=follower)
            assert [one.transaction_start for one in there[PLACE]] == [0]
            assert there == here
            with pytest.raises(KafkaError) as gone:
                await admin.partitions.producers([("missing", 0)], broker=follower)
            assert gone.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await producer.abort_transaction()

    at_level(V2, test, combined=0, controllers=1, brokers=2)


@pytest.mark.parametrize("level", [V1, V2])
def test_a_hanging_transaction_is_found_and_its_abort_frees_readers(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with admin_of(stage) as admin:
            start = await leave_hanging(stage, index=1)
            await stage.produce("orders", batch("later"), 1)
            assert await committed(stage, ("orders", 1)) == []
            (found,) = await hanging_in(admin, [PLACE, ("orders", 1)], now_ms=now_ms(stage))
            assert (found.partition, found.producer.producer_id) == (("orders", 1), LOST)
            assert (found.producer.transaction_start, found.coordinated) == (start, None)
            await admin.transactions.abort(found.marker)
            assert await committed(stage, ("orders", 1)) == [b"later"]
            assert await stage.values(("orders", 1)) == [b"lost", b"later"]
            assert await hanging_in(admin, [("orders", 1)], now_ms=now_ms(stage)) == []
            assert await find_open(admin, [("orders", 1)]) == []

    at_level(level, test, **UNVERIFIED)


def test_a_search_for_hanging_transactions_asks_the_given_broker_about_its_replicas() -> None:
    async def test(stage: Stage) -> None:
        async with admin_of(stage) as admin:
            await leave_hanging(stage)
            (follower,) = (one for one in stage.cluster.broker_ids if one != stage.leader("orders"))
            (found,) = await hanging_in(admin, [PLACE], now_ms=now_ms(stage), broker=follower)
            assert (found.partition, found.producer.producer_id) == (PLACE, LOST)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            stage.fault_at(follower, api_key=ApiKey.DESCRIBE_PRODUCERS, action=ReplyAction.ERROR, error=error)
            with pytest.raises(KafkaError, match=f"at broker {follower}"):
                await find_hanging(admin, [PLACE], now_ms=now_ms(stage), broker=follower)
            assert await hanging_in(admin, [PLACE], now_ms=now_ms(stage)) == [found]

    at_level(V2, test, combined=0, controllers=1, brokers=2, **UNVERIFIED)


def test_a_hanging_transaction_is_reported_only_if_its_last_record_is_old_enough() -> None:
    async def test(stage: Stage) -> None:
        async with admin_of(stage) as admin:
            await leave_hanging(stage, age_ms=15 * MINUTE_MS)
            for older_than_ms, count in ((14 * MINUTE_MS, 1), (16 * MINUTE_MS, 0), (0, 1)):
                found = await hanging_in(admin, [PLACE], now_ms=now_ms(stage), older_than_ms=older_than_ms)
                assert len(found) == count

    at_level(V2, test, **UNVERIFIED)


@LEVELS
def test_a_transaction_that_its_coordinator_knows_is_not_hanging(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with admin_of(stage) as admin, stage.producer(transactional_id=ID) as producer:
            await producer.begin_transaction()
            await producer.send("orders", b"1", partition=0)
            (opened,) = await find_open(admin, [PLACE])
            (known,) = await with_coordinators(admin, [opened])
            assert known.coordinated is not None
            assert (known.coordinated.transactional_id, known.coordinated.state) == (ID, "Ongoing")
            assert await hanging_in(admin, [PLACE], now_ms=now_ms(stage)) == []
            await producer.commit_transaction()
            await until_stable(stage)
            assert await with_coordinators(admin, [opened]) == []

    at_level(level, test)


def test_a_transaction_that_ends_during_the_search_is_not_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    from kraft.client.admin.transactions import Transactions

    async def test(stage: Stage) -> None:
        async with admin_of(stage) as admin, stage.producer(transactional_id=ID) as producer:
            await producer.begin_transaction()
            await producer.send("orders", b"1", partition=0)
            listed = Transactions.list

            async def list_after_the_end(transactions: Transactions, **filters: object) -> object:
                monkeypatch.setattr(Transactions, "list", listed)
                await producer.commit_transaction()
                await until_stable(stage)
                return await listed(transactions, **filters)  # type: ignore[arg-type]

            monkeypatch.setattr(Transactions, "list", list_after_the_end)
            assert await hanging_in(admin, [PLACE], now_ms=now_ms(stage)) == []

    at_level(V2, test)


async def move_coordinator(stage: Stage, admin: Admin) -> None:
    """Move the only partition of __transaction_state to another broker, and wait until that broker has loaded it."""
    before = (await admin.transactions.describe_id(ID)).coordinator
    (other,) = (one for one in stage.cluster.broker_ids if one != before)
    await admin.partitions.reassign({("__transaction_state", 0): [other]})
    with trio.fail_after(20):
        while (await admin.transactions.describe_id(ID)).coordinator != other:
            await stage.world.sleep_ms(50)


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_transaction_whose_coordinator_moves_during_the_search_is_not_hanging(
    monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    """The first list has the transaction with its earlier coordinator, or does not have it."""
    from kraft.client.admin.transactions import Transactions

    async def test(stage: Stage) -> None:
        async with admin_of(stage) as admin, stage.producer(transactional_id=ID) as producer:
            await producer.begin_transaction()
            await producer.send("orders", b"1", partition=0)
            real = Transactions.list

            async def list_before_the_move(transactions: Transactions, **filters: object) -> object:
                monkeypatch.setattr(Transactions, "list", real)
                listed = await real(transactions, **filters)  # type: ignore[arg-type]
                await move_coordinator(stage, admin)
                return listed if is_listed else ()

            monkeypatch.setattr(Transactions, "list", list_before_the_move)
            assert await hanging_in(admin, [PLACE], now_ms=now_ms(stage)) == []
            assert Transactions.list is real
            await producer.commit_transaction()
        await until_stable(stage)
        assert await committed(stage) == [b"1"]

    at_level(V2, test, combined=0, controllers=1, brokers=2, transaction_state_log_num_partitions="1")


def test_a_transaction_whose_coordinator_is_down_is_undecided_and_not_called_hanging() -> None:
    async def test(stage: Stage) -> None:
        async with admin_of(stage) as admin, stage.producer(transactional_id=ID) as producer:
            await producer.begin_transaction()
            await producer.send("orders", b"1", partition=0)
            down = (await admin.transactions.describe_id(ID)).coordinator
            stage.world.kill(stage.cluster.name(down))
            with trio.fail_after(60):
                while not any(one.is_fenced for one in (await admin.nodes.cluster()).brokers):
                    await stage.world.sleep_ms(100)
            with pytest.raises(KafkaError, match="__transaction_state without a leader: 0") as refused:
                await with_coordinators(admin, await find_open(admin, [PLACE]))
            assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            search = await find_hanging(admin, [PLACE, ("orders", 1)], now_ms=now_ms(stage))
            assert (search.found, search.unled) == ((), (0,))
            assert [one.partition for one in search.undecided] == [PLACE]
            stage.cluster.start(down)
            await stage.cluster.wait_ready(60_000)
            await producer.commit_transaction()
        await until_stable(stage)
        assert await committed(stage) == [b"1"]

    at_level(V2, test, combined=0, controllers=1, brokers=2, transaction_state_log_num_partitions="1")


def test_an_open_transaction_of_another_partition_does_not_hide_a_hanging_one() -> None:
    """The producer id is known, but its transaction does not contain this partition."""

    async def test(stage: Stage) -> None:
        async with admin_of(stage) as admin, stage.producer(transactional_id=ID) as producer:
            await producer.begin_transaction()
            await producer.send("orders", b"1", partition=0)
            known = await admin.transactions.describe_id(ID)
            lost = batch(
                "lost",
                producer_id=known.producer_id,
                producer_epoch=known.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
            result = await stage.produce("orders", lost, 1, version=OLD_PRODUCE, transactional_id=ID)
            assert result.error_code == ErrorCode.NONE
            (found,) = await hanging_in(admin, [PLACE, ("orders", 1)], now_ms=now_ms(stage))
            assert found.partition == ("orders", 1)
            await admin.transactions.abort(found.marker)
            await producer.commit_transaction()
            await until_stable(stage)
            assert await committed(stage) == [b"1"]
            assert await committed(stage, ("orders", 1)) == []

    at_level(V2, test, **UNVERIFIED)


def test_an_abort_with_an_old_coordinator_epoch_or_of_a_missing_partition_is_refused() -> None:
    async def test(stage: Stage) -> None:
        async with admin_of(stage, timeout_ms=1_000) as admin:
            await leave_hanging(stage)
            await admin.transactions.abort(AbortMarker(PLACE, LOST, 0, coordinator_epoch=5))
            for marker, error in (
                (AbortMarker(PLACE, LOST, 0, coordinator_epoch=4), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
                (AbortMarker(PLACE, LOST, -1, coordinator_epoch=5), ErrorCode.INVALID_PRODUCER_EPOCH),
                (AbortMarker(("missing", 0), LOST, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ):
                with pytest.raises(KafkaError) as refused:
                    await admin.transactions.abort(marker)
                assert refused.value.code is error

    at_level(V2, test, **UNVERIFIED)


def test_an_error_of_one_of_several_ids_is_raised_as_such() -> None:
    async def test(stage: Stage) -> None:
        async with admin_of(stage) as admin:
            await admin.transactions.fence_producers(["a", "b"])
            listed = await admin.transactions.list()
            assert [one.transactional_id for one in listed] == ["a", "b"]
            denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            for key in (ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_TRANSACTIONS):
                stage.fault(api_key=key, action=ReplyAction.ERROR, error=denied)
            with pytest.raises(KafkaError) as refused:
                await admin.transactions.fence_producers(["a", "b"])
            assert refused.value.code is denied
            with pytest.raises(KafkaError) as refused:
                await admin.transactions.describe(listed)
            assert refused.value.code is denied

    at_level(V2, test)
