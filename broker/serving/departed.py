"""DepartedBrokers: keep listing brokers to clients for a while after they were fenced.

In Kafka a dead broker stays in Metadata responses until its session timeout, long after clients have moved away from
it. This project fences a dead broker much sooner, which would remove it in the same response that names the new leader.
librdkafka may then drop the partition that it has just moved, together with the broker (seen with 2.16: it retries only
after a second).

So a broker stays listed for its session timeout after it was fenced. It leads no partition, and its replicas are
reported as offline.
"""

from __future__ import annotations

from kraft.image import BrokerRegistration, ImageDelta, MetadataImage
from kraft.seam import Clock


class DepartedBrokers:
    """Registrations of fenced brokers by id, each kept until the broker's session timeout has passed."""

    def __init__(self, clock: Clock, grace_ms: int) -> None:
        self._clock = clock
        self._grace_ms = grace_ms
        self._until: dict[int, tuple[int, BrokerRegistration]] = {}

    def published(self, old: MetadataImage, new: MetadataImage, delta: ImageDelta) -> None:
        """Apply a newer published image."""
        for broker_id in delta.brokers:
            before = old.brokers.get(broker_id)
            if new.is_alive(broker_id) or broker_id not in new.brokers:
                self._until.pop(broker_id, None)
            elif before is not None and not before.fenced:
                self._until[broker_id] = (self._clock.monotonic_ms() + self._grace_ms, before)

    def listed(self) -> list[BrokerRegistration]:
        """Return the fenced brokers that are still listed, by id, with their registrations from before they were
        fenced."""
        if not self._until:
            return []
        now_ms = self._clock.monotonic_ms()
        for broker_id in [one for one, (until_ms, _) in self._until.items() if until_ms <= now_ms]:
            del self._until[broker_id]
        return [self._until[broker_id][1] for broker_id in sorted(self._until)]
