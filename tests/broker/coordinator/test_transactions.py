"""Transactions in a whole cluster: InitProducerId, added partitions, commits and aborts, and markers in the logs of all
leaders.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.coordinator.internal_topics import TRANSACTION_TOPIC
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.records import iter_batch, iter_headers
from tests.broker.coordinator.member import Member
from tests.broker.coordinator.transactional_client import ORDERS, TransactionalClient, error_of

OFFSETS_TOPIC = "__consumer_offsets"


@pytest.mark.parametrize(("version", "commit"), [(4, True), (4, False), (5, True), (5, False)])
def test_ending_a_transaction_writes_one_marker_to_each_of_its_partitions(run: Any, version: int, commit: bool) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        assert await client.init() is ErrorCode.NONE
        identity = (client.producer_id, client.epoch)
        assert set((await client.add(*ORDERS)).values()) == {ErrorCode.NONE}
        for partition in ORDERS:
            await client.write(*partition)
        assert await client.end(version, commit=commit) is ErrorCode.NONE
        await client.wait_state("CompleteCommit" if commit else "CompleteAbort")
        epoch = identity[1] + (version == 5)
        for partition in ORDERS:
            assert client.markers(*partition) == [(identity[0], epoch, commit)]
        await client.wait_stable()
        assert (client.producer_id, client.epoch) == (identity[0], epoch)

    run(test)


def test_the_first_find_coordinator_for_a_transactional_id_creates_the_transaction_topic(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.find()
        node = cluster.node(client.broker)
        topic = node.publisher.image.topics.by_name[TRANSACTION_TOPIC]
        assert topic.partition_count == 7
        configs = node.publisher.image.topic_configs(TRANSACTION_TOPIC)
        assert configs["min.insync.replicas"] == "2"
        assert configs["unclean.leader.election.enable"] == "false"
        assert configs["cleanup.policy"] == "compact"
        assert configs["segment.bytes"] == "2000000"

    run(
        test,
        transaction_state_log_num_partitions="7",
        transaction_state_log_segment_bytes="2000000",
    )


def test_markers_of_consecutive_transactions_are_in_the_log_in_their_order(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        for number in range(3):
            assert set((await client.add(("orders", 0))).values()) == {ErrorCode.NONE}
            await client.write("orders", 0)
            assert await client.end(commit=number != 1) is ErrorCode.NONE
        await client.wait_stable(("orders", 0))
        found = client.markers("orders", 0)
        assert [commit for _, _, commit in found] == [True, False, True]
        assert [epoch for _, epoch, _ in found] == [1, 2, 3]

    run(test)


def test_a_second_init_of_a_transactional_id_fences_its_first_producer_and_aborts_the_transaction(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        first, second = TransactionalClient(world, cluster), TransactionalClient(world, cluster)
        await first.init()
        await first.add(*ORDERS)
        await first.write("orders", 0)
        assert await second.init() is ErrorCode.NONE
        assert second.producer_id == first.producer_id
        assert second.epoch > first.epoch
        assert await first.end(4) is ErrorCode.PRODUCER_FENCED
        assert await first.end(1) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert set((await first.add(version=3)).values()) == {ErrorCode.PRODUCER_FENCED}
        assert set((await first.add(version=1)).values()) == {ErrorCode.INVALID_PRODUCER_EPOCH}
        assert await first.init(5, keeps=True) is ErrorCode.PRODUCER_FENCED
        assert await first.init(3, keeps=True) is ErrorCode.INVALID_PRODUCER_EPOCH
        for partition in ORDERS:
            (marker,) = first.markers(*partition)
            assert not marker[2], "the open transaction was aborted"

    run(test)


def test_the_coordinator_aborts_a_transaction_at_its_timeout_and_counts_it(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init(timeout_ms=2_000)
        await client.add(*ORDERS)
        await client.write("orders", 0)
        await world.sleep_ms(1_500)
        assert (await client.describe()).transaction_state == "Ongoing"
        await world.sleep_ms(1_500)
        await client.wait_state("CompleteAbort")
        await client.wait_stable(("orders", 0))
        assert await client.end() is ErrorCode.INVALID_TXN_STATE
        metrics = cluster.node(client.broker).metrics
        assert metrics.value("kraft.coordinator", "Transactions", "TimedOut") == 1

    run(test)


def test_add_partitions_to_txn_adds_no_partition_if_one_of_them_is_rejected(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        found = await client.add(("orders", 0), ("missing", 0), (OFFSETS_TOPIC, 1))
        assert found == {
            ("orders", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (OFFSETS_TOPIC, 1): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        }
        assert (await client.describe()).transaction_state == "Empty"

    run(test)


@pytest.mark.parametrize(
    ("version", "missing"), [(4, ErrorCode.INVALID_TXN_STATE), (5, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_verifying_partitions_returns_an_error_only_for_those_outside_the_transaction(
    run: Any, version: int, missing: ErrorCode
) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        await client.add(("orders", 0))
        found = await client.add(*ORDERS, version=version, verify=True)
        assert found == {("orders", 0): ErrorCode.NONE, ("orders", 1): missing}
        assert set((await client.add(*ORDERS, version=version)).values()) == {ErrorCode.NONE}
        assert set((await client.add(*ORDERS, version=version, verify=True)).values()) == {ErrorCode.NONE}

    run(test)


@pytest.mark.parametrize("version", range(5))
def test_add_offsets_to_txn_adds_the_groups_offsets_partition_and_a_marker_is_written_there(
    run: Any, version: int
) -> None:
    """The broker that leads the partition writes the marker, and the group coordinator can write to the partition after
    it."""

    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        assert await member.commit(1) is ErrorCode.NONE
        client = TransactionalClient(world, cluster)
        await client.init()
        fields = {
            "transactional_id": client.transactional_id,
            "producer_id": client.producer_id,
            "producer_epoch": client.epoch,
            "group_id": "g",
        }
        reply = await client.persist(ApiKey.ADD_OFFSETS_TO_TXN, version, **fields)
        assert reply.error_code == ErrorCode.NONE
        (topic,) = (await client.describe()).topics
        assert topic.topic == OFFSETS_TOPIC
        assert await client.end() is ErrorCode.NONE
        await client.wait_state("CompleteCommit")
        assert client.markers(OFFSETS_TOPIC, topic.partitions[0]) == [(client.producer_id, client.epoch, True)]
        assert await member.commit(2) is ErrorCode.NONE, "the group's records follow the marker"
        assert await member.committed() == 2

    run(test)


def test_transactions_are_described_and_listed_by_state_producer_id_duration_and_pattern(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        clients = [TransactionalClient(world, cluster, name) for name in ("pay-1", "pay-2", "log-1")]
        for client in clients:
            await client.init(timeout_ms=50_000)
        await clients[0].add(*ORDERS)
        row = await clients[0].describe()
        assert (row.transaction_state, row.producer_id, row.producer_epoch) == ("Ongoing", clients[0].producer_id, 0)
        assert [(topic.topic, topic.partitions) for topic in row.topics] == [("orders", (0, 1))]
        assert row.transaction_timeout.total_seconds() == 50
        assert row.transaction_start_time > 0
        unknown = await clients[0].persist(ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=["", "nobody"])
        assert unknown.transaction_states[0].error_code == ErrorCode.INVALID_REQUEST
        assert unknown.transaction_states[1].error_code in (
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            ErrorCode.NOT_COORDINATOR,
        )

        async def listed(**filters: Any) -> set[str]:
            names: set[str] = set()
            for broker_id in cluster.broker_ids:
                asking = await cluster.connect(broker_id, member.seam)
                reply = await asking.ask(ApiKey.LIST_TRANSACTIONS, 2, **{"duration_filter": -1, **filters})
                assert reply.error_code == ErrorCode.NONE
                names.update(one.transactional_id for one in reply.transaction_states)
            return names

        assert await listed() == {"pay-1", "pay-2", "log-1"}
        assert await listed(state_filters=["Empty"]) == {"pay-2", "log-1"}
        assert await listed(producer_id_filters=[clients[1].producer_id]) == {"pay-2"}
        assert await listed(transactional_id_pattern="pay-.*") == {"pay-1", "pay-2"}
        await world.sleep_ms(3_000)
        assert await listed(duration_filter=2_000) == {"pay-1", "pay-2", "log-1"}, "pay-2 and log-1 have no start time"
        assert await listed(duration_filter=20_000) == {"pay-2", "log-1"}
        assert await listed(duration_filter=2_000, state_filters=["Ongoing"]) == {"pay-1"}
        assert await clients[0].end() is ErrorCode.NONE
        await clients[0].wait_state("CompleteCommit")
        assert await listed(duration_filter=2_000, state_filters=["CompleteCommit"]) == {"pay-1"}
        asking = await cluster.connect(1, member.seam)
        for pattern in ("(", "x" * 1_001):
            filters = {"state_filters": ["Odd"], "transactional_id_pattern": pattern}
            reply = await asking.ask(ApiKey.LIST_TRANSACTIONS, 2, **filters)
            assert reply.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    run(test)


def test_a_request_with_an_empty_transactional_id_is_invalid_at_every_broker(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        await member.settle()
        await TransactionalClient(world, cluster).init()
        producer = {"transactional_id": "", "producer_id": 1, "producer_epoch": 0}
        for broker_id in cluster.broker_ids:
            asking = await cluster.connect(broker_id, member.seam)
            ended = await asking.ask(ApiKey.END_TXN, 5, **producer, committed=True)
            assert ended.error_code == ErrorCode.INVALID_REQUEST
            offsets = await asking.ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, **producer, group_id="g")
            assert offsets.error_code == ErrorCode.INVALID_REQUEST
            for version, verify in ((3, False), (5, False), (5, True)):
                topics = [{"name": "orders", "partitions": [0]}]
                transaction = {**producer, "verify_only": verify, "topics": topics}
                added = await asking.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=[transaction])
                assert error_of(added) is ErrorCode.INVALID_REQUEST

    run(test)


def test_an_idle_transactional_id_is_removed_after_its_expiration_time(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        await world.sleep_ms(25_000)
        assert (await client.describe()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert await client.end() is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    run(
        test,
        transactional_id_expiration_ms="10000",
        transaction_remove_expired_transaction_cleanup_interval_ms="5000",
    )


def test_a_transaction_with_a_partition_of_a_deleted_topic_completes(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        await client.add(("orders", 0), ("bills", 1))
        await client.write("orders", 0)
        asking = await cluster.connect(1, member.seam)
        gone = await asking.ask(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "bills"}], timeout=10_000)
        assert gone.responses[0].error_code == ErrorCode.NONE
        assert await client.end() is ErrorCode.NONE
        await client.wait_state("CompleteCommit")
        await client.wait_stable(("orders", 0))

    run(test, topics=("orders", "bills"))


def test_every_version_of_init_producer_id_gives_a_transactional_id_the_next_epoch(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        for version in range(6):
            assert await client.init(version) is ErrorCode.NONE
            assert client.epoch == version, "each call fences the one before"
        assert await client.init(timeout_ms=10_000_000) is ErrorCode.INVALID_TRANSACTION_TIMEOUT

    run(test)


def test_transaction_metrics_count_ids_open_committed_and_aborted_transactions(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        metrics = cluster.node(client.broker).metrics

        def value(name: str) -> float:
            return metrics.value("kraft.coordinator", "Transactions", name) or 0

        assert (value("TransactionalIds"), value("Open")) == (1, 0)
        await client.add(*ORDERS)
        assert value("Open") == 1
        await client.end()
        await client.wait_state("CompleteCommit")
        await client.end(commit=False)
        await client.wait_state("CompleteAbort")
        assert (value("Committed"), value("Aborted"), value("Open")) == (1, 1, 0)
        load = "transaction-coordinator-metrics"
        assert metrics.value("kafka.server", load, "partition-load-time-max") > 0
        assert metrics.value("kafka.server", load, "partition-load-time-avg") > 0

    run(test)


def record_versions(client: TransactionalClient) -> list[int]:
    """Return the version of each value in the partition of the transaction log that has the client's id."""
    shards = cluster_shards(client)
    log = next(shard.partition.log for shard in shards if client.transactional_id in shard.machine.transactions)
    data = log.read(log.log_start_offset, 10_000_000, log.log_end_offset).read_whole(log.log_end_offset)
    return [
        int.from_bytes(record.value[:2], "big")
        for position, _ in iter_headers(data)
        for record in iter_batch(data, position)
        if record.value is not None
    ]


