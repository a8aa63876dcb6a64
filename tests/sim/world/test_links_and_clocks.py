"""Tests of network partitions, dropped connections, partial reads, and time that jumps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from kraft.seam import Address, Binding, CloseReason, DialFailed, DialOutcome, LinkQuality, Peer
from kraft.sim.world import World, WorldOptions
from tests.stages.recorder import Recorder, echo

LISTENER = "PLAINTEXT"


class Pair:
    """A client and a server with one connection; the server echoes what it receives."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.server = world.node("server")
        self.client = world.node("client")
        self.accepted: list[Recorder] = []
        self.server.network.serve(Binding(LISTENER, Address("", 9092)), self._make)

    def _make(self, transport: object) -> Recorder:
        connection = Recorder(transport)  # type: ignore[arg-type]
        connection.on_heard = echo
        self.accepted.append(connection)
        return connection

    async def dial(self, *, timeout_ms: int = 1000) -> Recorder:
        peer = Peer(None, LISTENER, Address("server", 9092))
        return await self.client.network.dial(peer, Recorder, timeout_ms=timeout_ms)


def run(body: Callable[[Pair], Awaitable[None]], *, seeds: int = 5, options: WorldOptions | None = None) -> None:
    async def main(world: World) -> None:
        await body(Pair(world))

    for seed in range(seeds):
        World(seed, options).run(main)


def test_a_partition_holds_bytes_and_delivers_them_in_order_after_it_heals() -> None:
    async def body(pair: Pair) -> None:
        near = await pair.dial()
        pair.world.partition("client", "server")
        for number in range(100):
            near.say(b"%02d" % number)
            await pair.world.sleep_ms(100)
        assert not near.heard
        assert not near.reasons
        with pytest.raises(DialFailed) as failure:
            await pair.dial()
        assert failure.value.outcome is DialOutcome.TIMED_OUT
        pair.world.heal("server", "client")
        assert await near.wait_heard(200) == b"".join(b"%02d" % number for number in range(100))
        await pair.dial()

    run(body)


def test_a_one_way_partition_does_not_affect_the_other_direction() -> None:
    async def body(pair: Pair) -> None:
        near = await pair.dial()
        pair.world.partition_one_way("server", "client")
        near.say(b"heard, not answered")
        await pair.accepted[0].wait_heard(19)
        await pair.world.sleep_ms(1000)
        assert not near.heard
        pair.world.heal_all()
        await near.wait_heard(19)

    run(body)


def test_a_delayed_link_delivers_held_pieces_soon_once_restored() -> None:
    async def body(pair: Pair) -> None:
        near = await pair.dial()
        pair.world.set_link_quality("client", "server", LinkQuality(latency_ms=500, jitter_ms=50))
        begun_ns = pair.world.now_ns
        near.say(b"late")
        await near.wait_heard(4)
        assert 500_000_000 <= pair.world.now_ns - begun_ns < 600_000_000
        begun_ns = pair.world.now_ns
        await pair.dial()
        assert pair.world.now_ns - begun_ns >= 500_000_000
        near.say(b"soon")
        await pair.world.sleep_ms(100)
        pair.world.set_link_quality("client", "server", None)
        near.say(b"next")
        await pair.world.sleep_ms(100)
        assert near.heard == b"latesoonnext"

    run(body, options=WorldOptions(slow_delay_one_in=0))


def test_a_slow_link_delays_each_byte() -> None:
    async def body(pair: Pair) -> None:
        near = await pair.dial()
        pair.world.set_link_quality("client", "server", LinkQuality(bytes_per_second=1_000))
        near.say(bytes(2_000))
        await pair.world.sleep_ms(1_900)
        assert not near.heard
        await pair.world.sleep_ms(200)
        assert near.heard == bytes(2_000)
        near.say(bytes(10_000))
        await pair.world.sleep_ms(1)
        pair.world.heal_all()
        await pair.world.sleep_ms(100)
        assert near.heard == bytes(12_000)

    run(body)


def test_a_link_with_a_byte_limit_ends_each_connection_mid_stream() -> None:
    async def body(pair: Pair) -> None:
        old = await pair.dial()
        old.say(b"?")
        await old.wait_heard(1)
        pair.world.set_link_quality("client", "server", LinkQuality(bytes_max=10))
        for near, heard in ((old, 10 + 1), (await pair.dial(), 10)):
            near.say(bytes(7))
            await pair.world.sleep_ms(100)
            near.say(bytes(7))
            far = pair.accepted[-1 if near is not old else 0]
            assert await far.wait_closed() is CloseReason.PEER
            assert len(far.heard) == heard
            assert await near.wait_closed() is CloseReason.PEER
        pair.world.heal_all()
        near = await pair.dial()
        near.say(bytes(20))
        await near.wait_heard(20)

    run(body, options=WorldOptions(partial_read_one_in=0, tiny_read_one_in=0))


