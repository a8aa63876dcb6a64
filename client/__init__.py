"""Async: producer and consumer on trio, over the seam. The subpackage `core` is pure. May import everything below
kraft.client, never kraft.broker.

Names are loaded when they are first used (PEP 562). So a process that needs only a part of the client, such as the
topic reader of `kraft.client.spark`, loads neither trio nor the other modules.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraft.client.consumer import Consumer
    from kraft.client.core.configs import ConfigError
    from kraft.client.core.records import (
        CommitFailed,
        CommittedOffset,
        ConsumerRecord,
        DeliveryFailed,
        DeliveryReport,
        GroupMetadata,
        KafkaError,
        LogTruncated,
        RebalanceInProgress,
    )
    from kraft.client.core.share.records import Acknowledgement, ShareRecord
    from kraft.client.core.transaction_errors import (
        AbortableTransactionError,
        CommitOutcomeUnknown,
        ProducerFenced,
        TransactionAborted,
    )
    from kraft.client.delivery import Delivery
    from kraft.client.producer import Producer
    from kraft.client.rebalancing import RebalanceListener
    from kraft.client.share.consumer import ShareConsumer

_HOME = MappingProxyType(
    {
        "AbortableTransactionError": "core.transaction_errors",
        "Acknowledgement": "core.share.records",
        "CommitFailed": "core.records",
        "CommitOutcomeUnknown": "core.transaction_errors",
        "CommittedOffset": "core.records",
        "ConfigError": "core.configs",
        "Consumer": "consumer",
        "ConsumerRecord": "core.records",
        "Delivery": "delivery",
        "DeliveryFailed": "core.records",
        "DeliveryReport": "core.records",
        "GroupMetadata": "core.records",
        "KafkaError": "core.records",
        "LogTruncated": "core.records",
        "Producer": "producer",
        "ProducerFenced": "core.transaction_errors",
        "RebalanceInProgress": "core.records",
        "RebalanceListener": "rebalancing",
        "ShareConsumer": "share.consumer",
        "ShareRecord": "core.share.records",
        "TransactionAborted": "core.transaction_errors",
    }
)
"""Module, as a path below kraft.client, in which each public name is defined."""

__all__ = [
    "AbortableTransactionError",
    "Acknowledgement",
    "CommitFailed",
    "CommitOutcomeUnknown",
    "CommittedOffset",
    "ConfigError",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "DeliveryFailed",
    "DeliveryReport",
    "GroupMetadata",
    "KafkaError",
    "LogTruncated",
    "Producer",
    "ProducerFenced",
    "RebalanceInProgress",
    "RebalanceListener",
    "ShareConsumer",
    "ShareRecord",
    "TransactionAborted",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
