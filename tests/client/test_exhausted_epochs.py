"""A transactional producer whose epochs are used up continues with another producer id, and nobody writes with the old
one. With transaction.version 2 the end of a transaction gives the new id, otherwise InitProducerId does.
"""

from __future__ import annotations

import pytest

from kraft.broker.txn.transaction import LAST_USABLE_EPOCH
from kraft.client import KafkaError, Producer
from kraft.client.core.batch import ProducerIdentity
from tests.stages.clients_in_world import Stage
from tests.stages.transactions_in_world import ID, LEVELS, V1, V2, at_level, committed, machine, until_stable


def another_producer(stage: Stage) -> Producer:
    return Producer(bootstrap_servers=stage.bootstrap, transactional_id=ID, seam=stage.world.node("zombie"))


async def write(producer: Producer, value: bytes) -> ProducerIdentity:
    """Write one record in a transaction. Return the producer's identity in that transaction."""
    async with producer.transaction():
        found: ProducerIdentity = machine(producer).identity
        await producer.send("orders", value, partition=0)
    return found


async def use_up(stage: Stage, producer: Producer) -> int:
    """Let the coordinator and the producer continue at the last epoch. Return the producer id."""
    await until_stable(stage)
    (transaction,) = (
        shard.machine.transactions[ID]
        for broker in stage.cluster.broker_ids
        for shard in stage.cluster.node(broker).broker.broker.transactions.shards.values()
        if shard.machine is not None and ID in shard.machine.transactions
    )
    transaction.value = transaction.value._replace(producer_epoch=LAST_USABLE_EPOCH)
    machine(producer).identity = ProducerIdentity(transaction.value.producer_id, LAST_USABLE_EPOCH)
    return int(transaction.value.producer_id)


@pytest.mark.parametrize("commits", [True, False])
def test_the_end_of_the_last_transaction_of_a_producer_id_gives_its_producer_another_id(commits: bool) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            await write(producer, b"1")
            old = await use_up(stage, producer)
            await producer.begin_transaction()
            await producer.send("orders", b"2", partition=0)
            await (producer.commit_transaction() if commits else producer.abort_transaction())
            following = await write(producer, b"3")
            assert following.producer_id != old
            assert following.producer_epoch == 0
            assert (await write(producer, b"4")).producer_epoch == 1
        await until_stable(stage)
        assert await committed(stage) == [b"1", *([b"2"] if commits else []), b"3", b"4"]

    at_level(V2, test)


@LEVELS
def test_a_new_producer_gets_another_producer_id_and_the_owner_of_the_old_one_is_fenced(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with another_producer(stage) as zombie, stage.producer(transactional_id=ID) as producer:
            await write(zombie, b"1")
            old = await use_up(stage, zombie)
            identity = await write(producer, b"2")
            assert identity.producer_id != old
            assert identity.producer_epoch == 0
            with pytest.raises(KafkaError):
                await write(zombie, b"late")
            with pytest.raises(KafkaError):
                await zombie.begin_transaction()
            await write(producer, b"3")
        await until_stable(stage)
        assert await committed(stage) == [b"1", b"2", b"3"]
        assert b"late" not in await stage.values()

    at_level(level, test)


@LEVELS
def test_a_new_producer_aborts_the_transaction_that_is_open_at_the_last_epoch(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with another_producer(stage) as zombie, stage.producer(transactional_id=ID) as producer:
            await write(zombie, b"1")
            old = await use_up(stage, zombie)
            await zombie.begin_transaction()
            await zombie.send("orders", b"open", partition=0)
            identity = await write(producer, b"2")
            assert identity.producer_id != old
            with pytest.raises(KafkaError):
                await zombie.commit_transaction()
        await until_stable(stage)
        assert await committed(stage) == [b"1", b"2"]

    at_level(level, test)


def test_a_producer_that_requests_the_next_epoch_after_an_error_at_the_last_one_gets_another_id() -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            await write(producer, b"1")
            old = await use_up(stage, producer)
            await producer.begin_transaction()
            await producer.send("orders", b"aborted", partition=0)
            machine(producer).require_bump()
            await producer.abort_transaction()
            following = await write(producer, b"2")
            assert (following.producer_id != old, following.producer_epoch) == (True, 0)
        await until_stable(stage)
        assert await committed(stage) == [b"1", b"2"]

    at_level(V1, test)
