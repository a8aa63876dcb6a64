"""Fetches of a log that is being opened or truncated: they wait for the log for a limited time, and do not treat the
wait as damage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kraft.broker.api.fetch.pending_fetch import LOG_WAIT_MS_MIN
from kraft.broker.partition.log_waits import wait_open
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchResponse
from tests.broker.logs.test_checkpoints import delete_orders
from tests.stages.plane import Plane, batch, error, run, three, values
from tests.stages.replicas import new_leader, produce_numbers
from tests.stages.world_cluster import AskingClient

SLOW_OPENING = {"combined": 1, "num_recovery_threads_per_data_dir": "1"}
PARTITIONS = 40


async def restarted_with_logs_still_closed(plane: Plane) -> AskingClient:
    """Stop the broker cleanly, and start it on a disk so slow that its logs take seconds to open. Return a client of
    it."""
    await plane.create_topic("orders", partitions=PARTITIONS)
    for index in range(PARTITIONS):
        assert not error(await plane.produce("orders", batch(f"{index}"), index))
    await plane.stop(1)
    plane.cluster.start(1)
    await plane.until(lambda: "b1" in plane.cluster.started and plane.cluster.started["b1"].node is not None)
    plane.world.slow_disk("b1", 400)
    await plane.cluster.wait_ready(60_000)
    client = await plane.another_client()
    assert closed(plane) > PARTITIONS // 2
    return client


def closed(plane: Plane) -> int:
    return sum(plane.partition("orders", index=index).log is None for index in range(PARTITIONS))


async def fetch_all(plane: Plane, client: AskingClient, *, max_wait_ms: int) -> tuple[dict[int, Any], float]:
    """Return the results by partition, and the duration of the fetch in ms."""
    began_ns = plane.world.now_ns
    requested = [("orders", index, 0) for index in range(PARTITIONS)]
    answer = await plane.fetch_many(requested, client=client, max_wait_ms=max_wait_ms)
    assert answer.error_code == 0
    rows = {row.partition: row for _, _, results in answer.topics for row in results}
    assert len(rows) == PARTITIONS
    return rows, (plane.world.now_ns - began_ns) / 1e6


def test_a_fetch_waits_for_logs_being_opened_no_longer_than_for_records() -> None:
    async def test(plane: Plane) -> None:
        client = await restarted_with_logs_still_closed(plane)
        for max_wait_ms in (1_000, 0):
            rows, took_ms = await fetch_all(plane, client, max_wait_ms=max_wait_ms)
            assert 0 <= took_ms - max(max_wait_ms, LOG_WAIT_MS_MIN) < 500, "and a look at what is open by then"
            found = {ErrorCode(row.error_code) for row in rows.values()}
            assert found == {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
            opened = [index for index, row in rows.items() if not row.error_code]
            assert all(values(rows[index].records) == [b"%d" % index] for index in opened)

    run(test, **SLOW_OPENING)


def test_a_fetch_is_answered_as_soon_as_its_logs_are_open() -> None:
    async def test(plane: Plane) -> None:
        client = await restarted_with_logs_still_closed(plane)
        rows, took_ms = await fetch_all(plane, client, max_wait_ms=600_000)
        assert took_ms < 60_000
        assert all(values(row.records) == [b"%d" % index] for index, row in rows.items())

    run(test, **SLOW_OPENING)


async def truncate_broker_1(plane: Plane) -> None:
    """Let broker 1 lead without followers for a while. Then make it truncate its log, on a slow disk, to that of the
    new leader."""
    await plane.create_topic("orders", leader=1)
    await produce_numbers(plane, 5)
    for other in ("b2", "b3", "c101"):
        plane.world.partition("b1", other)
    for number in range(7):
        await plane.produce("orders", batch(f"lost {number}"), acks=1)
    await new_leader(plane, without=1)
    plane.world.slow_disk("b1", 1_000)
    plane.world.heal_all()
    await plane.until(lambda: plane.partition("orders").is_truncating)


def test_a_fetch_reads_a_log_after_its_truncation_is_done() -> None:
    async def test(plane: Plane) -> None:
        client = await plane.another_client(1)
        await truncate_broker_1(plane)
        partition = plane.partition("orders")
        answer = await plane.fetch("orders", 0, client=client, max_wait_ms=60_000)
        assert not partition.is_truncating
        assert values(answer.records) == [b"%d" % number for number in range(5)]
        assert not partition.is_offline

    three(test)


def test_a_topic_can_be_deleted_while_its_log_is_being_truncated() -> None:
    async def test(plane: Plane) -> None:
        await truncate_broker_1(plane)
        await delete_orders(plane, 2)
        await plane.until(lambda: not plane.hosts(1, "orders"))
        await plane.world.sleep_ms(5_000)
        assert plane.is_up(1)
        names = plane.cluster.node(1).broker.broker.seam.disk.list("/data")
        assert not [name for name in names if name.startswith("orders-") and not name.endswith("-delete")]

    three(test)


async def first_request_ends(plane: Plane, then: Callable[[], None]) -> list[bytes | None]:
    """Send two incremental requests of a session on two connections, for offset 0 and then 1. Check that the first
    request waits until the second arrives, and is then answered empty. Return the response to the second request after
    `then`."""
    first, second = await plane.another_client(), await plane.another_client()
    made = await plane.fetch_many([("orders", 0, 2)], client=first, session_epoch=0)
    then()
    responses: list[FetchResponse] = []

    async def ask(client: AskingClient, epoch: int) -> None:
        options = {"session_id": made.session_id, "session_epoch": epoch, "max_wait_ms": 5_000}
        responses.append(await plane.fetch_many([("orders", 0, epoch - 1)], client=client, **options))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, first, 1)
        await plane.world.sleep_ms(100)
        assert not responses
        nursery.start_soon(ask, second, 2)
        await plane.world.sleep_ms(100)
        assert [answer.topics for answer in responses] == [[]]
        partition = plane.partition("orders")
        if partition.is_truncating:
            partition.truncation_done()
            plane.cluster.node(1).broker.broker.replicas.loop.request_pass()
    return values(responses[1].topics[0][2][0].records)


def test_the_next_request_of_a_fetch_session_ends_an_earlier_request_that_waits_for_a_log() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        await produce_numbers(plane, 2)

        def begin_to_cut() -> None:
            partition = plane.partition("orders")
            assert partition.state is not None
            partition.follow(partition.state)  # as if another broker led, so that this broker must truncate
            partition.truncation_begun()

        assert await first_request_ends(plane, begin_to_cut) == [b"1"]

    run(test)


def test_the_next_request_of_a_fetch_session_ends_an_earlier_request_that_waits_for_a_disk_read() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        await produce_numbers(plane, 2)
        await plane.stop(1)
        plane.cluster.start(1)  # the log was opened, and then its file was closed
        await plane.cluster.wait_ready()
        await wait_open(plane.partition("orders"))
        assert await first_request_ends(plane, lambda: plane.world.slow_disk("b1", 60_000)) == [b"1"]

    run(test)
