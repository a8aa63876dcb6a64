"""Check that a producer id with its epoch is allocated only once, also if the active controller changes (M17).

Broker epochs are checked by M7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import ProducerIdSent, ProducerIdsRecorded, TopicRecorded


class ProducerIdsAllocatedOnce(Check):
    id: ClassVar[str] = "M17"
    statement: ClassVar[str] = "No topic id, no block of producer ids and no producer id is allocated twice."

    def __init__(self) -> None:
        super().__init__()
        self._topic_ids: set[str] = set()
        self._next_producer_id = 0
        self._given: dict[tuple[int, int], int] = {}
        """(producer id, producer epoch) → the broker that returned it to a client."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            TopicRecorded: self.topic_recorded,
            ProducerIdsRecorded: self.producer_ids_recorded,
            ProducerIdSent: self.given,
        }

    def topic_recorded(self, seen: TopicRecorded) -> None:
        self.count()
        if seen.topic_id in self._topic_ids:
            self.fail("a topic id was handed out twice", topic_id=seen.topic_id)
        self._topic_ids.add(seen.topic_id)

    def producer_ids_recorded(self, seen: ProducerIdsRecorded) -> None:
        self.count()
        if seen.next_producer_id <= self._next_producer_id:
            self.fail(
                "a block of producer ids was handed out twice",
                next_producer_id=seen.next_producer_id,
                known=self._next_producer_id,
            )
        self._next_producer_id = max(self._next_producer_id, seen.next_producer_id)

    def given(self, seen: ProducerIdSent) -> None:
        self.count()
        producer = (seen.producer_id, seen.producer_epoch)
        if producer in self._given and not seen.transactional_id:  # T10 judges those, whose responses are repeated
            first = self._given[producer]
            self.fail("a producer id was handed out twice", producer=producer, first=first, second=seen.node)
        self._given.setdefault(producer, seen.node)
        if seen.producer_id >= self._next_producer_id:
            self.fail(
                "a producer id was handed out of a block that is not committed",
                producer=producer,
                node=seen.node,
                committed=self._next_producer_id,
            )
