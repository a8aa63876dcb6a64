"""NodeView: the parts of a node that its admin listener reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft.broker.serving.metrics.metric_registry import Metrics
    from kraft.config import NodeConfig
    from kraft.quorum.publisher import MetadataPublisher
    from kraft.quorum.quorum import Quorum


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The broker of a node, as the admin listener sees it. `state()` returns the value of Kafka's BrokerState metric.
    `not_ready()` returns why clients should not use the broker, or None if it is ready."""

    state: Callable[[], int]
    not_ready: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A running node, as the admin listener sees it. `version()` returns the version of this package. `broker` is None
    on a node that is only a controller."""

    config: NodeConfig
    cluster_id: str
    metrics: Metrics
    quorum: Quorum
    publisher: MetadataPublisher
    is_stopping: Callable[[], bool]
    version: Callable[[], str]
    broker: BrokerView | None
