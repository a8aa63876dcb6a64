"""Fetch against one node: byte limits, long polls, sessions, isolation levels, and offsets out of range."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import trio

from kraft.broker.api.fetch import handle_fetch as fetch_api
from kraft.broker.api.fetch import pending_fetch as fetching
from kraft.broker.api.fetch.sessions import FetchSession
from kraft.broker.serving import turns
from kraft.storage.append import AppendOrigin
from kraft.storage.producers.verification import NOT_VERIFYING
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import fetch as wire_fetch
from kraft.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from kraft.wire.records import read_header
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, encode_control
from kraft.wire.server import ServerConnection
from tests.stages.plane import EPOCH_MS, Plane, batch, error, run, three, values
from tests.stages.world_cluster import AskingClient

NONE = ErrorCode.NONE


@pytest.fixture(autouse=True, params=["at once", "in steps"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixture that runs every test of this module twice: with fetches handled in one call, and with fetches handled in
    steps of one partition each."""
    if request.param == "in steps":
        monkeypatch.setattr(fetch_api, "LONG_BYTES", 0)
        monkeypatch.setattr(fetch_api, "STEP_PARTITIONS", 1)
        monkeypatch.setattr(wire_fetch, "STEP_ROWS", 1)
        monkeypatch.setattr(turns, "TURN_NS_MAX", 0)


async def filled(plane: Plane, count: int = 10, name: str = "orders", size: int = 100) -> int:
    """Create a topic with `count` batches of one record each. Return the bytes of one batch."""
    await plane.create_topic(name)
    for number in range(count):
        await plane.produce(name, batch(f"{number}".ljust(size, ".")))
    return len(batch("0".ljust(size, ".")))


def told(response: FetchResponse) -> dict[tuple[Any, int], tuple[ErrorCode, int]]:
    """Return (topic, partition) → (error, number of record bytes) of a response."""
    return {
        (name or topic_id, row.partition): (error(row), sum(len(piece) for piece in row.records))
        for name, topic_id, rows in response.topics
        for row in rows
    }


@pytest.mark.parametrize("version", range(4, 18))
def test_records_are_fetched_in_every_fetch_version(version: int) -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, 3)
        result = await plane.fetch("orders", 1, version=version)
        assert [value[:1] for value in values(result.records)] == [b"1", b"2"]
        assert (result.high_watermark, result.last_stable_offset) == (3, 3)

    run(test)


def test_a_fetch_response_respects_its_byte_limits_but_has_at_least_one_batch() -> None:
    async def test(plane: Plane) -> None:
        size = await filled(plane)
        assert len(values((await plane.fetch("orders", 0, partition_bytes=3 * size)).records)) == 3
        assert len(values((await plane.fetch("orders", 0, partition_bytes=3 * size + 1)).records)) == 3
        assert len(values((await plane.fetch("orders", 0, partition_bytes=1)).records)) == 1
        assert len(values((await plane.fetch("orders", 0, max_bytes=1)).records)) == 1
        assert len(values((await plane.fetch("orders", 0, max_bytes=2 * size)).records)) == 2

    run(test)


def test_a_fetch_of_many_partitions_uses_more_of_its_connections_turn_than_a_fetch_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spent: list[int] = []
    monkeypatch.setattr(fetch_api, "LONG_BYTES", 1_000_000)

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        monkeypatch.setattr(ServerConnection, "spend", lambda _, cost: spent.append(cost))
        await plane.fetch_many([("orders", 0, 0)])
        assert not spent
        await plane.fetch_many([("orders", index, 0) for index in range(1_000)])
        assert spent
        assert spent[0] > 16, "more than a turn"

    run(test)


def test_the_max_bytes_of_a_fetch_are_filled_in_the_order_of_its_partitions() -> None:
    async def test(plane: Plane) -> None:
        size = await filled(plane, name="a")
        await filled(plane, name="b")
        both = [("a", 0, 0), ("b", 0, 0)]
        found = told(await plane.fetch_many(both, max_bytes=4 * size, partition_bytes=3 * size))
        assert found == {("a", 0): (NONE, 3 * size), ("b", 0): (NONE, size)}
        found = told(await plane.fetch_many(both, max_bytes=size, partition_bytes=3 * size))
        assert found == {("a", 0): (NONE, size), ("b", 0): (NONE, 0)}

    run(test)


