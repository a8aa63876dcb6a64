"""Parts of the data plane, each tested without a broker: the timer of deadlines, the fetch session cache, and the
placement of logs.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio

from kraft.broker.api.fetch.sessions import EVICTION_MS, FetchSession, FetchSessionCache
from kraft.broker.logs.directory_assignments import DirectoryAssignments
from kraft.broker.partition.log_directories import LogDirectories
from kraft.broker.replica.isr import IsrChange, IsrProposal
from kraft.broker.roles.alter_partition import AlterPartitionQueue
from kraft.broker.serving.controller_port import ControllerPort
from kraft.broker.serving.gates import QuotaKind
from kraft.broker.serving.purgatory import BUCKET_MS, Deadlines, Parked
from kraft.sim.world import World
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.rpc.controller_messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsResponse,
)
from tests.stages.plane import Plane, batch, error, run


class Operation(Parked):
    def __init__(self, clock: Any, expired: list[tuple[str, int]], name: str) -> None:
        self.bucket = -1
        self._clock = clock
        self._expired = expired
        self._name = name

    def expire(self) -> None:
        self._expired.append((self._name, self._clock.monotonic_ms()))


def test_parked_operations_expire_soon_after_their_deadline_unless_they_are_done() -> None:
    async def main(world: World) -> None:
        clock = world.node("n").clock
        expired: list[tuple[str, int]] = []
        deadlines = Deadlines(clock)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deadlines.run)
            began = clock.monotonic_ms()
            operations = {name: Operation(clock, expired, name) for name in ("late", "soon", "done", "sooner")}
            deadlines.add(operations["late"], began + 5_000)
            await world.sleep_ms(5)
            deadlines.add(operations["soon"], began + 100)
            deadlines.add(operations["done"], began + 100)
            deadlines.add(operations["sooner"], began + 20)
            deadlines.remove(operations["done"])
            assert len(deadlines) == 3
            await world.sleep_ms(6_000)
            nursery.cancel_scope.cancel()
        assert [name for name, _ in expired] == ["sooner", "soon", "late"]
        for (_, at), due in zip(expired, (20, 100, 5_000), strict=True):
            assert due <= at - began <= due + 2 * BUCKET_MS

    World(1).run(main)


def cache(slots: int) -> FetchSessionCache:
    class Counting:
        def __init__(self) -> None:
            self.number = 0

        def below(self, bound: int) -> int:
            self.number += 1
            return self.number

    return FetchSessionCache(slots, Counting())  # type: ignore[arg-type]


def session(replica_id: int, partitions: int, now_ms: int) -> FetchSession:
    made = FetchSession(replica_id, uses_topic_ids=False, now_ms=now_ms)
    for index in range(partitions):
        made.partition("topic", index)
    return made


def kept(sessions: FetchSessionCache, replica_id: int, partitions: int, now_ms: int) -> FetchSession:
    made = session(replica_id, partitions, now_ms)
    sessions.keep(made, now_ms)
    return made


def test_a_full_fetch_session_cache_evicts_only_idle_less_privileged_or_smaller_sessions() -> None:
    sessions = cache(1)
    consumer = kept(sessions, -1, 2, 0)
    assert consumer.session_id
    assert not kept(sessions, -1, 1, EVICTION_MS - 1).session_id, "not larger"
    assert not kept(sessions, -1, 3, EVICTION_MS - 1).session_id, "larger, but the other is young"
    consumer.used_ms = EVICTION_MS
    assert kept(sessions, -1, 3, EVICTION_MS).session_id, "larger, and the other is old enough"
    follower = kept(sessions, 2, 1, EVICTION_MS + 1)
    assert follower.session_id, "a follower before a consumer"
    assert not kept(sessions, -1, 99, EVICTION_MS + 2).session_id, "never a consumer before a follower"
    assert kept(sessions, -1, 1, 2 * EVICTION_MS + 1).session_id, "idle for long"
    assert sessions.evictions == 3


def test_a_fetch_session_epoch_at_its_maximum_wraps_to_1() -> None:
    made = kept(cache(1), -1, 1, 0)
    made.epoch = 2**31 - 1
    made.advance()
    assert made.epoch == 1


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_request_closes_the_session_it_names(epoch: int) -> None:
    sessions = cache(5)
    made = kept(sessions, -1, 1, 0)
    found = sessions.find(made.session_id, epoch, -1, uses_topic_ids=False, now_ms=1)
    assert isinstance(found, FetchSession)
    assert not found.partitions
    assert sessions.find(made.session_id, 1, -1, uses_topic_ids=False, now_ms=1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def directories(*paths: str, offline: str = "") -> LogDirectories:
    class Config:
        log_dirs = paths

    made = LogDirectories(Config(), None)  # type: ignore[arg-type]
    for number, directory in enumerate(made.all):
        directory.known_id = UUID(int=1_000 + number)
        if directory.path != offline:
            directory.storage = object()  # type: ignore[assignment]
    return made


def test_a_new_replica_is_placed_in_its_assigned_directory_or_in_the_one_with_the_fewest_replicas() -> None:
    made = directories("/a", "/b")
    made.all[0].partitions.add(SimpleNamespace(topic_id=UUID(int=1), index=0))  # type: ignore[arg-type]
    assert made.place("t", 0, None, is_new=True) is made.all[1]
    assert made.place("t", 0, UUID(int=1_000), is_new=True) is made.all[0]
    made.all[1].held = frozenset({("t", 0)})
    assert made.place("t", 0, UUID(int=1_000), is_new=False) is made.all[1], "where its data is"


def test_a_replica_that_may_be_in_an_offline_directory_is_not_created_again() -> None:
    made = directories("/a", "/b", offline="/b")
    assert made.place("t", 0, None, is_new=False) is None
    assert made.place("t", 0, UUID(int=1_001), is_new=False) is None
    assert made.place("t", 0, UUID(int=1_000), is_new=False) is None, "it may have been on its way there"
    assert made.place("t", 0, UUID(int=1_000), is_new=True) is made.all[0]
    assert made.place("t", 0, None, is_new=True) is made.all[0]


def test_the_broker_epoch_of_a_clean_stop_counts_only_if_all_directories_agree() -> None:
    made = directories("/a", "/b")
    made.all[0].broker_epoch = made.all[1].broker_epoch = 7
    assert made.previous_broker_epoch == 7
    made.all[1].broker_epoch = -1
    assert made.previous_broker_epoch == -1


class Limited:
    """Quotas that return the same throttle time for every request."""

    def __init__(self, kind: QuotaKind, pause_ms: int) -> None:
        self.kind = kind
        self.pause_ms = pause_ms

    def record(self, session: object, kind: QuotaKind, amount: int) -> int:
        return self.pause_ms if kind is self.kind and amount else 0


def test_a_throttled_produce_is_answered_at_once_and_its_connection_muted() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        await plane.produce("orders", batch("warm"))
        plane.cluster.node(1).gates.quotas = Limited(QuotaKind.PRODUCE_BYTES, 400)
        for topics in ([("orders", [(0, batch("a"))])], [("orders", [(0, batch("a"))]), ("none", [(0, batch("b"))])]):
            client = await plane.another_client()
            began = plane.world.now_ns
            response = await plane.produce_many(topics, client=client)
            assert response.throttle_time_ms == 400
            assert (plane.world.now_ns - began) / 1e6 < 50
            await plane.produce_many(topics, client=client)
            assert (plane.world.now_ns - began) / 1e6 >= 400

    run(test)


def test_a_throttled_fetch_gets_an_empty_response() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        await plane.produce("orders", batch("a"))
        plane.cluster.node(1).gates.quotas = Limited(QuotaKind.FETCH_BYTES, 300)
        client = await plane.another_client()
        response = await plane.fetch_many([("orders", 0, 0)], client=client, session_epoch=0)
        assert (response.throttle_time_ms, response.session_id, response.topics) == (300, 0, [])

    run(test)


def test_an_unauthorized_client_gets_the_authorization_error_even_for_unknown_topics() -> None:
    class DenyAll:
        def authorize(self, session: object, operation: object, resource: object) -> bool:
            return False

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        await plane.produce("orders", batch("a"))
        plane.cluster.node(1).gates.authorizer = DenyAll()
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for topic in ("orders", "nowhere"):
            assert error(await plane.produce(topic, batch("x"))) == refused
            assert error(await plane.fetch(topic, 0)) == refused
            assert error(await plane.list_offset(topic, -1)) == refused
            assert error(await plane.delete_records(topic, 0)) == refused
        assert error(await plane.produce("nowhere", batch("x"), version=13)) == ErrorCode.UNKNOWN_TOPIC_ID
        follower = await plane.fetch_many([("orders", 0, 0)], version=15, replica_id=1, replica_epoch=1)
        assert error(follower.topics[0][2][0]) == refused

    run(test)


def use_disk(plane: Plane, disk: Any) -> None:
    """Replace the disk that the node's replicas and append budget use by this one."""
    broker = plane.cluster.node(1).broker.broker
    object.__setattr__(broker.replicas.loop, "disk", disk)
    broker.replicas.budget.disk = disk
    broker.dispatcher._handlers[ApiKey.PRODUCE].__self__._disk = disk


