"""Progress bar of a `kraft consume` that ends by itself: after a number of records, or at the end of the partitions.

The bar is drawn only if the records are not printed on a terminal. On a terminal, the printed records show the
progress.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraft.deploy.cli.output import is_terminal, progress

if TYPE_CHECKING:
    from kraft.client import Consumer, ConsumerRecord
    from kraft.client.core.records import TopicPartition

REDRAW_SECONDS = 0.1


@dataclass(slots=True)
class ReadProgress:
    """Progress of reading: counted in printed records if the command ends after `count` of them, else in offsets."""

    count: int | None
    shown: int = 0

    def counted(self, show: Callable[[ConsumerRecord], bytes]) -> Callable[[ConsumerRecord], bytes]:
        """Return `show` wrapped so that it also counts the printed records; return `show` itself if the bar does not
        need the count."""
        if self.count is None:
            return show

        def count_and_show(record: ConsumerRecord) -> bytes:
            self.shown += 1
            return show(record)

        return count_and_show

    @asynccontextmanager
    async def bar(
        self, consumer: Consumer, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int] | None
    ) -> AsyncIterator[None]:
        """Draw the bar, from the offsets `starts` to the offsets `ends`, while this context is open. `ends` is None if
        reading has no end offsets."""
        offsets = 0 if ends is None else sum(max(0, end - starts[tp]) for tp, end in ends.items())
        total = self.count or offsets
        if not total or not is_terminal(sys.stderr) or is_terminal(sys.stdout):
            yield
            return
        import trio

        told = 0

        def update(advance: Callable[[int], None]) -> None:
            nonlocal told
            done = self.shown if self.count is not None else _passed(consumer, starts, ends or {})
            advance(max(0, done - told))
            told = max(done, told)

        async def update_periodically(advance: Callable[[int], None]) -> None:
            while True:
                update(advance)
                await trio.sleep(REDRAW_SECONDS)

        with progress("reading", total) as advance:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(update_periodically, advance)
                yield
                nursery.cancel_scope.cancel()
            update(advance)


def _passed(consumer: Consumer, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Return how many offsets have been read. A partition counts 0 while it is not assigned yet, or while its position
    is being reset."""
    from kraft.client import KafkaError

    passed = 0
    for tp in ends.keys() & consumer.assignment:
        try:
            passed += max(0, min(consumer.position(tp), ends[tp]) - starts[tp])
        except KafkaError:
            continue
    return passed
