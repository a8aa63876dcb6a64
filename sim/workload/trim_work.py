"""One who deletes records from the front of the extra topics while all else goes on (DeleteRecords, KIP-107): all that
is committed, or a part of it, often in the middle of a batch.

Nothing is expected of a single request: nobody is promised what those topics hold. The checks watch the logs and their
marks (D5, D9), and the end of a run demands that all replicas are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from kraft.client.admin import Admin
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import KafkaError
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import TRIMMER, Operation
from kraft.sim.workload.planned_requests import make_requests

ALL = -1
"""Kafka's word for "up to the high watermark"."""


async def trim_topics(cluster: SimCluster, living: Mapping[str, object], work: Iterable[Operation]) -> None:
    """Ask for what a plan says, when it says it. `living`: the topics that may be trimmed."""

    async def trim(cluster: SimCluster, admin: Admin, operation: Operation) -> None:
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
