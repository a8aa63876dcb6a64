"""Check that a broker that restarted after an unclean stop is removed from ISR and ELR until it has caught up (M16).

A stop is unclean unless every log directory has the clean shutdown file; the broker's own report is not used. The last
member of an ISR stays in it, because no other replica has its records (KIP-966).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.observations import BrokerRegistered, PartitionRecorded, Restarted
from kraft.sim.check.partition_records import PartitionsAfterBatches


class UncleanBrokersLeave(PartitionsAfterBatches):
    """Check, by the committed metadata, that a broker is removed from ISR and ELR at the latest with the batch that
    registers it after an unclean stop."""

    id: ClassVar[str] = "M16"
    statement: ClassVar[str] = (
        "A broker that registers after an unclean stop is in no ELR, and in no ISR with other members."
    )

    def __init__(self) -> None:
        super().__init__()
        self._stopped_uncleanly: set[tuple[int, int]] = set()
        """(broker, incarnation) pairs that followed an unclean stop and are not known to be registered."""

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
                    "a broker that restarted uncleanly is still in ISR or ELR",
                    partition=held.topic_partition,
                    broker=broker,
                    isr=held.isr,
                    elr=held.elr,
                )
