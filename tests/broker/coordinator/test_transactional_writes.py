"""Produce and TxnOffsetCommit in transactions, in a whole cluster: which partitions are added, what readers see, and
what a crash leaves.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.coordinator.transactional_commits import CommitClient
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchPartition, FetchRequest, encode_fetch_request
from kraft.wire.messages.fetch_response import decode_fetch_response
from kraft.wire.messages.produce import decode_produce_response, encode_produce_request
from tests.broker.coordinator.member import Member
from tests.broker.coordinator.transactional_client import ORDERS, TransactionalClient
from tests.stages.plane import batch, values

TXN_OFFSET_COMMIT = ApiKey.TXN_OFFSET_COMMIT
READ_COMMITTED = 1
OLD, KNOWS_ABORTABLE, ADDS = 10, 11, 12
RETRIED = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS)


async def produce(
    client: TransactionalClient, index: int = 0, *, sequence: int = 0, version: int = ADDS, epoch: int | None = None
) -> ErrorCode:
    """Produce one transactional batch at the leader. Retry while producers would retry the error."""
    partition = client.leader_of("orders", index)
    data = batch(
        f"{client.epoch}:{sequence}",
        producer_id=client.producer_id,
        producer_epoch=client.epoch if epoch is None else epoch,
        base_sequence=sequence,
        transactional=True,
    )
    topics = [("orders", partition.topic_id, [(index, data)])]
    body = encode_produce_request(
        version, acks=-1, timeout_ms=5_000, topics=topics, transactional_id=client.transactional_id
    )
    leader = await client.cluster.connect(partition.host.node_id, client.seam)
    for _ in range(100):
        answer = decode_produce_response(version, await leader.ask_bytes(ApiKey.PRODUCE, version, b"".join(body)))
        error = ErrorCode(answer.topics[0][2][0].error_code)
        if error not in RETRIED:
            return error
        await client.world.sleep_ms(20)
    return error


async def read(client: TransactionalClient, index: int = 0) -> tuple[list[bytes | None], Any]:
    """Return the values that a read_committed consumer is sent from a partition, unfiltered, and the aborted
    transactions."""
    partition = client.leader_of("orders", index)
    row = FetchPartition(index, -1, 0, -1, -1, 1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[("orders", partition.topic_id, [row])],
        isolation_level=READ_COMMITTED,
    )  # fmt: skip
    leader = await client.cluster.connect(partition.host.node_id, client.seam)
    answer = decode_fetch_response(12, await leader.ask_bytes(ApiKey.FETCH, 12, encode_fetch_request(12, request)))
    result = answer.topics[0][2][0]
    return values(result.records), result.aborted_transactions


async def stage(member: Member, client: TransactionalClient, offset: int, *, version: int = 5) -> ErrorCode:
    """Commit an offset of orders-0 in the client's transaction. Retry while clients would retry the error."""
    for _ in range(100):
        reply = await member.ask(
            TXN_OFFSET_COMMIT,
            version,
            transactional_id=client.transactional_id,
            group_id=member.group,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            generation_id=-1,
            topics=[
                {
                    "name": "orders",
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": offset,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
        )
        error = ErrorCode(int(reply.topics[0].partitions[0].error_code))
        if error not in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS):
            return error
        await member.world.sleep_ms(20)
    return error


async def committed(member: Member, *, stable: bool = True) -> tuple[ErrorCode, int]:
    """Return the error and the committed offset of orders-0."""
    reply = await member.ask(
        ApiKey.OFFSET_FETCH,
        groups=[{"group_id": member.group, "topics": [{"name": "orders", "partition_indexes": [0]}]}],
        require_stable=stable,
    )
    row = reply.groups[0].topics[0].partitions[0]
    return ErrorCode(int(row.error_code)), int(row.committed_offset)


# Produce


@pytest.mark.parametrize("commit", [True, False])
def test_a_transactional_produce_adds_its_partitions_and_read_committed_consumers_see_the_outcome(
    run: Any, commit: bool
) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        for index in (0, 1):
            assert await produce(client, index) is ErrorCode.NONE
            assert await produce(client, index, sequence=1) is ErrorCode.NONE
        assert (await read(client))[0] == []
        assert await client.end(commit=commit) is ErrorCode.NONE
        await client.wait_stable()
        found, aborted = await read(client)
        assert found == [b"0:0", b"0:1"]
        assert [row[0] for row in aborted] == ([] if commit else [client.producer_id])

    run(test)


def test_consecutive_transactions_need_only_produce_and_end_txn_requests(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        for number in range(5):
            assert await produce(client) is ErrorCode.NONE
            assert await client.end(commit=number != 2) is ErrorCode.NONE
        await client.wait_stable(("orders", 0))
        assert [commit for _, _, commit in client.markers("orders", 0)] == [True, True, False, True, True]

    run(test)


@pytest.mark.parametrize(
    ("version", "error"),
    [(OLD, ErrorCode.INVALID_TXN_STATE), (KNOWS_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_transactional_batch_for_a_partition_outside_the_transaction_is_rejected(
    run: Any, version: int, error: ErrorCode
) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        await client.add(("orders", 0))
        assert await produce(client, 1, version=version) is error
        assert await produce(client, 0, version=version) is ErrorCode.NONE
        assert await client.end(4) is ErrorCode.NONE
        await client.wait_stable(("orders", 0))

    run(test)


def test_a_batch_sent_after_the_end_of_its_transaction_is_rejected_and_opens_no_transaction(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        await client.add(*ORDERS)
        assert await produce(client, version=OLD) is ErrorCode.NONE
        assert await client.end(4) is ErrorCode.NONE
        await client.wait_stable(("orders", 0))
        assert await produce(client, sequence=1, version=OLD) is ErrorCode.INVALID_TXN_STATE
        await client.wait_stable(("orders", 0))

    run(test)


def test_a_batch_of_transaction_version_2_sent_after_its_marker_gets_invalid_producer_epoch(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        assert await produce(client) is ErrorCode.NONE
        await client.end()
        await client.wait_stable(("orders", 0))
        assert await produce(client, sequence=1, epoch=client.epoch - 1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await produce(client, 1, epoch=client.epoch - 1) is ErrorCode.INVALID_PRODUCER_EPOCH, "never added"
        await client.wait_stable(("orders", 0))

    run(test)


def test_a_batch_gets_out_of_order_sequence_number_if_the_first_batch_of_its_epoch_was_lost(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        assert await produce(client, sequence=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await produce(client) is ErrorCode.NONE
        assert await produce(client, sequence=1) is ErrorCode.NONE

    run(test)


# offsets


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("commit", [True, False])
def test_transactional_offsets_are_visible_after_a_commit_and_dropped_after_an_abort(
    run: Any, version: int, commit: bool
) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await member.find()
        await client.init()
        if version < 5:
            reply = await client.persist(
                ApiKey.ADD_OFFSETS_TO_TXN,
                transactional_id=client.transactional_id,
                producer_id=client.producer_id,
                producer_epoch=client.epoch,
                group_id=member.group,
            )
            assert reply.error_code == ErrorCode.NONE
        assert await stage(member, client, 5, version=version) is ErrorCode.NONE
        assert await committed(member) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await committed(member, stable=False) == (ErrorCode.NONE, -1)
        assert await client.end(5 if version == 5 else 4, commit=commit) is ErrorCode.NONE
        await client.wait_state("CompleteCommit" if commit else "CompleteAbort")
        assert await committed(member) == (ErrorCode.NONE, 5 if commit else -1)

    run(test)


@pytest.mark.parametrize(("version", "error"), [(3, "INVALID_TXN_STATE"), (4, "TRANSACTION_ABORTABLE")])
def test_a_txn_offset_commit_for_a_group_outside_the_transaction_is_rejected(
    run: Any, version: int, error: str
) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await member.find()
        await client.init()
        await client.add(*ORDERS)
        assert await stage(member, client, 5, version=version) is ErrorCode[error]
        assert await committed(member) == (ErrorCode.NONE, -1)

    run(test)


def test_transactional_offsets_survive_a_group_coordinator_power_loss_before_the_commit(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await member.find()
        await client.init()
        assert await stage(member, client, 5) is ErrorCode.NONE
        world.power_off(cluster.name(member.broker))
        await member.find()
        assert await committed(member) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await client.end() is ErrorCode.NONE
        for _ in range(200):
            error, offset = await committed(member)
            if error is ErrorCode.NONE:
                break
            await world.sleep_ms(20)
        assert (error, offset) == (ErrorCode.NONE, 5)

    run(test)


def test_a_txn_offset_commit_of_a_producer_with_an_older_epoch_is_fenced(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        zombie, successor = TransactionalClient(world, cluster), TransactionalClient(world, cluster)
        await member.find()
        await zombie.init()
        await successor.init()
        assert await stage(member, zombie, 5) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await stage(member, successor, 6) is ErrorCode.NONE
        assert await stage(member, zombie, 7) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await successor.end() is ErrorCode.NONE
        await successor.wait_state("CompleteCommit")
        assert await committed(member) == (ErrorCode.NONE, 6)

    run(test)


@pytest.mark.parametrize("adds", [False, True])
def test_an_offset_commit_is_retried_when_the_coordinator_rejects_another_partition_of_the_transaction(
    adds: bool,
) -> None:
    client = CommitClient(adds=adds, knows_abortable=True)
    assert client.error(ErrorCode.OPERATION_NOT_ATTEMPTED) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
