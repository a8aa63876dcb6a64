"""Requests that decompress stored batches: only a few of them run at a time, and their memory is charged to the
budget."""

from __future__ import annotations

import trio
import trio.testing

from kraft.broker.serving.gates import OPENERS_MAX, OPENING_BYTES, Gates
from kraft.wire.budget import MemoryBudget


def test_a_bounded_number_of_requests_decompress_stored_batches_at_once_and_their_memory_is_charged() -> None:
    async def main() -> None:
        memory = MemoryBudget(OPENING_BYTES)
        gates = Gates(memory)
        used = []
        leave = trio.Event()

        async def opener() -> None:
            async with gates.opening():
                used.append(memory.used_bytes)
                await leave.wait()

        async with trio.open_nursery() as nursery:
            for _ in range(OPENERS_MAX + 2):
                nursery.start_soon(opener)
            await trio.testing.wait_all_tasks_blocked()
            assert used == [OPENING_BYTES * number for number in range(1, OPENERS_MAX + 1)]
            leave.set()
        assert len(used) == OPENERS_MAX + 2
        assert memory.used_bytes == 0

    trio.run(main)
