"""A client that deletes records from the front of the administrator's topics (DeleteRecords, KIP-107), while all other
clients work.

It deletes all committed records, or a part of them, often up to the middle of a batch.

Single requests may fail, and no client is guaranteed the content of those topics. The checks observe the logs and their
offsets (D5, D9), and the end of a run requires that all replicas are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from kraft.client.admin import Admin
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import KafkaError
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import TRIMMER, PlannedOperation
from kraft.sim.workload.planned_requests import make_requests

ALL = -1
"""Kafka's value for "up to the high watermark"."""


async def trim_topics(cluster: SimCluster, living: Mapping[str, object], work: Iterable[PlannedOperation]) -> None:
    """Send the plan's DeleteRecords requests, each at its time. `living`: the topics that may be trimmed."""

    async def trim(cluster: SimCluster, admin: Admin, operation: PlannedOperation) -> None:
        held = [topic for topic in cluster.image.topics if topic.name in living]
        places = [(topic.name, index, state.leader) for topic in held for index, state in topic.partitions()]
        if not places:
            return
        name, index, leader = places[operation.target % len(places)]
        marks = cluster.marks(leader, name, index)
        before = ALL if operation.amount % 2 or marks is None else operation.amount % (marks[0] + 1)
        told = cluster.watch.chronicle.begin_operation(TRIMMER, f"{name}-{index} before {before}")
        outcome = "no answer"
        with suppress(KafkaError, ClusterUnreachable, *CONNECTION_FAILURES):
            begins = await admin.partitions.delete_records({(name, index): before})
            outcome = f"begins at {begins[name, index]}"
        cluster.watch.chronicle.end_operation(told, outcome, outcome != "no answer" or None)

    await make_requests(cluster, TRIMMER, work, trim)
