"""Synchronous: the table of every metric of a node: name, kind, labels, description, and which nodes have it.

docs/metrics.md is generated from it, and a test compares it with the metrics of running nodes. A name in the table
never changes. Metrics of features that this project lacks (delegation tokens, SASL) are not listed. May import the
registry's kinds and nothing else.
"""

from __future__ import annotations

from kraft.broker.serving.metrics.table.data import LOGS, REPLICAS, THROTTLES, TOPICS
from kraft.broker.serving.metrics.table.groups import GROUPS
from kraft.broker.serving.metrics.table.metadata import CONTROLLERS, QUORUM
from kraft.broker.serving.metrics.table.process import USAGE
from kraft.broker.serving.metrics.table.requests import NODE, REQUESTS
from kraft.broker.serving.metrics.table.rows import MetricRow, MetricScope
from kraft.broker.serving.metrics.table.shares import SHARES
from kraft.broker.serving.metrics.table.transactions import TRANSACTIONS

__all__ = ["TABLE", "MetricRow", "MetricScope"]

TABLE: tuple[MetricRow, ...] = (
    *REQUESTS,
    *TOPICS,
    *REPLICAS,
    *LOGS,
    *THROTTLES,
    *GROUPS,
    *SHARES,
    *TRANSACTIONS,
    *CONTROLLERS,
    *QUORUM,
    *NODE,
    *USAGE,
)
