"""D19: whom the throttle of a reassignment may hold back (KIP-73)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import ReplicaHeldBack


class ThrottleSparesTheIsr(Check):
    """Acknowledgements wait for the replicas in sync: those get records whatever the rate is."""

    id: ClassVar[str] = "D19"
    statement: ClassVar[str] = "A throttle holds back only replicas that are out of sync."

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {ReplicaHeldBack: self.held_back}

    def held_back(self, seen: ReplicaHeldBack) -> None:
        self.count()
        if seen.replica in seen.isr:
            self.fail(
                "a throttle holds back a replica that is in sync",
                node=seen.node,
                partition=seen.topic_partition,
                replica=seen.replica,
                isr=seen.isr,
            )