def test_a_fetch_at_an_offset_outside_the_log_gets_offset_out_of_range() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, 3)
        assert error(await plane.fetch("orders", 3)) == NONE
        for offset in (4, -1, 2**40):
            result = await plane.fetch("orders", offset)
            assert (error(result), result.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert error(await plane.fetch("nowhere", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert error(await plane.fetch("orders", 0, 5)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert error(await plane.fetch("nowhere", 0, version=13)) == ErrorCode.UNKNOWN_TOPIC_ID

    run(test)


def test_a_fetch_with_an_older_or_newer_leader_epoch_is_rejected() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, 1)
        epoch = plane.partition("orders").leader_epoch
        assert error(await plane.fetch("orders", 0, leader_epoch=epoch)) == NONE
        assert error(await plane.fetch("orders", 0, leader_epoch=epoch + 1)) == ErrorCode.UNKNOWN_LEADER_EPOCH
        if epoch:
            assert error(await plane.fetch("orders", 0, leader_epoch=epoch - 1)) == ErrorCode.FENCED_LEADER_EPOCH

    run(test)


def test_a_fetch_at_the_log_end_waits_for_a_new_record_or_its_deadline() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, 1)
        began_ns = plane.world.now_ns
        result = await plane.fetch("orders", 1, max_wait_ms=700)
        assert result.records == ()
        assert 700 <= (plane.world.now_ns - began_ns) / 1e6 < 760
        async with trio.open_nursery() as nursery:
            results: list[Any] = []

            async def poll() -> None:
                client = await plane.another_client()
                results.append(await plane.fetch("orders", 1, max_wait_ms=10_000, client=client))

            nursery.start_soon(poll)
            await plane.world.sleep_ms(200)
            assert not results
            await plane.produce("orders", batch("news"))
            await plane.until(lambda: bool(results), timeout_ms=50)
        assert values(results[0].records) == [b"news"]

    run(test)


def test_a_fetch_waits_until_min_bytes_are_available() -> None:
    async def test(plane: Plane) -> None:
        size = await filled(plane, 1)
        results: list[Any] = []

        async def poll() -> None:
            client = await plane.another_client()
            results.append(await plane.fetch("orders", 0, max_wait_ms=10_000, min_bytes=3 * size, client=client))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            for number in range(2):
                await plane.world.sleep_ms(100)
                assert not results
                await plane.produce("orders", batch(f"{number}".ljust(100, ".")))
            await plane.until(lambda: bool(results), timeout_ms=50)
        assert len(values(results[0].records)) == 3

    run(test)


def test_deleting_the_topic_ends_a_parked_fetch() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, 1)
        results: list[Any] = []

        async def poll() -> None:
            client = await plane.another_client()
            results.append(await plane.fetch("orders", 1, max_wait_ms=60_000, client=client))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await plane.world.sleep_ms(100)
            row = messages.nested_class(messages.request_class(ApiKey.DELETE_TOPICS), "topics")
            client = await plane.client()
            answer = await client.ask(
                ApiKey.DELETE_TOPICS, 6, topics=[messages.build(row, name="orders")], timeout=5000
            )
            assert answer.responses[0].error_code == 0
            await plane.until(lambda: bool(results), timeout_ms=200)
        assert error(results[0]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(test)


def test_fetches_read_all_segments_of_a_log_one_after_the_other() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", internal_segment_bytes="500")
        for number in range(30):
            await plane.produce("orders", batch(f"{number}".ljust(100, ".")))
        assert len(plane.partition("orders").log.segments) > 5
        offset, found = 0, []
        while offset < 30:
            got = values((await plane.fetch("orders", offset)).records)
            found += got
            offset += len(got)
        assert [int(value.rstrip(b".")) for value in found] == list(range(30))

    run(test)


# sessions


class Session:
    """A consumer's incremental session, as a client keeps it."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.session_id = 0
        self.epoch = 0

    async def fetch(self, *wishes: tuple[str, int, int], forgotten: Any = (), **options: Any) -> FetchResponse:
        response = await self.plane.fetch_many(
            wishes, session_id=self.session_id, session_epoch=self.epoch, forgotten=forgotten, **options
        )
        self.session_id = response.session_id
        self.epoch += 1
        return response


def test_an_incremental_fetch_returns_only_the_partitions_that_changed() -> None:
    async def test(plane: Plane) -> None:
        size = await filled(plane, 2, name="a")
        await filled(plane, 0, name="b")
        session = Session(plane)
        first = await session.fetch(("a", 0, 0), ("b", 0, 0))
        assert session.session_id > 0
        assert told(first) == {("a", 0): (NONE, 2 * size), ("b", 0): (NONE, 0)}
        assert told(await session.fetch(("a", 0, 2))) == {}
        await plane.produce("b", batch("0".ljust(100, ".")))
        assert told(await session.fetch()) == {("b", 0): (NONE, size)}
        assert told(await session.fetch()) == {("b", 0): (NONE, size)}, "it was not consumed: it comes again"
        assert told(await session.fetch(("b", 0, 1))) == {}
        assert told(await session.fetch(("a", 0, 0))) == {("a", 0): (NONE, 2 * size)}

    run(test)


def test_session_partitions_without_room_in_a_fetch_response_come_first_in_the_next() -> None:
    async def test(plane: Plane) -> None:
        names = ("a", "b", "c")
        for name in names:
            await filled(plane, name=name)
        session, offsets, order = Session(plane), dict.fromkeys(names, 0), []
        wishes = [(name, 0, 0) for name in names]
        for _ in range(7):
            found = told(await session.fetch(*wishes, max_bytes=1))
            served = [name for (name, _), (_, size) in found.items() if size]
            for name in served:
                offsets[name] += 1
            order += served
            wishes = [(name, 0, offsets[name]) for name in served]
        assert order[1:] == [*names, *names], "the first answer is in the order of the full request"

    run(test)


def test_a_parked_incremental_fetch_is_woken_by_a_session_partition_that_it_did_not_name() -> None:
    async def test(plane: Plane) -> None:
        size = await filled(plane, 0, name="a")
        await filled(plane, 0, name="b")
        session = Session(plane)
        await session.fetch(("a", 0, 0), ("b", 0, 0))
        results: list[FetchResponse] = []

        async def poll() -> None:
            results.append(await session.fetch(max_wait_ms=10_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await plane.world.sleep_ms(50)
            await plane.produce("b", batch("0".ljust(100, ".")), client=await plane.another_client())
            await plane.until(lambda: bool(results), timeout_ms=50)
        assert told(results[0]) == {("b", 0): (NONE, size)}

    run(test)


def test_forgotten_session_partitions_are_not_returned_and_an_empty_session_is_closed() -> None:
    async def test(plane: Plane) -> None:
        size = await filled(plane, 1, name="a")
        await filled(plane, 1, name="b")
        session = Session(plane)
        await session.fetch(("a", 0, 0), ("b", 0, 0))
        assert told(await session.fetch(forgotten=[("a", None, [0])])) == {("b", 0): (NONE, size)}
        known = session.session_id
        emptied = await session.fetch(forgotten=[("b", None, [0])])
        assert (emptied.session_id, emptied.topics) == (0, [])
        gone = await plane.fetch_many([], session_id=known, session_epoch=3)
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(test)


def test_closing_a_fetch_session_answers_its_parked_fetch_and_stops_watching_partitions() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, 0, name="a")
        session = Session(plane)
        await session.fetch(("a", 0, 0))
        known, results = session.session_id, []

        async def poll() -> None:
            results.append(await session.fetch(max_wait_ms=10_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await plane.world.sleep_ms(50)
            assert plane.partition("a").watchers
            other = await plane.another_client()
            await plane.fetch_many([], session_id=known, session_epoch=-1, client=other)
            await plane.until(lambda: bool(results), timeout_ms=50)
        assert told(results[0]) == {}
        await plane.produce("a", batch("0"))
        assert not plane.partition("a").watchers

    run(test)


def test_a_fetch_with_a_wrong_session_id_or_session_epoch_is_rejected() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, 1, name="a")
        session = Session(plane)
        await session.fetch(("a", 0, 0))
        wrong = await plane.fetch_many([], session_id=session.session_id, session_epoch=7)
        assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        unknown = await plane.fetch_many([], session_id=session.session_id + 1, session_epoch=1)
        assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        mixed = await plane.fetch_many([], session_id=session.session_id, session_epoch=1, version=13)
        assert mixed.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        assert (await session.fetch()).error_code == 0
        closing = await plane.fetch_many([("a", 0, 0)], session_id=session.session_id, session_epoch=-1)
        assert (closing.error_code, closing.session_id) == (0, 0)
        assert (await session.fetch()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(test)


def test_an_error_of_a_sessions_partition_is_reported_in_every_response_until_it_ends() -> None:
    async def test(plane: Plane) -> None:
        session = Session(plane)
        await session.fetch(("later", 0, 0))
        for _ in range(2):
            found = told(await session.fetch(max_wait_ms=500))
            assert found == {("later", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)}
        await filled(plane, 0, name="later")
        assert told(await session.fetch()) == {("later", 0): (NONE, 0)}
        assert told(await session.fetch()) == {}

    run(test)


def test_a_fetch_session_with_topic_names_finds_a_deleted_and_recreated_topic() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("a")
        await plane.produce("a", batch("old", "older"))
        session = Session(plane)
        await session.fetch(("a", 0, 2))
        before = plane.partition("a")
        row = messages.nested_class(messages.request_class(ApiKey.DELETE_TOPICS), "topics")
        client = await plane.client()
        await client.ask(ApiKey.DELETE_TOPICS, 6, topics=[messages.build(row, name="a")], timeout=5000)
        assert set(told(await session.fetch())) == {("a", 0)}, "that it is gone is told"
        await plane.create_topic("a")
        await plane.until(lambda: plane.partition("a") is not before)
        await plane.produce("a", batch("new"))
        response = await session.fetch(("a", 0, 0))
        assert values(response.topics[0][2][0].records) == [b"new"]

    run(test)


def test_a_fetch_that_finds_no_free_session_slot_is_served_without_a_session() -> None:
    async def test(plane: Plane) -> None:
        size = await filled(plane, 1, name="a")
        first, second = Session(plane), Session(plane)
        await first.fetch(("a", 0, 0))
        found = await second.fetch(("a", 0, 0))
        assert (first.session_id > 0, second.session_id) == (True, 0)
        assert told(found) == {("a", 0): (NONE, size)}

    run(test, combined=1, max_incremental_fetch_session_cache_slots="1")


# read_committed


def write_marker(plane: Plane, name: str, producer_id: int, *, commit: bool, epoch: int = 0) -> None:
    """Write the marker that a transaction coordinator would write at the end of a transaction."""
    partition = plane.partition(name)
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    data = encode_control(
        ControlRecord(type=kind, coordinator_epoch=1),
        timestamp_ms=EPOCH_MS,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    partition.append_as_leader(memoryview(data), read_header(data), EPOCH_MS, AppendOrigin.COORDINATOR)


def write_in_transaction(plane: Plane, name: str, producer_id: int, sequence: int, text: str) -> None:
    partition = plane.partition(name)
    data = batch(text, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    partition.append_as_leader(memoryview(data), read_header(data), EPOCH_MS, verification=NOT_VERIFYING)


def test_a_read_committed_fetch_stops_at_the_first_open_transaction() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, 1)
        write_in_transaction(plane, "orders", 7, 0, "maybe")
        await plane.produce("orders", batch("plain"))
        committed = await plane.fetch("orders", 0, isolation_level=1)
        assert len(values(committed.records)) == 1
        assert (committed.last_stable_offset, committed.high_watermark) == (1, 3)
        assert committed.aborted_transactions == []
        everything = await plane.fetch("orders", 0)
        assert len(values(everything.records)) == 3
        assert everything.aborted_transactions is None
        write_marker(plane, "orders", 7, commit=True)
        committed = await plane.fetch("orders", 0, isolation_level=1)
        assert committed.last_stable_offset == 4
        assert [value[:5] for value in values(committed.records)][1:] == [b"maybe", b"plain"]

    run(test)


def test_a_fetch_lists_aborted_transactions_whose_marker_is_several_segments_later() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", internal_segment_bytes="400")
        await plane.produce("orders", batch("first"))
        write_in_transaction(plane, "orders", 7, 0, "gone")
        for number in range(20):
            await plane.produce("orders", batch(f"{number}".ljust(100, ".")))
        write_in_transaction(plane, "orders", 8, 0, "kept")
        write_marker(plane, "orders", 7, commit=False)
        write_marker(plane, "orders", 8, commit=True)
        assert len(plane.partition("orders").log.segments) > 3
        result = await plane.fetch("orders", 0, isolation_level=1, partition_bytes=200)
        assert list(result.aborted_transactions) == [(7, 1)]
        late = await plane.fetch("orders", 24, isolation_level=1)
        assert list(late.aborted_transactions) == []

    run(test)


def test_a_follower_lists_aborted_transactions_to_read_committed_consumers() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1)
        await plane.produce("orders", batch("first"))
        write_in_transaction(plane, "orders", 7, 0, "gone")
        write_marker(plane, "orders", 7, commit=False)
        write_in_transaction(plane, "orders", 8, 0, "open")
        await plane.produce("orders", batch("plain"))
        await plane.until(lambda: plane.partition("orders", 2).high_watermark == 5)
        result = await plane.fetch("orders", 0, broker_id=2, isolation_level=1)
        assert values(result.records) == [b"first", b"gone"]
        assert list(result.aborted_transactions) == [(7, 1)]
        assert result.last_stable_offset == 3

    three(test)


def test_a_read_committed_fetch_waits_until_the_open_transaction_ends() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, 1)
        write_in_transaction(plane, "orders", 7, 0, "maybe")
        results: list[Any] = []

        async def poll() -> None:
            client = await plane.another_client()
            results.append(await plane.fetch("orders", 1, isolation_level=1, max_wait_ms=10_000, client=client))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(poll)
            await plane.world.sleep_ms(100)
            await plane.produce("orders", batch("plain"))
            await plane.world.sleep_ms(100)
            assert not results
            write_marker(plane, "orders", 7, commit=True)
            plane.cluster.node(1).broker.broker.replicas.loop.request_pass()
            await plane.until(lambda: bool(results), timeout_ms=50)
        assert values(results[0].records) == [b"maybe", b"plain"]

    run(test)


def test_a_fetch_reads_bytes_that_are_not_in_memory() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", internal_segment_bytes="2000")
        for number in range(60):
            await plane.produce("orders", batch(f"{number}".ljust(100, ".")))
        plane.world.power_off("b1")
        plane.world.restart("b1")
        await plane.world.sleep_ms(20)
        await plane.cluster.wait_ready()
        client = await plane.another_client()
        await plane.until(lambda: plane.partition("orders").log is not None)
        end = plane.partition("orders").log.log_end_offset
        offset, found = 0, []
        while offset < end:
            got = values((await plane.fetch("orders", offset, client=client, max_wait_ms=100)).records)
            found += got
            offset += len(got)
        assert [int(value.rstrip(b".")) for value in found] == list(range(end))

    run(test)


@pytest.mark.parametrize(("replica_id", "known"), [(2, -1), (-1, 7)])
def test_a_follower_that_names_a_partition_again_gets_its_high_watermark_again(replica_id: int, known: int) -> None:
    """The follower may have dropped the response with the high watermark, because it has two requests in flight."""
    session = FetchSession(replica_id, uses_topic_ids=True, now_ms=0)
    entry = session.partition("a", 0)
    entry.known_high_watermark = 7
    entry.set_request(7, 1000, 0, 0, 0)
    assert entry.known_high_watermark == known


async def _ask_long(plane: Plane, client: AskingClient, **options: Any) -> FetchResponse:
    """Request more partitions than one step checks; most of them do not exist."""
    return await plane.fetch_many([("orders", index, 0) for index in range(2_000)], client=client, **options)


def test_other_requests_are_served_between_the_steps_of_a_fetch_of_very_many_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "TURN_NS_MAX", 0)

    async def test(plane: Plane) -> None:
        await filled(plane, 1)
        answered: list[str] = []
        async with trio.open_nursery() as nursery:

            async def ask_long(name: str) -> None:
                response = await _ask_long(plane, await plane.another_client())
                assert len(told(response)) == 2_000
                answered.append(name)

            async def ask_again_and_again() -> None:
                client = await plane.another_client()
                while len(answered) < 20:
                    await plane.fetch("orders", 0, client=client)
                    answered.append("short")

            nursery.start_soon(ask_long, "long")
            nursery.start_soon(ask_long, "long")
            nursery.start_soon(ask_again_and_again)
        assert answered.count("short") >= 18
        assert answered.index("short") < answered.index("long")

    run(test)


def test_a_long_fetch_whose_client_disconnects_before_its_last_step_leaves_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "TURN_NS_MAX", 0)
    wanted: list[int] = []
    request_partitions = fetch_api._request_partitions

    async def test(plane: Plane) -> None:
        await filled(plane, 1)
        client = await plane.another_client()
        broker = plane.cluster.node(1).broker
        assert broker is not None

        def want_and_cut(kept: FetchSession, *arguments: Any) -> None:
            wanted.append(len(arguments[-1]))
            for connection in list(broker.broker.dispatcher._connections.values()):
                connection.close("the peer has gone")
            request_partitions(kept, *arguments)

        monkeypatch.setattr(fetch_api, "_request_partitions", want_and_cut)
        with pytest.raises(ConnectionError):
            await _ask_long(plane, client, max_wait_ms=60_000)
        await plane.world.sleep_ms(1_000)
        assert sum(wanted) < 2_000
        assert not plane.partition("orders").watchers
        assert broker.broker.gates.memory.used_bytes == 0

    run(test)


@pytest.mark.parametrize("turns_before", range(8))
def test_a_record_appended_during_the_first_steps_of_a_long_fetch_is_returned_without_waiting(
    turns_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "TURN_NS_MAX", 0)

    async def test(plane: Plane) -> None:
        await plane.create_topic("many", partitions=500)
        other, client = await plane.another_client(), await plane.another_client()
        began_ns = plane.world.now_ns

        async def produce() -> None:
            for _ in range(turns_before):
                await trio.lowlevel.checkpoint()
            await plane.produce("many", batch("news"), 3, client=other)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            wishes = [("many", index, 0) for index in range(500)]
            response = await plane.fetch_many(wishes, client=client, max_wait_ms=10_000)
        assert told(response)["many", 3][1] > 0
        assert plane.world.now_ns - began_ns < 5_000_000_000

    run(test)


def test_a_long_fetch_that_is_woken_repeatedly_does_not_block_other_long_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "TURN_NS_MAX", 0)
    monkeypatch.setattr(fetch_api, "LONG_BYTES", 1_000)
    reads: list[None] = []
    read = fetching.FetchOperation._read

    def counted(operation: fetching.FetchOperation) -> Any:
        if operation.is_long:
            reads.append(None)
        return read(operation)

    monkeypatch.setattr(fetching.FetchOperation, "_read", counted)

    async def test(plane: Plane) -> None:
        await plane.create_topic("many", partitions=100)
        fetcher, asker = await plane.another_client(), await plane.another_client()
        is_over, is_answered = trio.Event(), trio.Event()

        async def fetch() -> None:
            wishes = [("many", index, 0) for index in range(100)]
            await plane.fetch_many(wishes, client=fetcher, max_wait_ms=1_000, min_bytes=2**28)
            is_over.set()

        async def produce(client: AskingClient) -> None:
            while not is_answered.is_set():
                await plane.produce("many", batch("one"), client=client)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            for _ in range(3):
                nursery.start_soon(produce, await plane.another_client())
            await plane.until(lambda: len(reads) > 5)
            before = len(reads)
            topic = messages.nested_class(messages.request_class(ApiKey.METADATA), "topics")
            names = [messages.build(topic, name=f"a topic {number}") for number in range(300)]
            await asker.ask(ApiKey.METADATA, 4, topics=names)
            is_answered.set()
            assert not is_over.is_set()
            assert len(reads) - before < 20

    run(test)


def test_a_long_fetch_whose_client_disconnects_while_it_is_parked_leaves_no_session() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("many", partitions=500)
        client = await plane.another_client()
        answers: list[Any] = []
        request = wire_fetch.encode_fetch_request(
            12,
            FetchRequest(
                max_wait_ms=60_000,
                min_bytes=1,
                topics=[("many", None, [FetchPartition(index, -1, 0, -1, -1, 1000) for index in range(500)])],
                max_bytes=1000,
            ),
        )
        client.connection.send(ApiKey.FETCH, 12, [request], answers.append)
        await plane.until(lambda: bool(plane.partition("many", index=499).watchers))
        await plane.world.sleep_ms(100)
        client.connection.close("enough")
        await plane.world.sleep_ms(100)
        await plane.produce("many", batch("news"), 7)
        await plane.world.sleep_ms(100)
        assert answers == [None]
        assert not any(plane.partition("many", index=index).watchers for index in range(500))

    run(test)


def test_a_long_fetch_that_does_not_parse_closes_only_its_own_connection() -> None:
    async def test(plane: Plane) -> None:
        await filled(plane, 1)
        client = await plane.another_client()
        with pytest.raises(ConnectionError):
            await client.ask_bytes(ApiKey.FETCH, 12, b"\x7f" * 20_000)
        assert error(await plane.fetch("orders", 0)) == NONE

    run(test)


@pytest.mark.parametrize("max_wait_ms", [0, 10], ids=["answered at once", "after a wait"])
def test_a_fetch_without_a_session_leaves_no_reference_cycle(max_wait_ms: int) -> None:
    def alive() -> int:
        return sum(type(one) is fetching.CachedPartition for one in gc.get_objects())

    async def test(plane: Plane) -> None:
        await filled(plane, 1)
        await plane.fetch("orders", 1, max_wait_ms=max_wait_ms, version=4)
        gc.collect()
        before = alive()
        gc.disable()
        try:
            for _ in range(5):
                await plane.fetch("orders", 1, max_wait_ms=max_wait_ms, version=4)
            assert alive() <= before
        finally:
            gc.enable()

    run(test)
