"""The delivery of a record that was queued by a producer: its outcome, and waiting for the outcome."""

from __future__ import annotations

import trio

from kraft.client.core.batch import RecordInBatch
from kraft.client.core.records import DeliveryFailed, DeliveryReport


class Delivery(RecordInBatch):
    """The delivery of one record. `outcome` is None until the delivery has succeeded or failed; `await wait()` waits
    for that. Cancelling the wait does not cancel the delivery."""

    __slots__ = ()

    async def wait(self) -> DeliveryReport:
        """Wait for the delivery report and return it. Raise DeliveryFailed if the delivery failed; its `certain` is
        True if the record is definitely not in the log."""
        await self.settled()
        outcome = self.outcome
        if isinstance(outcome, DeliveryFailed):
            raise outcome
        assert outcome is not None
        return outcome

    async def settled(self) -> None:
        """Wait until the delivery has succeeded or failed."""
        while self.batch.outcome is None:
            event = trio.Event()
            self.batch.when_settled(event.set)
            await event.wait()
