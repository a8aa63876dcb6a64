"""Markers and transactional batches in `__transaction_state`: requests cannot add any, and loading skips them."""

from __future__ import annotations

from typing import Any

from kraft.broker.coordinator.internal_topics import TRANSACTION_TOPIC
from kraft.broker.coordinator.marker_writer import MarkerToWrite
from kraft.broker.txn.records import TransactionLogEntry, TransactionValue, encode_entry
from kraft.broker.txn.states import TransactionState
from kraft.storage.append import AppendOrigin
from kraft.storage.producers.verification import NOT_VERIFYING
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import read_header
from tests.broker.coordinator.member import Member
from tests.broker.coordinator.transactional_client import TransactionalClient
from tests.stages.plane import EPOCH_MS, batch


def shard_of(cluster: Any, client: TransactionalClient) -> Any:
    """Return the shard that has the client's transactional id."""
    shards = cluster.node(client.broker).broker.broker.transactions.shards.values()
    return next(one for one in shards if one.machine and client.transactional_id in one.machine.transactions)


def test_a_request_to_write_a_marker_to_the_transaction_topic_is_rejected(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        partition = shard_of(cluster, client).partition
        end_offset = partition.log.log_end_offset
        marker = {
            "producer_id": 77,
            "producer_epoch": 0,
            "transaction_result": True,
            "topics": [{"name": TRANSACTION_TOPIC, "partition_indexes": [partition.index]}],
            "coordinator_epoch": 1,
        }
        asking = await cluster.connect(client.broker, member.seam)
        reply = await asking.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
        error = reply.markers[0].topics[0].partitions[0].error_code
        assert ErrorCode.of(int(error)) is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert partition.log.log_end_offset == end_offset

    run(test)


def test_loading_a_partition_of_the_transaction_log_skips_transactional_batches_and_markers(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        shard = shard_of(cluster, client)
        entry = TransactionLogEntry("other", TransactionValue(77, 0, 60_000, TransactionState.EMPTY))
        record = encode_entry(entry, is_flexible=True)
        staged = batch(
            record.value, key=record.key, producer_id=77, producer_epoch=0, base_sequence=0, transactional=True
        )
        marker = MarkerToWrite(77, 0, 1, is_commit=True).encoded(EPOCH_MS)
        for data in (staged, marker):
            shard.partition.append_as_leader(
                memoryview(data), read_header(data), EPOCH_MS, AppendOrigin.COORDINATOR, NOT_VERIFYING
            )
        cluster.node(client.broker).broker.broker.transactions._shards.reload(shard)
        assert (await client.describe()).transaction_state == "Empty"
        assert await client.init() is ErrorCode.NONE

    run(test)
