"""Check of the ISR proposals that a controller accepts (M8, at the time of the request). `OnlyActiveReplicasJoin`
checks the committed result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from kraft.sim.check.base import Check
from kraft.sim.check.observations import IsrAccepted

ANY_EPOCH = -1
"""Broker epoch of a member whose epoch the leader does not know."""


class AlterPartitionPrecondition(Check):
    id: ClassVar[str] = "M8b"
    statement: ClassVar[str] = (
        "An ISR is accepted only from the leader, in the current epochs, with members that are active in theirs."
    )

    def readers(self) -> Mapping[type, Callable[[Any], None]]:
        return {IsrAccepted: self.accepted}

    def accepted(self, seen: IsrAccepted) -> None:
        self.count()
        if seen.asked != seen.current:
            self.fail(
                "an ISR was accepted from a leader with an outdated state of the partition",
                partition=seen.topic_partition,
                controller=seen.controller,
                asked=seen.asked,
                current=seen.current,
            )
        for member in seen.members:
            if not member.is_active or member.asked_epoch not in (ANY_EPOCH, member.broker_epoch):
                self.fail(
                    "an ISR was accepted with a member that may not join it",
                    partition=seen.topic_partition,
                    controller=seen.controller,
                    member=member.broker,
                    is_active=member.is_active,
                    asked_epoch=member.asked_epoch,
                    broker_epoch=member.broker_epoch,
                )
