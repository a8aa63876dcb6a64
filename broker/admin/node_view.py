"""NodeView: what the admin listener sees of its node."""

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
    """A node's broker. `state()` is the value of Kafka's BrokerState metric; `not_ready()` is why the broker should get
    no work, None if it should."""

    state: Callable[[], int]
    not_ready: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A running node. `version()` is that of this package; `broker` is None for a controller alone."""

    config: NodeConfig
    cluster_id: str
    metrics: Metrics
    quorum: Quorum
    publisher: MetadataPublisher
    is_stopping: Callable[[], bool]
    version: Callable[[], str]
    broker: BrokerView | None