def test_restoring_a_link_does_not_end_a_stall() -> None:
    async def body(pair: Pair) -> None:
        near = await pair.dial()
        pair.world.set_link_quality("client", "server", LinkQuality(latency_ms=5_000))
        pair.world.stall_links("client", "server", 1_000, one_in=1)
        near.say(b"?")
        pair.world.set_link_quality("client", "server", None)
        await pair.world.sleep_ms(900)
        assert not near.heard
        await pair.world.sleep_ms(200)
        assert near.heard

    run(body)


def test_an_isolated_node_reaches_no_other_node() -> None:
    async def body(pair: Pair) -> None:
        pair.world.isolate("server")
        with pytest.raises(DialFailed):
            await pair.dial()
        pair.world.heal_all()
        await pair.dial()

    run(body)


def test_the_death_of_a_node_across_a_partition_is_noticed_after_the_partition_heals() -> None:
    async def body(pair: Pair) -> None:
        near = await pair.dial()
        pair.world.partition("client", "server")
        pair.world.kill("server")
        await pair.world.sleep_ms(10_000)
        assert not near.reasons
        pair.world.heal_all()
        await near.wait_closed()

    run(body)


def test_dropped_connections_are_reset_at_both_ends_and_may_lose_data_in_flight() -> None:
    heard: set[int] = set()

    async def body(pair: Pair) -> None:
        near = await pair.dial()
        for _ in range(8):
            near.say(b"x")
            await pair.world.sleep_ms(0.05)
        pair.world.reset_links("server", "client")
        assert await near.wait_closed() is CloseReason.RESET
        assert await pair.accepted[0].wait_closed() is CloseReason.RESET
        heard.add(len(pair.accepted[0].heard))
        await pair.dial()

    run(body, seeds=30)
    assert len(heard) > 2


def test_some_reads_are_short_down_to_one_byte() -> None:
    reads: list[int] = []

    async def body(pair: Pair) -> None:
        near = await pair.dial()
        for _ in range(300):
            near.say(b"0123456789")
            await near.wait_heard(10)
            near.heard.clear()
        reads.extend(pair.accepted[0].reads)

    run(body, seeds=2)
    assert {1, 2, 3, 9, 10} <= set(reads)


def test_without_short_reads_each_read_returns_a_whole_piece_of_the_sent_data() -> None:
    async def body(pair: Pair) -> None:
        near = await pair.dial()
        for _ in range(50):
            near.say(b"0123456789")
            await near.wait_heard(10)
            near.heard.clear()
        assert set(pair.accepted[0].reads) == {10}

    run(body, options=WorldOptions(partial_read_one_in=0, tiny_read_one_in=0))


def test_virtual_time_in_which_nothing_happens_takes_no_real_time() -> None:
    async def body(pair: Pair) -> None:
        start_ms = pair.client.clock.monotonic_ms()
        await pair.client.clock.sleep_ms(86_400_000)
        assert pair.client.clock.monotonic_ms() - start_ms >= 86_400_000

    run(body)


def test_clocks_of_different_hosts_drift_apart() -> None:
    async def body(pair: Pair) -> None:
        def apart() -> int:
            return pair.client.clock.monotonic_ns() - pair.server.clock.monotonic_ns()

        before = apart()
        await pair.world.sleep_ms(3_600_000)
        assert apart() != before

    run(body)


def test_a_step_of_the_wall_clock_does_not_change_the_monotonic_clock() -> None:
    async def body(pair: Pair) -> None:
        clock = pair.server.clock
        wall_ms, monotonic_ns = clock.wall_ms(), clock.monotonic_ns()
        pair.world.jump_clock("server", -5_000)
        assert clock.wall_ms() == wall_ms - 5_000
        assert clock.monotonic_ns() == monotonic_ns

    run(body)


def test_a_node_may_bind_listeners_only_to_the_address_of_its_host() -> None:
    async def body(pair: Pair) -> None:
        with pytest.raises(OSError, match="this host is client"):
            pair.client.network.serve(Binding(LISTENER, Address("server", 1)), Recorder)
        pair.client.network.serve(Binding(LISTENER, Address("localhost", 1)), Recorder)
        peer = Peer(None, LISTENER, Address("127.0.0.1", 1))
        await pair.client.network.dial(peer, Recorder, timeout_ms=100)

    run(body)


def test_a_timed_out_dial_does_not_leave_the_servers_end_open() -> None:
    async def body(pair: Pair) -> None:
        pair.world.partition_one_way("server", "client")
        with pytest.raises(DialFailed):
            await pair.dial(timeout_ms=50)
        assert await pair.accepted[0].wait_closed() is CloseReason.RESET

    run(body)