def test_produces_that_wait_for_the_dirty_byte_budget_are_appended_in_their_order() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        await plane.produce("orders", batch("first"))
        replicas = plane.cluster.node(1).broker.broker.replicas

        class Full:
            """The node's disk, except that it reports its dirty byte budget as used up until the test changes this."""

            dirty_budget_full = True

            def __init__(self, disk: Any) -> None:
                self._disk = disk
                self.room = trio.Event()

            async def wait_dirty_budget(self) -> None:
                await self.room.wait()

            def __getattr__(self, name: str) -> Any:
                return getattr(self._disk, name)

        full = Full(replicas.disk)
        use_disk(plane, full)
        offsets: list[int] = []

        async def one(number: int) -> None:
            client = await plane.another_client()
            offsets.append((await plane.produce("orders", batch(f"{number}"), client=client)).base_offset)

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(one, number)
                await plane.world.sleep_ms(10)
            assert offsets == []
            full.dirty_budget_full = False
            full.room.set()
        assert sorted(offsets) == [1, 2, 3]

    run(test)


def test_only_as_many_waiting_produces_run_as_the_dirty_byte_budget_has_room_for() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        await plane.produce("orders", batch("first"))
        replicas = plane.cluster.node(1).broker.broker.replicas

        class Tight:
            """The node's disk, except that its dirty byte budget reports room only in this many further checks."""

            def __init__(self, disk: Any) -> None:
                self._disk = disk
                self.left = 0
                self.room = trio.Event()

            @property
            def dirty_budget_full(self) -> bool:
                self.left -= 1
                return self.left < 0

            async def wait_dirty_budget(self) -> None:
                await self.room.wait()

            def __getattr__(self, name: str) -> Any:
                return getattr(self._disk, name)

        tight = Tight(replicas.disk)
        use_disk(plane, tight)
        offsets: list[int] = []

        async def one(number: int) -> None:
            client = await plane.another_client()
            offsets.append((await plane.produce("orders", batch(f"{number}"), client=client)).base_offset)

        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(one, number)
                await plane.world.sleep_ms(10)
            for expected in ([1], [1, 2], [1, 2, 3]):
                room, tight.room = tight.room, trio.Event()
                tight.left = 1
                room.set()
                await plane.world.sleep_ms(100)
                assert offsets == expected

    run(test)


