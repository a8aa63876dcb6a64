"""Async: producer and consumer on trio, over the seam; core is pure. May import everything below kraft.client, never
kraft.broker."""

from kraft.client.consumer import Consumer
from kraft.client.core.configs import ConfigError
from kraft.client.core.records import (
    CommitFailed,
    CommittedOffset,
    ConsumerRecord,
    DeliveryFailed,
    DeliveryReport,
    KafkaError,
    LogTruncated,
    RebalanceInProgress,
)
from kraft.client.delivery import Delivery
from kraft.client.producer import Producer
from kraft.client.rebalancing import RebalanceListener

__all__ = [
    "CommitFailed",
    "CommittedOffset",
    "ConfigError",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "DeliveryFailed",
    "DeliveryReport",
    "KafkaError",
    "LogTruncated",
    "Producer",
    "RebalanceInProgress",
    "RebalanceListener",
]
