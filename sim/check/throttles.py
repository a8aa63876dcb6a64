"""Check which replicas the throttle of a reassignment may delay (D19, KIP-73)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import ReplicaThrottled


class ThrottleNeverDelaysIsr(Check):
    """Check that a throttle delays only replicas that are out of sync. Acknowledgements wait for the in-sync replicas,
    so these must get records at any throttle rate."""

    id: ClassVar[str] = "D19"
    statement: ClassVar[str] = "A throttle delays only replicas that are out of sync."

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {ReplicaThrottled: self.held_back}

    def held_back(self, seen: ReplicaThrottled) -> None:
        self.count()
        if seen.replica in seen.isr:
            self.fail(
                "a throttle holds back a replica that is in sync",
                node=seen.node,
                partition=seen.topic_partition,
                replica=seen.replica,
                isr=seen.isr,
            )
