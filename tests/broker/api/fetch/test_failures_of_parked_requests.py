"""An error after a parked request continues: it closes only the request's connection, and the node keeps running."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from kraft.broker.api.fetch import pending_fetch as fetching
from kraft.broker.api.fetch.partition_reading import NotInMemory
from kraft.broker.api.produce import pending_produce as producing
from tests.stages.plane import Plane, batch, error, run, values
from tests.stages.world_cluster import AskingClient


def fail(*_arguments: Any, **_options: Any) -> Any:
    raise KeyError("a bug")


def miss(*_arguments: Any, **_options: Any) -> Any:
    raise NotInMemory(())


async def assert_it_alone_ended(client: AskingClient, plane: Plane) -> None:
    """Check that only the connection of the failed request is closed, and that other connections are served."""
    await plane.until(lambda: client.connection.is_closed)
    await plane.world.sleep_ms(1_000)
    assert not error(await plane.produce("orders", batch("after")))
    assert values((await plane.fetch("orders", 0)).records)[-1] == b"after"


@pytest.mark.parametrize("ends", [False, True], ids=["woken", "expired"])
def test_an_error_in_a_parked_fetch_closes_only_the_connection_of_that_fetch(
    ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        client = await plane.another_client()

        async def poll() -> None:
            with pytest.raises(ConnectionError):
                await plane.fetch("orders", 0, client=client, max_wait_ms=500)

        with capture_logs() as logs, monkeypatch.context() as patched:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(poll)
                await plane.world.sleep_ms(100)
                patched.setattr(fetching, "read_partition", fail)
                if not ends:
                    assert not error(await plane.produce("orders", batch("before")))
                await plane.until(lambda: client.connection.is_closed)
            if ends:
                assert not error(await plane.produce("orders", batch("before")))
            await plane.world.sleep_ms(1_000)
        assert [one["api"] for one in logs if one["event"] == "request failed"] == ["Fetch"]
        await assert_it_alone_ended(client, plane)

    run(test)


def test_an_error_while_reading_bytes_into_memory_closes_only_the_connection_of_that_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        assert not error(await plane.produce("orders", batch("before")))
        client = await plane.another_client()
        with capture_logs() as logs, monkeypatch.context() as patched:
            patched.setattr(fetching, "read_partition", miss)
            patched.setattr(fetching, "read_through", fail)
            with pytest.raises(ConnectionError):
                await plane.fetch("orders", 0, client=client, max_wait_ms=500)
        assert [one["api"] for one in logs if one["event"] == "request failed"] == ["Fetch"]
        await assert_it_alone_ended(client, plane)

    run(test)


def test_an_error_while_expiring_a_produce_closes_only_the_connection_of_that_produce(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders", leader=1, min_insync_replicas="1")
        client = await plane.another_client()
        plane.world.pause("b2")
        with capture_logs() as logs, monkeypatch.context() as patched:
            patched.setattr(producing, "encode_produce_response", fail)
            with pytest.raises(ConnectionError):
                await plane.produce("orders", batch("before"), client=client, timeout_ms=50)
        assert [one["api"] for one in logs if one["event"] == "request failed"] == ["Produce"]
        plane.world.resume("b2")
        await assert_it_alone_ended(client, plane)

    run(test, controllers=1, brokers=2)
