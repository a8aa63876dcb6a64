"""The transactional producer against whole brokers in a simulated cluster: commit, abort, fencing, offsets of groups,
errors and lost responses of coordinators. Most tests run with transaction.version 0 and with 2.
"""

from __future__ import annotations

import pytest
import trio

from kraft.client import (
    AbortableTransactionError,
    CommitOutcomeUnknown,
    CommittedOffset,
    DeliveryFailed,
    GroupMetadata,
    KafkaError,
    Producer,
    ProducerFenced,
    TransactionAborted,
)
from kraft.client.admin import Admin
from kraft.client.connections import TimedOut
from kraft.client.core.transaction_state import ProducerTransactionState
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ReplyAction
from tests.stages.clients_in_world import PLACE, Stage
from tests.stages.transactions_in_world import ID, LEVELS, PRODUCER, V1, V2, at_level, committed, machine, until_stable


@LEVELS
def test_records_are_visible_to_read_committed_only_once_their_transaction_is_committed(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            async with producer.transaction():
                await producer.send("orders", b"1", partition=0)
                assert machine(producer).is_v2 == (level == V2)
                assert await committed(stage) == []
                await producer.enqueue("orders", b"2", partition=0)
                await producer.enqueue("orders", b"3", partition=1)
            await until_stable(stage)
            await until_stable(stage, ("orders", 1))
            assert await committed(stage) == [b"1", b"2"]
            assert await committed(stage, ("orders", 1)) == [b"3"]

    at_level(level, test)


@LEVELS
def test_records_of_an_aborted_transaction_are_never_visible_to_read_committed(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID, linger_ms=50) as producer:
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send("orders", b"sent", partition=0)
                    queued = await producer.enqueue("orders", b"queued", partition=0)
                    raise ZeroDivisionError
            assert isinstance(queued.outcome, DeliveryFailed)
            assert queued.outcome.certain
            async with producer.transaction():
                await producer.send("orders", b"next", partition=0)
            await until_stable(stage)
            assert await committed(stage) == [b"next"]
            assert await stage.values() == [b"sent", b"next"]

    at_level(level, test)


@LEVELS
def test_each_of_many_consecutive_transactions_has_all_or_none_of_its_records_visible(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            for number in range(12):
                await producer.begin_transaction()
                for copy in range(3):
                    await producer.enqueue("orders", b"%d/%d" % (number, copy), partition=number % 2)
                if number % 3:
                    await producer.commit_transaction()
                else:
                    await producer.flush()
                    await producer.abort_transaction()
            for partition in range(2):
                await until_stable(stage, ("orders", partition))
                kept = [one for one in range(12) if one % 3 and one % 2 == partition]
                expected = [b"%d/%d" % (one, copy) for one in kept for copy in range(3)]
                assert await committed(stage, ("orders", partition)) == expected

    at_level(level, test)


@LEVELS
def test_an_empty_transaction_can_be_committed_and_aborted(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            async with producer.transaction():
                pass
            await producer.begin_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("orders", b"1", partition=0)
            await until_stable(stage)
            assert await committed(stage) == [b"1"]

    at_level(level, test)


@LEVELS
def test_a_second_producer_with_the_same_transactional_id_fences_the_first_and_aborts_its_transaction(
    level: int,
) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as first:
            await first.begin_transaction()
            await first.send("orders", b"first", partition=0)
            second = Producer(bootstrap_servers=stage.bootstrap, seam=stage.world.node("second"), transactional_id=ID)
            async with second:
                async with second.transaction():
                    await second.send("orders", b"second", partition=0)
                with pytest.raises(ProducerFenced):
                    await first.commit_transaction()
                with pytest.raises(ProducerFenced):
                    await first.begin_transaction()
                with pytest.raises(ProducerFenced):
                    await first.send("orders", b"late", partition=0)
                async with second.transaction():
                    await second.send("orders", b"third", partition=0)
        await until_stable(stage)
        assert await committed(stage) == [b"second", b"third"]

    at_level(level, test)


@LEVELS
def test_a_transaction_block_raises_producer_fenced_if_its_producer_was_fenced(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as first:
            with pytest.raises(ProducerFenced):
                async with first.transaction():
                    await first.send("orders", b"1", partition=0)
                    async with Producer(
                        bootstrap_servers=stage.bootstrap, seam=stage.world.node("second"), transactional_id=ID
                    ) as second:
                        await second.init_transactions()
                    await first.send("orders", b"2", partition=0)
        await until_stable(stage)
        assert await committed(stage) == []

    at_level(level, test)


@LEVELS
def test_a_failed_batch_aborts_its_transaction_block_and_the_next_transaction_succeeds(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            async with producer.transaction():
                await producer.send("orders", b"0", partition=0)
                await producer.send("orders", b"0", partition=1)
            rule = {"api_key": ApiKey.PRODUCE, "action": ReplyAction.ERROR, "error": ErrorCode.INVALID_RECORD}
            stage.fault(**rule, times=1)
            with pytest.raises(TransactionAborted) as raised:
                async with producer.transaction():
                    await producer.enqueue("orders", b"1", partition=0)
            assert raised.value.code is ErrorCode.INVALID_RECORD
            # partition 1 was idle meanwhile: with the new epoch, its sequence must restart too
            async with producer.transaction():
                await producer.send("orders", b"2", partition=1)
                await producer.send("orders", b"2", partition=0)
            await until_stable(stage)
            await until_stable(stage, ("orders", 1))
            assert await committed(stage) == [b"0", b"2"]
            assert await committed(stage, ("orders", 1)) == [b"0", b"2"]

    at_level(level, test)


@LEVELS
@pytest.mark.parametrize("reason", ["too large", "unknown topic", "unknown partition", "no room"])
def test_a_transaction_with_a_record_that_the_producer_does_not_accept_can_only_be_aborted(
    level: int, reason: str
) -> None:
    async def test(stage: Stage) -> None:
        limits = {"max_request_size": 2_000, "buffer_memory": 3_000, "max_block_ms": 500}
        async with stage.producer(transactional_id=ID, **limits) as producer:
            await producer.begin_transaction()
            await producer.send("orders", b"1", partition=0)
            topic = "missing" if reason == "unknown topic" else "orders"
            if reason == "no room":
                stage.fault(api_key=ApiKey.PRODUCE, action=ReplyAction.DELAY, delay_ms=2_000, times=1)
                await producer.enqueue("orders", bytes(1_800), partition=0)
            with pytest.raises(KafkaError) as refused:
                value = bytes({"too large": 3_000, "no room": 1_800}.get(reason, 1))
                await producer.enqueue(topic, value, partition=9 if reason == "unknown partition" else 0)
            for _ in range(2):
                with pytest.raises(AbortableTransactionError) as raised:
                    await producer.commit_transaction()
                assert raised.value.code is refused.value.code
            with pytest.raises(AbortableTransactionError):
                await producer.enqueue("orders", b"2", partition=0)
            await stage.world.sleep_ms(2_000)
            await producer.abort_transaction()
            with pytest.raises(TransactionAborted):
                async with producer.transaction():
                    with pytest.raises(KafkaError):
                        await producer.enqueue("orders", bytes(3_000), partition=0)
            async with producer.transaction():
                await producer.send("orders", b"3", partition=0)
            await until_stable(stage)
            assert await committed(stage) == [b"3"]

    at_level(level, test, auto_create_topics_enable="false")


@LEVELS
def test_a_batch_that_is_rejected_during_an_abort_does_not_block_its_partition_in_the_next_transaction(
    level: int,
) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            await producer.begin_transaction()
            await producer.send("orders", b"1", partition=0)
            rule = {"api_key": ApiKey.PRODUCE, "action": ReplyAction.ERROR, "error": ErrorCode.INVALID_RECORD}
            stage.fault(**rule, times=1)
            rejected = await producer.enqueue("orders", b"2", partition=0)
            (batch,) = producer._accumulator.pending()
            while not batch.attempts:
                await trio.lowlevel.checkpoint()
            assert batch.outcome is None, "it is in flight"
            await producer.abort_transaction()
            assert isinstance(rejected.outcome, DeliveryFailed)
            async with producer.transaction():
                await producer.send("orders", b"3", partition=0)
            await until_stable(stage)
            assert await committed(stage) == [b"3"]

    at_level(level, test)


@LEVELS
def test_a_transaction_with_a_failed_batch_can_only_be_aborted(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            await producer.begin_transaction()
            await producer.send("orders", b"1", partition=0)
            rule = {"api_key": ApiKey.PRODUCE, "action": ReplyAction.ERROR, "error": ErrorCode.INVALID_RECORD}
            stage.fault(**rule, times=1)
            with pytest.raises(DeliveryFailed):
                await producer.send("orders", b"2", partition=0)
            for call in (producer.commit_transaction, producer.begin_transaction):
                with pytest.raises(AbortableTransactionError):
                    await call()
            with pytest.raises(AbortableTransactionError):
                await producer.send("orders", b"3", partition=0)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("orders", b"4", partition=0)
            await until_stable(stage)
            assert await committed(stage) == [b"4"]

    at_level(level, test)


@LEVELS
@pytest.mark.parametrize(
    "key", [ApiKey.INIT_PRODUCER_ID, ApiKey.FIND_COORDINATOR, ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT]
)
@pytest.mark.parametrize("is_done", [False, True])
def test_a_transactional_request_without_a_response_is_repeated_and_takes_effect_only_once(
    level: int, key: ApiKey, is_done: bool
) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            for number in range(2):
                stage.fault(api_key=key, action=ReplyAction.CLOSE, after=is_done, times=2, client_id=PRODUCER)
                async with producer.transaction():
                    await producer.send("orders", b"%d" % number, partition=0)
                    await producer.send_offsets({PLACE: 7 + number}, "billing")
            await until_stable(stage)
            assert await committed(stage) == [b"0", b"1"]
        async with stage.consumer("member", group_id="billing") as consumer:
            assert await consumer.committed([PLACE]) == {PLACE: CommittedOffset(8)}

    at_level(level, test)


@pytest.mark.parametrize("key", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN])
@pytest.mark.parametrize("is_done", [False, True])
def test_a_lost_add_partitions_or_add_offsets_request_is_repeated_even_before_an_abort(
    key: ApiKey, is_done: bool
) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            for ends in (producer.commit_transaction, producer.abort_transaction):
                stage.fault(api_key=key, action=ReplyAction.CLOSE, after=is_done, times=2, client_id=PRODUCER)
                await producer.begin_transaction()
                await producer.enqueue("orders", b"1", partition=0)
                with trio.move_on_after(0.03):
                    await producer.send_offsets({PLACE: 7}, "billing")
                await ends()
            assert machine(producer).state in (ProducerTransactionState.READY, ProducerTransactionState.INITIALIZING)
            async with producer.transaction():
                await producer.send("orders", b"2", partition=0)
            await until_stable(stage)
            assert await committed(stage) == [b"1", b"2"]

    at_level(V1, test)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_transaction_can_be_aborted_if_a_topic_is_deleted_while_its_addition_has_no_response(is_done: bool) -> None:
    async def test(stage: Stage) -> None:
        await stage.create_topic("old")
        async with stage.producer(transactional_id=ID, max_block_ms=5_000) as producer:
            await producer.begin_transaction()
            key = ApiKey.ADD_PARTITIONS_TO_TXN
            stage.fault(api_key=key, action=ReplyAction.CLOSE, after=is_done, client_id=PRODUCER)
            await producer.enqueue("old", b"1", partition=0)
            while machine(producer)._doubtful is None:
                await stage.world.sleep_ms(1)
            async with Admin(bootstrap_servers=stage.bootstrap, seam=stage.world.node("admin")) as admin:
                await admin.topics.delete("old")
            for policy in stage.cluster.replies.values():
                policy.clear()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("orders", b"2", partition=0)
            await until_stable(stage)
            assert await committed(stage) == [b"2"]

    at_level(V1, test)


@LEVELS
def test_group_offsets_are_committed_or_dropped_together_with_their_transaction(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer() as plain:
            for number in range(6):
                await plain.send("orders", b"%d" % number, partition=0)
        await stage.create_topic("paid")
        settings = {"group_id": "billing", "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with stage.producer(transactional_id=ID) as producer:
            for fails in (True, False):
                async with stage.consumer("member", **settings, max_poll_records=3) as consumer:
                    await consumer.subscribe(["orders"])
                    for turn in range(2):
                        records = await consumer.poll(timeout_ms=2_000)
                        assert len(records) == 3
                        try:
                            async with producer.transaction():
                                for record in records:
                                    await producer.enqueue("paid", record.value)
                                offsets = {(one.topic, one.partition): one.offset + 1 for one in records}
                                await producer.send_offsets(offsets, consumer.group_metadata())
                                if fails and turn:
                                    raise ZeroDivisionError
                        except ZeroDivisionError:
                            break
                        if not fails:
                            break
            await until_stable(stage, ("paid", 0))
            assert await committed(stage, ("paid", 0)) == [b"%d" % number for number in range(6)]

    at_level(level, test)


@LEVELS
def test_sending_offsets_with_an_old_generation_of_the_group_aborts_the_transaction(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with (
            stage.producer(transactional_id=ID) as producer,
            stage.consumer("member", group_id="billing") as consumer,
        ):
            await consumer.subscribe(["orders"])
            await consumer.poll(timeout_ms=2_000)
            metadata = consumer.group_metadata()
            assert metadata.generation > 0
            stale = GroupMetadata("billing", metadata.generation - 1, metadata.member_id)
            with pytest.raises(AbortableTransactionError) as raised:
                async with producer.transaction():
                    await producer.send("orders", b"1", partition=0)
                    await producer.send_offsets({PLACE: 1}, stale)
            assert raised.value.code is ErrorCode.ILLEGAL_GENERATION
            async with producer.transaction():
                await producer.send("orders", b"2", partition=0)
                await producer.send_offsets({PLACE: 2}, metadata)
            assert (await consumer.committed([PLACE]))[PLACE] == CommittedOffset(2)
        await until_stable(stage)
        assert await committed(stage) == [b"2"]

    at_level(level, test)


@LEVELS
def test_sending_offsets_raises_the_error_of_the_transaction_if_its_block_has_aborted_it_meanwhile(level: int) -> None:
    """One task waits for the offsets to be stored. Another ends the block, which aborts the transaction because the
    offsets are refused."""

    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            errors: list[KafkaError] = []

            async def send_offsets() -> None:
                with pytest.raises(AbortableTransactionError) as raised:
                    await producer.send_offsets({PLACE: 7}, "billing")
                errors.append(raised.value)

            refused = {"action": ReplyAction.ERROR, "error": ErrorCode.ILLEGAL_GENERATION}
            stage.fault(api_key=ApiKey.TXN_OFFSET_COMMIT, **refused)
            async with trio.open_nursery() as nursery:
                with pytest.raises(TransactionAborted):
                    async with producer.transaction():
                        nursery.start_soon(send_offsets)
                        while not machine(producer)._offsets:
                            await trio.lowlevel.checkpoint()
            assert [one.code for one in errors] == [ErrorCode.ILLEGAL_GENERATION]

    at_level(level, test)


WRONG_OFFSETS: dict[str, tuple[dict[object, object], object]] = {
    "text": ({PLACE: "7"}, TypeError),
    "fraction": ({PLACE: 1.5}, TypeError),
    "too large": ({PLACE: 1 << 63}, ValueError),
    "negative": ({PLACE: -1}, ValueError),
    "partition": ({("orders", 1 << 31): 7}, ValueError),
    "topic": ({(None, 0): 7}, TypeError),
    "leader epoch": ({PLACE: CommittedOffset(7, 1 << 31)}, ValueError),
    "metadata": ({PLACE: CommittedOffset(7, -1, None)}, TypeError),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", list(WRONG_OFFSETS))
def test_wrong_group_offsets_are_refused_at_once_and_the_transaction_stays_open(case: str) -> None:
    offsets, error = WRONG_OFFSETS[case]

    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer, producer.transaction():
            with pytest.raises(error):  # type: ignore[call-overload]
                await producer.send_offsets(offsets, "billing")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="a group id"):
                await producer.send_offsets({PLACE: 7}, None)  # type: ignore[arg-type]
            await producer.send_offsets({PLACE: 8}, "billing")
        async with stage.consumer("member", group_id="billing") as consumer:
            assert await consumer.committed([PLACE]) == {PLACE: CommittedOffset(8)}

    at_level(V2, test)


@LEVELS
def test_after_a_commit_that_timed_out_only_commit_transaction_is_accepted(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID, max_block_ms=1_000) as producer:
            await producer.begin_transaction()
            await producer.send("orders", b"1", partition=0)
            for policy in stage.cluster.replies.values():
                policy.clear()
            stage.fault(api_key=ApiKey.END_TXN, action=ReplyAction.DELAY, delay_ms=1_500, times=1)
            with pytest.raises(CommitOutcomeUnknown, match=r"max\.block\.ms=1000"):
                await producer.commit_transaction()
            for call in (producer.begin_transaction, producer.abort_transaction):
                with pytest.raises(RuntimeError, match="commit_transaction timed out"):
                    await call()
            await producer.commit_transaction()
            async with producer.transaction():
                await producer.send("orders", b"2", partition=0)
        await until_stable(stage)
        assert await committed(stage) == [b"1", b"2"]

    at_level(level, test)


@LEVELS
def test_a_commit_returns_its_own_outcome_although_another_task_has_begun_the_next_transaction(level: int) -> None:
    """One task waits for the end of its commit while another waits in begin_transaction, and then aborts. Either of the
    two tasks may run first."""

    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            for number in range(8):
                await producer.begin_transaction()
                await producer.send("orders", b"%d" % number, partition=0)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(producer.commit_transaction)
                    while machine(producer).state is not ProducerTransactionState.COMMITTING:
                        await trio.lowlevel.checkpoint()
                    await producer.begin_transaction()
                    await producer.abort_transaction()
            await until_stable(stage)
            assert await committed(stage) == [b"%d" % number for number in range(8)]

    at_level(level, test)


def test_begin_transaction_times_out_while_the_transaction_coordinator_is_loading() -> None:
    async def test(stage: Stage) -> None:
        stage.fault(
            api_key=ApiKey.INIT_PRODUCER_ID, action=ReplyAction.ERROR, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )
        async with stage.producer(transactional_id=ID, max_block_ms=500) as producer:
            with pytest.raises(TimedOut, match=r"max\.block\.ms=500"):
                await producer.begin_transaction()

    at_level(V2, test)


@LEVELS
def test_closing_the_producer_aborts_an_open_transaction(level: int) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            await producer.begin_transaction()
            await producer.send("orders", b"1", partition=0)
        await stage.world.sleep_ms(1_000)
        async with stage.consumer("watcher", isolation_level="read_committed") as consumer:
            assert (await consumer.offsets([PLACE], at="latest"))[PLACE] == 2  # the offset after the abort marker
        assert await committed(stage) == []

    at_level(level, test)


def test_transaction_calls_in_the_wrong_state_raise_runtime_error() -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            with pytest.raises(RuntimeError, match="cannot send now"):
                await producer.send("orders", b"1", partition=0)
            with pytest.raises(RuntimeError, match="cannot commit now"):
                await producer.commit_transaction()
            async with producer.transaction():
                with pytest.raises(RuntimeError, match="cannot begin a transaction now"):
                    await producer.begin_transaction()
        with pytest.raises(RuntimeError, match="transactional_id="):
            async with stage.producer() as plain:
                await plain.begin_transaction()
        with pytest.raises(RuntimeError, match="open only within"):
            stage.producer(transactional_id=ID).transaction()

    at_level(V2, test)


def test_a_raised_transaction_version_takes_effect_with_the_producers_next_transaction() -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            async with producer.transaction():
                await producer.send("orders", b"1", partition=0)
                async with Admin(bootstrap_servers=stage.bootstrap, seam=stage.world.node("admin")) as admin:
                    await admin.nodes.update_features({"transaction.version": V2})
                    await stage.world.sleep_ms(500)
                # a new connection reports the new feature level
                stage.fault(api_key=ApiKey.END_TXN, action=ReplyAction.CLOSE, times=1)
                await producer.send("orders", b"2", partition=0)
                assert not machine(producer).is_v2
            async with producer.transaction():
                assert machine(producer).is_v2
                await producer.send("orders", b"3", partition=0)
        await until_stable(stage)
        assert await committed(stage) == [b"1", b"2", b"3"]

    at_level(V1, test)


def test_a_producer_is_idle_after_an_abort_during_the_backoff_of_a_coordinator_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            await producer.begin_transaction()
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            stage.fault(api_key=ApiKey.ADD_OFFSETS_TO_TXN, action=ReplyAction.ERROR, error=error)
            with trio.move_on_after(0.05):
                await producer.send_offsets({PLACE: 7}, "billing")
            assert machine(producer).retry_at_ms
            await producer.abort_transaction()
            checks = 0
            check = machine(producer).next_request

            def counted(*arguments: object, **options: object) -> object:
                nonlocal checks
                checks += 1
                return check(*arguments, **options)

            monkeypatch.setattr(machine(producer), "next_request", counted)
            await stage.world.sleep_ms(5_000)
            assert checks <= 5, "the background task waits for a call"
            async with producer.transaction():
                await producer.send("orders", b"1", partition=0)
            await until_stable(stage)
            assert await committed(stage) == [b"1"]

    at_level(V1, test)


def test_a_fatal_error_of_the_transaction_coordinator_is_raised_by_each_begin_transaction() -> None:
    async def test(stage: Stage) -> None:
        async with stage.producer(transactional_id=ID) as producer:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            stage.fault(api_key=ApiKey.INIT_PRODUCER_ID, action=ReplyAction.ERROR, error=code)
            for _ in range(2):
                with pytest.raises(KafkaError) as raised:
                    await producer.begin_transaction()
                assert raised.value.code is code
                assert type(raised.value) is KafkaError

    at_level(V2, test)


@pytest.mark.parametrize("seed", range(3))
@LEVELS
def test_transactions_have_all_or_none_of_their_records_visible_when_coordinators_or_leaders_crash(
    level: int, seed: int
) -> None:
    async def test(stage: Stage) -> None:
        outcomes: dict[int, bool] = {}

        async def crash(producer: Producer) -> None:
            """Crash the transaction's coordinator, then a leader, each at some time within a transaction."""
            for turn in range(4):
                while len(outcomes) < 5 + 8 * turn:
                    await stage.world.sleep_ms(1)
                await stage.world.sleep_ms(stage.world.node("dice").random.stream("crash").below(8))
                coordinator = machine(producer)._coordinator
                victim = stage.leader("orders") if turn % 2 or coordinator is None else coordinator.node_id
                stage.world.kill(stage.cluster.name(victim))
                await stage.world.sleep_ms(300)
                stage.cluster.start(victim)
                await stage.cluster.wait_ready(60_000)
                await stage.world.sleep_ms(500)

        async with stage.producer(transactional_id=ID) as producer, trio.open_nursery() as nursery:
            await producer.init_transactions()
            nursery.start_soon(crash, producer)
            for number in range(40):
                try:
                    async with producer.transaction():
                        await producer.enqueue("orders", b"%d" % number, partition=0)
                        await producer.send("orders", b"%d" % number, partition=1)
                        await producer.send_offsets({PLACE: number + 1}, "billing")
                    outcomes[number] = True
                except (TransactionAborted, AbortableTransactionError, DeliveryFailed):
                    outcomes[number] = False
        await until_stable(stage)
        await until_stable(stage, ("orders", 1))
        done = [number for number, is_committed in outcomes.items() if is_committed]
        assert len(done) > 30
        expected = [b"%d" % number for number in done]
        assert await committed(stage) == expected
        assert await committed(stage, ("orders", 1)) == expected
        async with stage.consumer("offsets", group_id="billing") as consumer:
            assert (await consumer.committed([PLACE]))[PLACE] == CommittedOffset(done[-1] + 1)

    three_brokers = {"combined": 0, "controllers": 1, "brokers": 3}
    replicated = {
        "transaction_state_log_replication_factor": "3",
        "transaction_state_log_min_isr": "2",
        "offsets_topic_replication_factor": "3",
    }
    at_level(level, test, seed=seed, **three_brokers, **replicated)
