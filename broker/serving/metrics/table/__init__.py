"""Synchronous: the table of every metric that a node shows: name, kind, labels, meaning, and where it exists.

docs/metrics.md is made from it, and a test compares it with what running nodes show. A name here never changes. What
belongs to a feature that is not there (transactions, delegation tokens, SASL) is not here. May import the registry's
kinds and nothing else.
"""

from __future__ import annotations

from kraft.broker.serving.metrics.table.data import LOGS, REPLICAS, THROTTLES, TOPICS
from kraft.broker.serving.metrics.table.groups import GROUPS
from kraft.broker.serving.metrics.table.metadata import CONTROLLERS, QUORUM
from kraft.broker.serving.metrics.table.process import USAGE
from kraft.broker.serving.metrics.table.requests import NODE, REQUESTS
from kraft.broker.serving.metrics.table.rows import Row, Where

__all__ = ["TABLE", "Row", "Where"]

TABLE: tuple[Row, ...] = (
    *REQUESTS,
    *TOPICS,
    *REPLICAS,
    *LOGS,
    *THROTTLES,
    *GROUPS,
    *CONTROLLERS,
    *QUORUM,
    *NODE,
    *USAGE,
)