def test_a_path_inside_nested_log_directories_belongs_to_the_innermost_one() -> None:
    made = directories("/data", "/data/more", "/dat")
    assert made.of_path("/data/t-0/00.log") is made.all[0]
    assert made.of_path("/data/more/t-0/00.log") is made.of_path("/data/more") is made.all[1]
    assert made.of_path("/data/moreover/t-0") is made.all[0]
    assert made.of_path("/elsewhere") is made.of_path("") is None


def test_isr_proposals_and_directory_reports_are_sent_in_requests_of_bounded_size() -> None:
    """Very many queued proposals or reports are sent in several requests."""
    sizes: dict[str, list[int]] = {"alter": [], "assign": []}
    failed: list[int] = []

    async def main(world: World) -> None:
        class Controller:
            async def request(self, message: Any) -> Any:
                if isinstance(message, AlterPartitionRequest):
                    sizes["alter"].append(len(message.partitions))
                    return AlterPartitionResponse(error_code=ErrorCode.NETWORK_EXCEPTION)
                sizes["assign"].append(len(message.assignments))
                return AssignReplicasToDirsResponse()

        loop: Any = SimpleNamespace(clock=world.node("n").clock)
        controller = ControllerPort(1, lambda: 7, Controller().request)
        proposals, assignments = AlterPartitionQueue(loop, controller), DirectoryAssignments(loop, controller)
        for index in range(2_400):
            partition: Any = Hosted(index)
            proposals.propose(partition, partition.leader.isr.pending)
            assignments.report(partition, UUID(int=9))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(proposals.run)
            nursery.start_soon(assignments.run)
            await world.sleep_ms(20)
            failed.append(proposals.failed)
            nursery.cancel_scope.cancel()

    World(1).run(main)
    assert sizes == {"alter": [250], "assign": [1_000, 1_000, 400]}
    assert failed == [250]


class Hosted:
    """A partition whose leader always has an in-sync set to propose."""

    state = None
    is_removed = False

    def __init__(self, index: int) -> None:
        self.topic_id, self.index = UUID(int=1), index
        self.key = (self.topic_id, index)
        pending = IsrProposal(change=IsrChange.EXPAND, members=((1, 7), (2, 8)), leader_epoch=0, partition_epoch=0)
        self.leader = SimpleNamespace(isr=SimpleNamespace(pending=pending))
