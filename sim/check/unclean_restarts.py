"""M16: nobody counts on a broker that came back after an unclean stop, before it has caught up.

A stop is unclean where not every log directory says otherwise; what the broker says of itself is not asked. The last
member of an ISR stays listed there: nobody else has what it has (KIP-966).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.observations import BrokerRegistered, PartitionRecorded, Restarted
from kraft.sim.check.partition_records import PartitionsBehindBatches


class UncleanMembersLeave(PartitionsBehindBatches):
    """By the committed metadata: it is out with the batch that registers it, or before."""

    id: ClassVar[str] = "M16"
    statement: ClassVar[str] = (
        "A broker that registers after an unclean stop is in no ELR, and in no ISR with other members."
    )

    def __init__(self) -> None:
        super().__init__()
        self._stopped_uncleanly: set[tuple[int, int]] = set()
        """(broker, incarnation) that came after an unclean stop and is not known to be registered."""

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {**super().readers(), Restarted: self.restarted, BrokerRegistered: self.registered}

    def restarted(self, seen: Restarted) -> None:
        if not seen.is_marked:
            self._stopped_uncleanly.add((seen.node, seen.incarnation))

    def registered(self, seen: BrokerRegistered) -> None:
        if (seen.broker, seen.incarnation) in self._stopped_uncleanly:
            self._stopped_uncleanly.discard((seen.broker, seen.incarnation))
            self.due.add(seen.broker)

    def judge(self, held: PartitionRecorded, brokers: frozenset[int]) -> None:
        for broker in sorted(brokers & {*held.isr, *held.elr, *held.replicas}):
            self.count()
            if broker in held.elr or (broker in held.isr and len(held.isr) > 1):
                self.fail(
                    "one that came back after an unclean stop is still counted on",
                    partition=held.topic_partition,
                    broker=broker,
                    isr=held.isr,
                    elr=held.elr,
                )
