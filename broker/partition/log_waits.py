"""Wait until a partition's log is open, or until it is open and no truncation of it is in progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition


async def wait_open(partition: Partition) -> None:
    """Suspend until the partition's log is open, or it is certain that the log will not be opened."""
    if partition.log is not None or partition.is_offline or partition.is_removed:
        await trio.lowlevel.checkpoint()
        return
    event = trio.Event()
    partition.when_open(event.set)
    await event.wait()


async def wait_settled(partition: Partition) -> None:
    """Suspend until the partition's log is open and not being truncated, or it is certain that the log will not be
    opened."""
    await wait_open(partition)
    while not partition.is_settled:
        event = trio.Event()
        partition.when_open(event.set)
        await event.wait()
