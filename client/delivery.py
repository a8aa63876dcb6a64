"""A record that was handed to a producer: how it ends, and waiting for that."""

from __future__ import annotations

import trio

from kraft.client.core.batch import RecordInBatch
from kraft.client.core.records import DeliveryFailed, DeliveryReport


class Delivery(RecordInBatch):
    """`outcome` is how it ended, None as long as it has not; `await wait()` for it. Nothing is lost by a cancelled
    wait: the record is delivered all the same."""

    __slots__ = ()

    async def wait(self) -> DeliveryReport:
        """The report. DeliveryFailed if the record was given up; its `certain` tells whether it may be in the log."""
        await self.settled()
        outcome = self.outcome
        if isinstance(outcome, DeliveryFailed):
            raise outcome
        assert outcome is not None
        return outcome

    async def settled(self) -> None:
        """Wait until it has ended, one way or the other."""
        while self.batch.outcome is None:
            event = trio.Event()
            self.batch.when_settled(event.set)
            await event.wait()
