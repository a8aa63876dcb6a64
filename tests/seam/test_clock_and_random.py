"""Behaviour common to every Clock and Random, the real ones and the simulated world's."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import trio

from kraft.seam import Clock
from tests.seam.sites import RealSite, Site, WorldSite

AnySite = RealSite | WorldSite


def test_the_monotonic_clock_never_decreases_and_a_sleep_takes_its_time(site: AnySite) -> None:
    async def body(site: Site) -> None:
        clock = site.server.clock
        before_ns, before_ms = clock.monotonic_ns(), clock.monotonic_ms()
        for duration_ms in (0, 1, 7.5):
            start_ns = clock.monotonic_ns()
            await clock.sleep_ms(duration_ms)
            assert clock.monotonic_ns() - start_ns >= duration_ms * 1e6 - 2
        assert clock.monotonic_ns() >= before_ns + 8_000_000
        assert clock.monotonic_ms() >= before_ms + 8
        assert clock.wall_ms() > 1_700_000_000_000

    site.run(body)


def test_wait_at_most_ends_with_its_event_or_after_its_time(site: AnySite) -> None:
    async def body(site: Site) -> None:
        clock, rings, never, rung = site.server.clock, trio.Event(), trio.Event(), trio.Event()
        rung.set()
        start_ns = clock.monotonic_ns()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ring, clock, rings)
            assert await clock.wait_at_most(rings, 60_000)
        assert await clock.wait_at_most(rung, 60_000)
        assert clock.monotonic_ns() - start_ns < 30_000_000_000
        start_ns = clock.monotonic_ns()
        assert not await clock.wait_at_most(never, 7.5)
        assert clock.monotonic_ns() - start_ns >= 7_500_000 - 2
        assert not await clock.wait_at_most(never, -1)
        assert await clock.wait_at_most(rung, 0)

    async def ring(clock: Clock, event: trio.Event) -> None:
        await clock.sleep_ms(1)
        event.set()

    site.run(body)


def test_random_integers_cover_their_whole_range(site: AnySite) -> None:
    async def body(site: Site) -> None:
        source = site.server.random
        assert {source.below(5) for _ in range(500)} == {0, 1, 2, 3, 4}
        assert source.below(1) == 0
        assert all(0 <= source.below(1 << 70) < 1 << 70 for _ in range(100))

    site.run(body)


def test_random_ids_are_version_4_and_never_begin_with_a_dash(site: AnySite) -> None:
    async def body(site: Site) -> None:
        ids = [site.server.random.uuid() for _ in range(2_000)]
        assert len(set(ids)) == len(ids)
        assert all(drawn.version == 4 for drawn in ids)
        assert not any(urlsafe_b64encode(drawn.bytes).startswith(b"-") for drawn in ids)

    site.run(body)


def test_random_streams_of_different_names_differ(site: AnySite) -> None:
    async def body(site: Site) -> None:
        one, other = site.server.random.stream("one"), site.server.random.stream("other")
        assert site.server.random.stream("one") is one
        assert [one.below(1 << 40) for _ in range(5)] != [other.below(1 << 40) for _ in range(5)]

    site.run(body)
