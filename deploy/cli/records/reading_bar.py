"""The bar of a `kraft consume` that ends by itself: after so many records, or at the end that the partitions have.

It is drawn where the records go elsewhere: on the terminal on which they are printed they are what one sees.
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
class Reading:
    """How far it is: by the records that were shown where it ends after `count` of them, else by offsets."""

    count: int | None
    shown: int = 0

    def counted(self, show: Callable[[ConsumerRecord], bytes]) -> Callable[[ConsumerRecord], bytes]:
        """`show`, such that its records are counted if they matter."""
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
        """The bar of what is read from `starts` to `ends` (None: there is no end) within this context."""
        offsets = 0 if ends is None else sum(max(0, end - starts[tp]) for tp, end in ends.items())
        total = self.count or offsets
        if not total or not is_terminal(sys.stderr) or is_terminal(sys.stdout):
            yield
            return
        import trio

        told = 0

        def tell(advance: Callable[[int], None]) -> None:
            nonlocal told
            done = self.shown if self.count is not None else _passed(consumer, starts, ends or {})
            advance(max(0, done - told))
            told = max(done, told)

        async def tell_again(advance: Callable[[int], None]) -> None:
            while True:
                tell(advance)
                await trio.sleep(REDRAW_SECONDS)

        with progress("reading", total) as advance:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(tell_again, advance)
                yield
                nursery.cancel_scope.cancel()
            tell(advance)


def _passed(consumer: Consumer, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """How many of the offsets lie behind the reader: none in a partition that it does not read yet, or in which its
    position is being sought anew."""
    from kraft.client import KafkaError

    passed = 0
    for tp in ends.keys() & consumer.assignment:
        try:
            passed += max(0, min(consumer.position(tp), ends[tp]) - starts[tp])
        except KafkaError:
            continue
    return passed
