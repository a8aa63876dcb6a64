"""M16: nobody counts on a broker that came back after an unclean stop, before it has caught up.

A stop is unclean where not every log directory says otherwise; what the broker says of itself is not asked. The last
member of an ISR stays listed there: nobody else has what it has (KIP-966).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import (
    BrokerRegistered,
    ImagePublished,
    PartitionRecorded,
    Restarted,
    TopicDeleted,
    TopicPartition,
)


class UncleanMembersLeave(Check):
    """By the committed metadata: it is out with the batch that registers it, or before."""

    id: ClassVar[str] = "M16"
    statement: ClassVar[str] = (
        "A broker that registers after an unclean stop is in no ELR, and in no ISR with other members."
    )

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[TopicPartition, PartitionRecorded] = {}
        self._stopped_uncleanly: set[int] = set()
        """Brokers that have not registered since."""
        self._registered: set[int] = set()
        """Of these, who has registered in the batch that is told now."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            Restarted: self.restarted,
            BrokerRegistered: self.registered,
            PartitionRecorded: self.recorded,
            TopicDeleted: self.deleted,
            ImagePublished: self.published,
        }

    def restarted(self, seen: Restarted) -> None:
        if seen.is_marked:
            self._stopped_uncleanly.discard(seen.node)
        else:
            self._stopped_uncleanly.add(seen.node)

    def registered(self, seen: BrokerRegistered) -> None:
        if seen.broker in self._stopped_uncleanly:
            self._stopped_uncleanly.discard(seen.broker)
            self._registered.add(seen.broker)

    def recorded(self, seen: PartitionRecorded) -> None:
        self._known[seen.topic_partition] = seen

    def deleted(self, seen: TopicDeleted) -> None:
        self._known = {place: held for place, held in self._known.items() if place[0] != seen.topic}

    def published(self, seen: ImagePublished) -> None:
        """All of a batch has been told when the first image of it is published."""
        for broker in sorted(self._registered):
            for place, held in self._known.items():
                self._judge(broker, place, held)
        self._registered.clear()

    def _judge(self, broker: int, place: TopicPartition, held: PartitionRecorded) -> None:
        if broker not in (*held.isr, *held.elr, *held.replicas):
            return
        self.count()
        if broker in held.elr or (broker in held.isr and len(held.isr) > 1):
            self.fail(
                "one that came back after an unclean stop is still counted on",
                partition=place,
                broker=broker,
                isr=held.isr,
                elr=held.elr,
            )
