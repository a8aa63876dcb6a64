"""A producer notices a raised transaction.version when it opens a connection, to any broker. Kafka's client does the
same: it reads the finalized features from the ApiVersions response of each new connection, and keeps the newest epoch.
"""

from __future__ import annotations

from kraft.client import Producer
from kraft.client.admin import Admin
from kraft.wire.api_keys import ApiKey
from kraft.wire.reply_policy import ReplyAction
from tests.stages.clients_in_world import Stage
from tests.stages.transactions_in_world import ID, V1, V2, at_level, committed, machine, until_stable


async def raise_level(stage: Stage) -> None:
    async with Admin(bootstrap_servers=stage.bootstrap, seam=stage.world.node("admin")) as admin:
        await admin.nodes.update_features({"transaction.version": V2})
    await stage.world.sleep_ms(500)


async def write(producer: Producer, value: bytes, partition: int) -> bool:
    """Write one record in a transaction, and return whether that was of transaction.version 2."""
    async with producer.transaction():
        await producer.send("orders", value, partition=partition)
        return bool(machine(producer).is_v2)


def test_a_producer_without_a_new_connection_keeps_writing_transactions_of_the_old_level() -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            assert not await write(producer, b"1", 0)
            await raise_level(stage)
            assert [await write(producer, b"%d" % number, 0) for number in (2, 3)] == [False, False]
        await until_stable(stage)
        assert await committed(stage) == [b"1", b"2", b"3"]

    at_level(V1, test)


def test_a_new_connection_to_any_broker_reports_a_raised_level() -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            assert not await write(producer, b"1", 0)
            await raise_level(stage)
            stage.fault_at(stage.leader("orders"), api_key=ApiKey.PRODUCE, action=ReplyAction.CLOSE, times=1)
            assert not await write(producer, b"2", 0)
            assert await write(producer, b"3", 0)
        await until_stable(stage)
        assert await committed(stage) == [b"1", b"2", b"3"]

    at_level(V1, test, combined=0, controllers=1, brokers=2)
