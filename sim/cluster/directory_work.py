"""One who moves replicas between the log directories of their brokers while all else goes on (KIP-113): where brokers
have several.

Nothing is expected of a single request: a move is given up when its broker dies or one of the directories fails. The
checks watch the logs, and the end of a run demands that all replicas are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from kraft.client.admin import Admin
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import KafkaError
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.plan import DIRECTORY_MOVER, Operation

REQUEST_TIMEOUT_MS = 2_000


async def move_directories(cluster: SimCluster, work: Iterable[Operation]) -> None:
    """Ask for what a plan says, when it says it."""
    world, start_ns = cluster.world, cluster.world.now_ns
    seam, servers = world.node(DIRECTORY_MOVER), cluster.shape.bootstrap_servers
    async with Admin(bootstrap_servers=servers, timeout_ms=REQUEST_TIMEOUT_MS, seam=seam) as admin:
        for operation in work:
            await world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
            await _move(cluster, admin, operation)


async def _move(cluster: SimCluster, admin: Admin, operation: Operation) -> None:
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
