"""Rebalance callbacks of an application, and the guarantee that the application is not processing records during a
callback.

Listeners run only while the application waits in `poll` or closes the consumer. The application has then processed all
records that it received before. So they can be committed before the partitions move to other members.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from kraft.client.core.records import TopicPartition


class RebalanceListener:
    """Base class of rebalance listeners: override the methods that you need. They may call the consumer's other
    methods, but not `poll`. An exception raised here is raised by `poll`; the rebalance continues."""

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Called after these partitions were assigned, in addition to those that this consumer keeps. A listener may
        `seek` here."""

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Called before these partitions move to other members. A listener may `commit` here what it has processed."""

    async def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Called after the group rebalanced without this member, so that these partitions may already belong to other
        members. By default it calls `on_partitions_revoked`."""
        await self.on_partitions_revoked(partitions)


class PollGate:
    """Lets the membership run callbacks while the application is in `poll`. `application_held` waits until the
    application is in `poll`, and keeps it there."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake()` makes a waiting `poll` check `is_hold_requested`."""
        self.is_hold_requested = False
        self._wake = wake
        self._present = trio.Event()
        self._over = trio.Event()

    async def wait_until_released(self) -> None:
        """Called from `poll`: let waiting callbacks run, and wait for their end."""
        self._present.set()
        try:
            await self._over.wait()
        finally:
            # If `poll` is cancelled here, the application leaves it during a callback. That is safe: it has processed
            # its records.
            self._present = trio.Event()

    def request_hold(self) -> None:
        """Announce a callback, so that `poll` returns no more records before it."""
        if not self.is_hold_requested:
            self.is_hold_requested = True
            self._over = trio.Event()
        self._wake()

    @asynccontextmanager
    async def application_held(self) -> AsyncIterator[None]:
        """Run the body of the context while `poll` does not return."""
        self.request_hold()
        try:
            await self._present.wait()
            yield
        finally:
            self.is_hold_requested = False
            self._over.set()
