"""ShareStep: the work that one call of the share coordinator returns to its driver.

1. `entries` are appended to the log as one atomic batch (nothing if it is empty).
2. `replies` are sent at once: they promise nothing that is not committed.
3. When the high watermark has passed the batch, and all earlier ones, `stored` is called for each item of `after`. When
the append fails or the partition moves, `failed` is called for each item, with the error.

Source: KIP-932, Kafka's CoordinatorRuntime.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.broker.share_coordinator.records import ShareStateEntry
from kraft.broker.share_coordinator.requests import Request, StateReply, Ticket


class PendingReply(NamedTuple):
    """A reply that waits until everything that it tells is committed."""

    ticket: Ticket
    request: Request
    reply: StateReply


class ShareStep(NamedTuple):
    """The work that one call returns; the module docstring explains the fields."""

    entries: tuple[ShareStateEntry, ...] = ()
    replies: tuple[tuple[Ticket, StateReply], ...] = ()
    after: tuple[PendingReply, ...] = ()