def cluster_shards(client: TransactionalClient) -> list[Any]:
    shards = client.cluster.node(client.broker).broker.broker.transactions.shards
    return [shard for shard in shards.values() if shard.machine is not None]


async def set_level(world: Any, cluster: Any, member: Member, level: int, upgrade_type: int) -> None:
    asking = await cluster.connect(1, member.seam)
    update = {"feature": "transaction.version", "max_version_level": level, "upgrade_type": upgrade_type}
    reply = await asking.ask(ApiKey.UPDATE_FEATURES, 2, feature_updates=[update], timeout=10_000)
    assert reply.error_code == ErrorCode.NONE
    await world.sleep_ms(200)


def test_a_changed_transaction_version_changes_the_encoding_of_later_transaction_records(run: Any) -> None:
    """The level changes while the coordinators run."""

    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        assert record_versions(client) == [1], "a new cluster has level 2"
        await set_level(world, cluster, member, 0, upgrade_type=2)
        await client.init()
        assert record_versions(client) == [1, 0]
        await set_level(world, cluster, member, 2, upgrade_type=1)
        await client.init()
        assert record_versions(client) == [1, 0, 1]
        assert {shard.machine._shard.transaction_version for shard in cluster_shards(client)} == {2}

    run(test)


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_transactional_producer_whose_epochs_are_used_up_continues_with_a_new_producer_id(
    run: Any, fails_over: bool
) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        value = client.machine.transactions["payments"].value
        client.machine.transactions["payments"].value = value._replace(producer_epoch=32_766)
        client.epoch = 32_766
        old = client.producer_id
        await client.add(("orders", 0))
        await client.write("orders", 0)
        ending = client.ending(commit=True)
        assert await client.end() is ErrorCode.NONE
        assert client.producer_id != old
        assert client.epoch == 0
        await client.wait_state("CompleteCommit")
        assert client.markers("orders", 0) == [(old, 32_767, True)]
        if fails_over:
            dead = client.broker
            world.kill(cluster.name(dead))
            cluster.broker_ids.remove(dead)
            await client.find()
        again = await client.persist(ApiKey.END_TXN, 5, **ending)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (ErrorCode.NONE, client.producer_id, 0)
        await client.add(("orders", 0))
        await client.write("orders", 0)
        assert await client.end() is ErrorCode.NONE
        await client.wait_stable(("orders", 0))

    run(test)
