"""The meters of one topic, under Kafka's names. The hot path adds to the `count` of each meter; the totals over all
topics are summed when they are read. Source: Kafka's BrokerTopicMetrics.
"""

from __future__ import annotations

from types import MappingProxyType

from kraft.broker.serving.metrics.metric_registry import PIECES_PER_STEP, Meter, MetricKind, Metrics, ScanSteps

GROUP = "kafka.server"
TYPE = "BrokerTopicMetrics"
NAMES = MappingProxyType(
    {
        "messages_in": "MessagesInPerSec",
        "bytes_in": "BytesInPerSec",
        "bytes_out": "BytesOutPerSec",
        "replication_bytes_in": "ReplicationBytesInPerSec",
        "replication_bytes_out": "ReplicationBytesOutPerSec",
        "failed_produces": "FailedProduceRequestsPerSec",
        "failed_fetches": "FailedFetchRequestsPerSec",
        "produces": "TotalProduceRequestsPerSec",
        "fetches": "TotalFetchRequestsPerSec",
        "share_fetches": "TotalShareFetchRequestsPerSec",
        "failed_share_fetches": "FailedShareFetchRequestsPerSec",
        "share_acknowledges": "TotalShareAcknowledgementRequestsPerSec",
        "failed_share_acknowledges": "FailedShareAcknowledgementRequestsPerSec",
        "bytes_rejected": "BytesRejectedPerSec",
        "reassignment_bytes_in": "ReassignmentBytesInPerSec",
        "reassignment_bytes_out": "ReassignmentBytesOutPerSec",
        "invalid_crc": "InvalidMessageCrcRecordsPerSec",
        "invalid_magic": "InvalidMagicNumberRecordsPerSec",
        "invalid_sequence": "InvalidOffsetOrSequenceRecordsPerSec",
    }
)


class TopicMeters:
    """One topic's meters, each created at its first use, as in Kafka. `made` has the meters that exist."""

    __slots__ = ("_metrics", "_topic", "made", *NAMES)

    messages_in: Meter
    bytes_in: Meter
    bytes_out: Meter
    replication_bytes_in: Meter
    replication_bytes_out: Meter
    failed_produces: Meter
    failed_fetches: Meter
    produces: Meter
    fetches: Meter
    share_fetches: Meter
    failed_share_fetches: Meter
    share_acknowledges: Meter
    failed_share_acknowledges: Meter
    bytes_rejected: Meter
    reassignment_bytes_in: Meter
    reassignment_bytes_out: Meter
    invalid_crc: Meter
    invalid_magic: Meter
    invalid_sequence: Meter

    def __init__(self, metrics: Metrics, topic: str) -> None:
        self._metrics = metrics
        self._topic = topic
        self.made: dict[str, Meter] = {}

    def __getattr__(self, attribute: str) -> Meter:
        """Create and return a meter that does not exist yet."""
        if attribute not in NAMES:
            raise AttributeError(attribute)
        meter = self.made[attribute] = self._metrics.meter(GROUP, TYPE, NAMES[attribute], topic=self._topic)
        setattr(self, attribute, meter)
        return meter


class TopicMetrics:
    """The meters of all topics that have a replica on this broker, and the totals."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._topics: dict[str, TopicMeters] = {}
        self._gone = dict.fromkeys(NAMES, 0)
        metrics.together(GROUP, TYPE, NAMES.values(), self._totals, kind=MetricKind.COUNTER)

    def of(self, topic: str) -> TopicMeters:
        """Return the topic's meters; they are created at the first call."""
        meters = self._topics.get(topic)
        if meters is None:
            meters = self._topics[topic] = TopicMeters(self._metrics, topic)
        return meters

    def forget(self, topic: str) -> None:
        """Remove a topic that no longer has a replica on this broker; its counts stay in the totals."""
        meters = self._topics.pop(topic, None)
        if meters is not None:
            for attribute, meter in meters.made.items():
                self._gone[attribute] += meter.count
                self._metrics.remove(GROUP, TYPE, NAMES[attribute], topic=topic)

    def _totals(self) -> ScanSteps:
        """Sum over the current and former topics. A topic that is removed during the sum is counted once: its meters
        are still read, but the counts that its removal adds to `_gone` are ignored."""
        sums = self._gone.copy()
        for number, meters in enumerate(list(self._topics.values()), 1):
            for attribute, meter in meters.made.items():
                sums[attribute] += meter.count
            if not number % PIECES_PER_STEP:
                yield
        return {NAMES[attribute]: total for attribute, total in sums.items()}
