"""What an application hears of rebalances, and how it is made sure that it is not at work on records meanwhile.

Listeners run only while the application waits in `poll` (or closes the consumer): everything that it was given before
is then dealt with, so that it may be committed before the partitions go to others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from kraft.client.core.records import TopicPartition


class RebalanceListener:
    """Override what you need. The consumer's other methods may be called here, but not `poll`; what is raised here is
    raised by `poll`, and the rebalance goes on."""

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """These partitions are read from now on, beside those that are kept. The place to `seek`."""

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """These partitions are about to go to other members. The place to `commit` what was done with them."""

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """These partitions may belong to others already: the group had gone on without this member."""
        await self.on_partitions_revoked(partitions)


class Turnstile:
    """Lets the membership act while the application waits. The application is in `poll` or elsewhere; `meeting` waits
    until it is in `poll` and keeps it there."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake()` makes a waiting `poll` look at `is_wanted`."""
        self.is_wanted = False
        self._wake = wake
        self._present = trio.Event()
        self._over = trio.Event()

    async def pass_through(self) -> None:
        """The application is in `poll`: let a meeting that waits happen, and wait for its end."""
        self._present.set()
        try:
            await self._over.wait()
        finally:
            # Cancelled here, the application leaves while the meeting goes on: it has given up its records anyway.
            self._present = trio.Event()

    def announce(self) -> None:
        """A meeting is about to be called: give the application nothing more before it."""
        if not self.is_wanted:
            self.is_wanted = True
            self._over = trio.Event()
        self._wake()

    @asynccontextmanager
    async def meeting(self) -> AsyncIterator[None]:
        """The body runs while the application is kept in `poll`."""
        self.announce()
        try:
            await self._present.wait()
            yield
        finally:
            self.is_wanted = False
            self._over.set()
