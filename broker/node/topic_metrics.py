"""The counters of one topic, with Kafka's names. The hot path adds to their `count`; the totals over all topics are
gauges that are summed when somebody asks. Source: Kafka's BrokerTopicMetrics."""

from __future__ import annotations

from collections.abc import Callable

from kraft.broker.node.metrics import Meter, Metrics

GROUP = "kafka.server"
TYPE = "BrokerTopicMetrics"
NAMES = {
    "messages_in": "MessagesInPerSec",
    "bytes_in": "BytesInPerSec",
    "bytes_out": "BytesOutPerSec",
    "replication_bytes_in": "ReplicationBytesInPerSec",
    "replication_bytes_out": "ReplicationBytesOutPerSec",
    "failed_produces": "FailedProduceRequestsPerSec",
    "failed_fetches": "FailedFetchRequestsPerSec",
}


class TopicMeters:
    """One topic's meters."""

    __slots__ = tuple(NAMES)

    messages_in: Meter
    bytes_in: Meter
    bytes_out: Meter
    replication_bytes_in: Meter
    replication_bytes_out: Meter
    failed_produces: Meter
    failed_fetches: Meter

    def __init__(self, metrics: Metrics, topic: str) -> None:
        for attribute, name in NAMES.items():
            setattr(self, attribute, metrics.meter(GROUP, TYPE, name, topic=topic))


class TopicMetrics:
    """The meters of all topics that have a replica here, and their totals."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._topics: dict[str, TopicMeters] = {}
        self._gone = dict.fromkeys(NAMES, 0)
        for attribute, name in NAMES.items():
            metrics.gauge(GROUP, TYPE, name, self._total(attribute))

    def of(self, topic: str) -> TopicMeters:
        """The topic's meters, made when first asked for."""
        meters = self._topics.get(topic)
        if meters is None:
            meters = self._topics[topic] = TopicMeters(self._metrics, topic)
        return meters

    def forget(self, topic: str) -> None:
        """The topic has no replica here any more; its counts stay in the totals."""
        meters = self._topics.pop(topic, None)
        if meters is not None:
            for attribute in NAMES:
                self._gone[attribute] += getattr(meters, attribute).count
            self._metrics.remove(tag="topic", value=topic)

    def _total(self, attribute: str) -> Callable[[], float]:
        def total() -> float:
            here: int = sum(getattr(meters, attribute).count for meters in self._topics.values())
            return self._gone[attribute] + here

        return total
