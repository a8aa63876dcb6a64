"""Transactions that are cancelled at every checkpoint in turn. Each is committed completely or aborted, none stays
open, and the producer can continue.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from functools import partial

import pytest

from kraft.client import Producer, TransactionAborted
from kraft.client.core.transaction_state import ProducerTransactionState
from kraft.seam import Seam
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyAction
from tests.stages.clients_in_world import PLACE, Stage, cancelled_at
from tests.stages.transactions_in_world import ID, LEVELS, V2, at_level, committed, machine, until_stable

STEPS_MAX = 400
OTHER = ("orders", 1)


async def transfer(producer: Producer, step: int) -> None:
    """Run one transaction with records in two partitions and a group's offset."""
    async with producer.transaction():
        await producer.enqueue("orders", b"%d" % step, partition=0)
        await producer.send("orders", b"%d" % step, partition=1)
        await producer.send_offsets({PLACE: step + 1}, "billing")


async def transfer_by_calls(producer: Producer, step: int) -> None:
    """Run the same transaction as `transfer`, but by separate calls; abort it after any exception."""
    await producer.begin_transaction()
    try:
        await producer.enqueue("orders", b"%d" % step, partition=0)
        await producer.send("orders", b"%d" % step, partition=1)
        await producer.send_offsets({PLACE: step + 1}, "billing")
    except BaseException:
        await producer.abort_transaction()
        raise
    await producer.commit_transaction()


async def whole_transfers(stage: Stage) -> list[int]:
    """Wait until no transaction is open, and return the steps whose transaction is committed. Check that each of these
    transactions is complete and that its records occur once."""
    await until_stable(stage, PLACE)
    await until_stable(stage, OTHER)
    found, others = await committed(stage, PLACE), await committed(stage, OTHER)
    assert found == others
    assert [value for value, count in Counter(found).items() if count > 1] == []
    steps = [int(value) for value in found if value is not None]
    async with stage.consumer("offsets", group_id="billing") as consumer:
        stored = (await consumer.committed([PLACE]))[PLACE]
        assert (stored.offset if stored is not None else 0) == max(steps, default=-1) + 1
    return steps


@LEVELS
@pytest.mark.parametrize("work", [transfer, transfer_by_calls])
def test_a_transaction_cancelled_at_any_checkpoint_is_committed_completely_or_aborted(level: int, work: object) -> None:
    async def test(stage: Stage) -> None:
        assert callable(work)
        async with stage.producer(transactional_id=ID) as producer:
            step = 0
            while await cancelled_at(step, partial(work, producer, step)):
                step += 1
                assert step < STEPS_MAX
            assert step > 5
            done = await whole_transfers(stage)
            assert done[-1] == step, "the transaction that was not cancelled"
            assert 0 not in done, "the first was cancelled before it began"
            assert machine(producer).state is ProducerTransactionState.READY

    at_level(level, test)


@LEVELS
def test_a_producer_cancelled_at_any_checkpoint_leaves_no_transaction_open(level: int) -> None:
    async def test(stage: Stage) -> None:
        seam: Seam = stage.world.node("producer")

        async def work(step: int) -> None:
            async with stage.producer(transactional_id=ID) as producer:
                await transfer(producer, 2 * step)
                await transfer(producer, 2 * step + 1)

        step = 0
        while await cancelled_at(step, partial(work, step)):
            step += 1
            assert step < STEPS_MAX
            assert seam.network.stats.connections == 0
            # before the next producer with this transactional id aborts an open transaction
            await until_stable(stage, PLACE)
            await until_stable(stage, OTHER)
        assert step > 10
        done = await whole_transfers(stage)
        assert done[-2:] == [2 * step, 2 * step + 1]

    at_level(level, test)


def test_a_commit_whose_caller_is_cancelled_still_commits_the_transaction() -> None:
    """The caller stops waiting right after it has asked for the commit."""

    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            await producer.begin_transaction()
            await producer.send("orders", b"0", partition=0)
            await producer.send("orders", b"0", partition=1)
            await producer.send_offsets({PLACE: 1}, "billing")
            assert await cancelled_at(0, producer.commit_transaction)
            await stage.world.sleep_ms(500)
            assert await whole_transfers(stage) == [0]
            await producer.commit_transaction()  # repeated to learn the outcome of the commit
            await transfer(producer, 1)
        assert await whole_transfers(stage) == [0, 1]

    at_level(V2, test)


@LEVELS
@pytest.mark.parametrize("fails_within_block", [True, False])
def test_a_block_whose_own_commit_was_cancelled_leaves_no_transaction_open_if_a_batch_fails(
    level: int, fails_within_block: bool
) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            rule = {"api_key": ApiKey.PRODUCE, "action": ReplyAction.ERROR, "error": ErrorCode.INVALID_RECORD}
            stage.fault(**rule, times=1)
            with pytest.raises(TransactionAborted) if fails_within_block else nullcontext():
                async with producer.transaction():
                    await producer.enqueue("orders", b"1", partition=0)
                    assert await cancelled_at(0, producer.commit_transaction)
                    if fails_within_block:
                        await stage.world.sleep_ms(500)
                        assert machine(producer).state is ProducerTransactionState.ABORTABLE_ERROR
                    else:
                        assert machine(producer).state is ProducerTransactionState.COMMITTING
            await transfer(producer, 2)
        await until_stable(stage)
        assert await committed(stage) == [b"2"]

    at_level(level, test)
