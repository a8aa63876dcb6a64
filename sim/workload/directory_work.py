"""A client that moves replicas between the log directories of their brokers (KIP-113), while all other clients work.

It runs where brokers have several directories. Single requests may fail: a broker abandons a move when it dies or one
of the directories fails. The checks observe the logs, and the end of a run requires that all replicas are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from kraft.client.admin import Admin
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import KafkaError
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import DIRECTORY_MOVER, PlannedOperation
from kraft.sim.workload.planned_requests import make_requests


async def move_directories(cluster: SimCluster, work: Iterable[PlannedOperation]) -> None:
    """Send the plan's requests for moves between log directories, each at its time."""
    await make_requests(cluster, DIRECTORY_MOVER, work, _move)


async def _move(cluster: SimCluster, admin: Admin, operation: PlannedOperation) -> None:
    hosted = [(topic.name, index, state) for topic in cluster.image.topics for index, state in topic.partitions()]
    if not hosted:
        return
    name, index, state = hosted[operation.target % len(hosted)]
    which, broker_at = divmod(operation.amount, len(state.replicas))
    broker = state.replicas[broker_at]
    paths = cluster.shape.log_dirs_of(broker)
    path = paths[which % len(paths)]
    told = cluster.watch.chronicle.begin_operation(DIRECTORY_MOVER, f"{name}-{index} of {broker} to {path}")
    outcome = "no answer"
    with suppress(KafkaError, ClusterUnreachable, *CONNECTION_FAILURES):
        answer = await admin.nodes.move_replicas(broker, {(name, index): path})
        outcome = str(answer[name, index] or "begun")
    cluster.watch.chronicle.end_operation(told, outcome, outcome == "begun" or None)
