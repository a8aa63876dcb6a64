"""LeaderCheck: probe whether leaders are alive before naming them to a client.

A client whose connection to a leader ended at once asks another broker for the new leader. The controller cannot have
elected a new leader by then, and librdkafka keeps the old leader for a second. So before a broker names leaders, it
first sends them Identify on open connections. A live process answers within a millisecond or two, a dying process never
answers. If no answer comes within CHECK_MS, the broker names the leader in the image.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kraft.control.brokers.probing import ProbeOutcome

if TYPE_CHECKING:
    from kraft.controller.probes import Prober
    from kraft.image import MetadataImage

CHECK_MS = 30
PURPOSE = "leader check"

DEAD = frozenset((ProbeOutcome.REFUSED, ProbeOutcome.CLOSED, ProbeOutcome.OTHER))


class LeaderCheck:
    """Sends this broker's probes to leaders."""

    def __init__(self, prober: Prober, newest_image: Callable[[], MetadataImage]) -> None:
        """`prober` sends the probes, on connections with the purpose PURPOSE. It waits CHECK_MS for an answer."""
        self._prober = prober
        self._newest_image = newest_image

    def check(self, broker_ids: frozenset[int], then: Callable[[frozenset[int]], None]) -> None:
        """Probe these brokers. Later call `then` once, with the ids of the brokers whose process has ended."""
        waiting = set(broker_ids)
        lost: set[int] = set()

        def answered(broker_id: int, outcome: ProbeOutcome) -> None:
            waiting.discard(broker_id)
            if outcome in DEAD:
                lost.add(broker_id)
            if not waiting:
                then(frozenset(lost))

        image = self._newest_image()
        for broker_id in sorted(broker_ids):
            registration = image.brokers.get(broker_id)
            if registration is None:
                waiting.discard(broker_id)
                continue
            endpoint = self._prober.endpoint_of(registration)
            self._prober.probe(broker_id, registration.incarnation_id, endpoint, partial(answered, broker_id))
        if not waiting:
            then(frozenset())
