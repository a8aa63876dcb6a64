"""Brokers that left a moment ago, and are still told to clients for a while.

With Kafka a dead broker stays in Metadata until its session time-out, long after clients have moved away from it. Our
fast fence would take it out in the same answer that names the new leader, and librdkafka then may drop the partition it
has just moved together with the broker that it forgets (seen with 2.16: it asks again only after a second). So a broker
stays listed for its session time-out after it was fenced; it leads nothing, and its replicas are told as offline.
"""

from __future__ import annotations

from kraft.image import BrokerRegistration, ImageDelta, MetadataImage
from kraft.seam import Clock


class DepartedBrokers:
    """Registrations by id, each until its time is over."""

    def __init__(self, clock: Clock, grace_ms: int) -> None:
        self._clock = clock
        self._grace_ms = grace_ms
        self._until: dict[int, tuple[int, BrokerRegistration]] = {}

    def published(self, old: MetadataImage, new: MetadataImage, delta: ImageDelta) -> None:
        """A newer image is in force."""
        for broker_id in delta.brokers:
            before = old.brokers.get(broker_id)
            if new.is_alive(broker_id) or broker_id not in new.brokers:
                self._until.pop(broker_id, None)
            elif before is not None and not before.fenced:
                self._until[broker_id] = (self._clock.monotonic_ms() + self._grace_ms, before)

    def listed(self) -> list[BrokerRegistration]:
        """Who is still told, as it was before it left; by id."""
        if not self._until:
            return []
        now_ms = self._clock.monotonic_ms()
        for broker_id in [one for one, (until_ms, _) in self._until.items() if until_ms <= now_ms]:
            del self._until[broker_id]
        return [self._until[broker_id][1] for broker_id in sorted(self._until)]
