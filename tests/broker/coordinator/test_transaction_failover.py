"""Transaction coordinators and partition leaders that die at a step of two-phase commit: the outcome of the transaction
stays the same.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kraft.broker.coordinator.marker_sender import MarkerSender
from kraft.broker.coordinator.marker_writer import MarkerWriter
from kraft.broker.txn.states import TransactionState
from kraft.seam import DialFailed
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from tests.broker.coordinator.member import Member
from tests.broker.coordinator.transactional_client import NEWEST, ORDERS, TransactionalClient

STEPS = ("before the decision", "before any marker", "between the markers", "before the last record")


class Hold:
    """Blocks the coordinator on one broker at one step of two-phase commit, so that the broker can be killed there."""

    def __init__(self, cluster: Any, broker_id: int, step: str) -> None:
        self.reached = trio.Event()
        broker = cluster.node(broker_id).broker.broker
        sender: MarkerSender = broker.transactions.markers
        machines = [shard.machine for shard in broker.transactions.shards.values() if shard.machine is not None]
        if step == "before the decision":
            for machine in machines:
                machine.stored = self._held  # neither the reply nor a marker is sent
        elif step == "before any marker":
            sender.send = self._held  # type: ignore[method-assign]
        elif step == "between the markers":
            sent = sender._dispatch
            first: list[Any] = []

            def dispatch(completion: Any, partitions: Any) -> None:
                wanted = [one for one in partitions if not first or one == first[0]][:1]
                first[:] = first or wanted
                sent(completion, wanted)
                self.reached.set()

            sender._dispatch = dispatch  # type: ignore[method-assign]
        else:
            for machine in machines:
                machine.marked = self._held

    def _held(self, *arguments: Any, **named: Any) -> Any:
        from kraft.broker.txn.step import Step

        self.reached.set()
        return Step()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("power", [False, True])
def test_a_coordinator_killed_at_any_step_of_two_phase_commit_leaves_one_outcome_in_all_partitions(
    run: Any, step: str, commit: bool, power: bool
) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        await client.add(*ORDERS)
        for partition in ORDERS:
            await client.write(*partition)
        old = client.broker
        hold = Hold(cluster, old, step)
        outcomes: list[Any] = []

        async def end() -> None:
            try:
                reply = await client.ask(ApiKey.END_TXN, NEWEST[ApiKey.END_TXN], **client.ending(commit=commit))
                outcomes.append(ErrorCode.of(int(reply.error_code)))
            except (ConnectionError, DialFailed):
                outcomes.append(None)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(end)
            await hold.reached.wait()
            await world.sleep_ms(200)
            (world.power_off if power else world.kill)(cluster.name(old))
            while not outcomes and not power:
                await world.sleep_ms(10)
            nursery.cancel_scope.cancel()
        if step != "before the decision":
            assert outcomes == [ErrorCode.NONE], "the decision was committed and reported"
        identity = (client.producer_id, client.epoch + 1)
        cluster.broker_ids.remove(old)
        await client.find()
        assert await client.end(commit=commit) is ErrorCode.NONE, "the repeated request has the same outcome"
        assert (client.producer_id, client.epoch) == identity
        await client.wait_state("CompleteCommit" if commit else "CompleteAbort")
        await client.wait_stable()
        for partition in ORDERS:
            markers = client.markers(*partition)
            assert set(markers) == {(*identity, commit)}, "all markers have one outcome"
        assert set((await client.add(*ORDERS)).values()) == {ErrorCode.NONE}, "the next transaction begins"

    run(test)


def test_an_open_transaction_survives_the_failover_of_its_coordinator(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init(timeout_ms=30_000)
        await client.add(("orders", 0))
        await client.write("orders", 0)
        started = (await client.describe()).transaction_start_time
        old = client.broker
        world.kill(cluster.name(old))
        cluster.broker_ids.remove(old)
        await client.find()
        row = await client.describe()
        assert (row.transaction_state, row.transaction_start_time) == ("Ongoing", started)
        assert set((await client.add(*ORDERS)).values()) == {ErrorCode.NONE}
        assert await client.end() is ErrorCode.NONE
        await client.wait_state("CompleteCommit")
        await client.wait_stable(("orders", 0))

    run(test)


def test_an_open_transaction_is_aborted_at_its_timeout_by_the_coordinator_after_a_failover(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init(timeout_ms=20_000)
        await client.add(("orders", 0))
        began_ns = world.now_ns
        await client.write("orders", 0)
        await world.sleep_ms(10_000)
        old = client.broker
        world.kill(cluster.name(old))
        cluster.broker_ids.remove(old)
        await client.find()
        await world.sleep_ms(19_000 - (world.now_ns - began_ns) / 1e6)
        assert (await client.describe()).transaction_state == "Ongoing"
        await world.sleep_ms(1_000)
        await client.wait_state("CompleteAbort")
        assert (world.now_ns - began_ns) / 1e6 < 21_000, "the time before the failover counts"
        await client.wait_stable(("orders", 0))

    run(test)


@pytest.mark.parametrize("power", [False, True])
def test_a_marker_not_written_by_a_leader_that_died_is_sent_to_the_partitions_new_leader(run: Any, power: bool) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        await client.add(*ORDERS)
        for partition in ORDERS:
            await client.write(*partition)
        leaders = {client.leader_of(*one).state.leader for one in ORDERS}
        dead = next((one for one in leaders if one != client.broker), None)
        assert dead is not None, "the coordinator leads all partitions: the test needs another seed"
        writer: MarkerWriter = cluster.node(dead).broker.broker.marker_writer
        reached = trio.Event()
        writer.write = lambda *arguments: reached.set()  # type: ignore[method-assign, assignment]
        assert await client.end() is ErrorCode.NONE
        await reached.wait()
        (world.power_off if power else world.kill)(cluster.name(dead))
        cluster.broker_ids.remove(dead)
        began_ns = world.now_ns
        await client.wait_state("CompleteCommit")
        assert (world.now_ns - began_ns) / 1e6 < 20_000, "the request to a dead leader does not wait for its timeout"
        await client.wait_stable()

    run(test)


def test_a_marker_is_retried_until_its_partition_has_enough_in_sync_replicas(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        await client.add(("orders", 0))
        await client.write("orders", 0)
        leader = client.leader_of("orders", 0)
        has_enough = type(leader.leader).has_enough_replicas
        try:
            type(leader.leader).has_enough_replicas = property(
                lambda state: state is not leader.leader and has_enough.fget(state)
            )
            assert await client.end() is ErrorCode.NONE
            await world.sleep_ms(3_000)
            assert (await client.describe()).transaction_state == "PrepareCommit"
            assert client.markers("orders", 0) == []
            metrics = cluster.node(client.broker).metrics
            assert metrics.value("kraft.coordinator", "Transactions", "WaitingMarkers") == 1
        finally:
            type(leader.leader).has_enough_replicas = has_enough
        await client.wait_state("CompleteCommit")

    run(test)


def test_a_transaction_with_a_leaderless_partition_completes_once_the_partition_has_a_leader(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        lonely = next(one for one in cluster.broker_ids if one != client.broker)
        asking = await cluster.connect(client.broker, member.seam)
        created = await asking.ask(
            ApiKey.CREATE_TOPICS,
            7,
            topics=[
                {
                    "name": "lonely",
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": [{"partition_index": 0, "broker_ids": [lonely]}],
                }
            ],
            timeout=10_000,
        )
        assert created.topics[0].error_code == ErrorCode.NONE
        await world.sleep_ms(100)
        await client.add(("lonely", 0))
        await client.write("lonely", 0)
        world.kill(cluster.name(lonely))
        await world.sleep_ms(12_000)
        assert await client.end() is ErrorCode.NONE
        await world.sleep_ms(500)
        metrics = cluster.node(client.broker).metrics
        name = ("kafka.coordinator.transaction", "TransactionMarkerChannelManager", "UnknownDestinationQueueSize")
        assert metrics.value(*name) == 1
        cluster.start(lonely)
        await cluster.wait_ready()
        await client.wait_state("CompleteCommit")
        assert metrics.value(*name) == 0
        await client.wait_stable(("lonely", 0))

    run(test)


def test_a_late_marker_of_transaction_version_2_does_not_end_the_next_transaction(run: Any) -> None:
    async def test(world: Any, cluster: Any, member: Member) -> None:
        client = TransactionalClient(world, cluster)
        await client.init()
        await client.add(("orders", 0))
        await client.write("orders", 0)
        await client.end()
        await client.wait_state("CompleteCommit")
        await client.add(("orders", 0))
        await client.write("orders", 0)
        partition = client.leader_of("orders", 0)
        asking = await cluster.connect(partition.state.leader, member.seam)
        marker = {
            "producer_id": client.producer_id,
            "producer_epoch": client.epoch,
            "transaction_result": True,
            "topics": [{"name": "orders", "partition_indexes": [0]}],
            "coordinator_epoch": 10,
            "transaction_version": 2,
        }
        late = await asking.ask(ApiKey.WRITE_TXN_MARKERS, 2, markers=[marker])
        error = late.markers[0].topics[0].partitions[0].error_code
        assert error == ErrorCode.INVALID_PRODUCER_EPOCH
        assert partition.last_stable_offset < partition.log.log_end_offset, "the transaction is still open"
        assert await client.end(commit=False) is ErrorCode.NONE
        await client.wait_stable(("orders", 0))
        assert (await client.describe()).transaction_state == TransactionState.COMPLETE_ABORT.label

    run(test)
