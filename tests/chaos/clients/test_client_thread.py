from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from kraft.sim.chaos.clients.client_thread import ClientThread

NAME = "client under test"


def is_running() -> bool:
    return any(thread.name == NAME for thread in threading.enumerate())


def left() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


async def test_client_thread_runs_calls_in_order_and_returns_their_results() -> None:
    client = ClientThread(NAME)
    assert await client.call(lambda: threading.current_thread().name) == NAME
    with pytest.raises(ZeroDivisionError):
        await client.call(lambda: 1 // 0)
    assert await client.call(lambda: 3) == 3
    [thread] = left()
    assert await client.aclose(lambda: None)
    await trio.to_thread.run_sync(thread.join)


async def test_a_cancelled_call_continues_in_its_thread_and_the_client_is_closed_after_it() -> None:
    client, begun, done = ClientThread(NAME), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        client.is_closing.wait()
        done.append("call")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.call, work)
        await trio.to_thread.run_sync(begun.wait)
        nursery.cancel_scope.cancel()
    [thread] = left()
    assert await client.aclose(lambda: done.append("close"))
    assert done == ["call", "close"]
    await trio.to_thread.run_sync(thread.join)


async def test_a_cancelled_close_waits_until_the_client_is_closed() -> None:
    client, done = ClientThread(NAME), list[str]()
    with trio.CancelScope() as scope:
        scope.cancel()
        await client.aclose(lambda: done.append("close"))
    assert done == ["close"]


async def test_a_close_times_out_on_a_blocked_call_and_the_thread_ends_with_that_call() -> None:
    client, release, closed = ClientThread(NAME), threading.Event(), threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.call, release.wait)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    [thread] = left()
    assert not await client.aclose(closed.set, timeout_s=0)
    assert not closed.is_set()
    release.set()
    await trio.to_thread.run_sync(thread.join)
    assert closed.is_set()


def test_a_client_thread_that_outlives_its_trio_run_ends_silently() -> None:
    release, threads = threading.Event(), list[threading.Thread]()

    async def main() -> None:
        client = ClientThread(NAME)
        threads.extend(left())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call, release.wait)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await client.aclose(lambda: None, timeout_s=0)

    trio.run(main)
    release.set()
    threads[0].join()
    assert not is_running()
