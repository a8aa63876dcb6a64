"""A driver of the failure detector for tests."""

from __future__ import annotations

from typing import Any

from kraft.control import FenceTarget
from kraft.control.brokers.probing import (
    BecameActive,
    BrokerConnectionEnded,
    BrokerKnown,
    HeartbeatReceived,
    ProbeActions,
    ProbeAnswered,
    ProbeOutcome,
    Probing,
    TimePassed,
)
from kraft.image import Endpoint
from tests.stages.decided_cluster import incarnation_id

SAME, OTHER, REFUSED, CLOSED, SILENT = ProbeOutcome


class Detector:
    """Drives the failure detector's state machine: each address answers after `delay_ms` with the configured
    outcome."""

    def __init__(self) -> None:
        self.machine = Probing()
        self.now_ms = 1_000
        self.delay_ms = 1
        self.addresses: dict[int, ProbeOutcome] = {}
        self.fenced: list[tuple[int, tuple[FenceTarget, ...]]] = []
        self.probes: list[tuple[int, int]] = []
        self._due: list[tuple[int, int, int]] = []
        self._deadline_ms: int | None = None

    def tell(self, happened: Any) -> ProbeActions:
        actions = self.machine.step(happened, self.now_ms)
        for probe in actions.probes:
            self.probes.append((self.now_ms, probe.broker_id))
            self._due.append((self.now_ms + self.delay_ms, probe.probe_id, probe.broker_id))
        if actions.fence:
            self.fenced.append((self.now_ms, actions.fence))
        self._deadline_ms = actions.deadline_ms
        return actions

    def run(self, duration_ms: int) -> None:
        """Advance time, one millisecond at a time."""
        for _ in range(duration_ms):
            self.now_ms += 1
            for due in [one for one in self._due if one[0] <= self.now_ms]:
                self._due.remove(due)
                self.tell(ProbeAnswered(due[1], self.addresses.get(due[2], SILENT)))
            if self._deadline_ms is not None and self._deadline_ms <= self.now_ms:
                self.tell(TimePassed())

    def broker(self, broker_id: int, *, fenced: bool = False, life: int = 1, epoch: int | None = None) -> None:
        self.tell(
            BrokerKnown(
                broker_id,
                epoch if epoch is not None else 100 + broker_id,
                incarnation_id(broker_id, life),
                Endpoint("PLAINTEXT", "localhost", 9000 + broker_id),
                fenced,
            )
        )

    def heartbeat(self, broker_id: int, *, connection: int | None = None, epoch: int | None = None) -> None:
        number = 1000 + broker_id if connection is None else connection
        self.tell(HeartbeatReceived(broker_id, epoch if epoch is not None else 100 + broker_id, number))

    def lose(self, broker_id: int, *, connection: int | None = None, closed_by_us: bool = False) -> None:
        self.tell(BrokerConnectionEnded(1000 + broker_id if connection is None else connection, closed_by_us))

    @property
    def fenced_ids(self) -> list[int]:
        return [target.broker_id for _, targets in self.fenced for target in targets]


def serving(*broker_ids: int, same: bool = True) -> Detector:
    """Return an active controller whose brokers are connected, and have answered SAME unless specified otherwise."""
    detector = Detector()
    detector.tell(BecameActive())
    for broker_id in broker_ids:
        detector.addresses[broker_id] = SAME if same else REFUSED
        detector.heartbeat(broker_id)
        detector.broker(broker_id)
    detector.run(10)
    assert not detector.fenced
    return detector


def crash(detector: Detector, broker_id: int, outcome: ProbeOutcome = REFUSED) -> None:
    detector.addresses[broker_id] = outcome
    detector.lose(broker_id)


def standby(broker_id: int = 1) -> Detector:
    """Return a standby to which a broker is connected that has answered SAME."""
    detector = Detector()
    detector.addresses[broker_id] = SAME
    detector.heartbeat(broker_id)
    detector.broker(broker_id)
    detector.run(100)
    assert len(detector.probes) == 1
    return detector
