"""One who takes controllers out of the quorum's voters and puts them back while all else goes on (KIP-853): in clusters
whose voters are not configured.

Two voters stay at least. Nothing is expected of a single request: what voters, their logs and their disks then say is
watched by the checks (R9, R16).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from kraft.client.admin import Admin
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import KafkaError
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.cluster.first_voters import address_of, directory_id_of
from kraft.sim.cluster.plan import REMOVE_VOTER, VOTER_CHANGER, Operation

REQUEST_TIMEOUT_MS = 2_000
VOTERS_MIN = 2


async def change_voters(cluster: SimCluster, work: Iterable[Operation]) -> None:
    """Ask for what a plan says, when it says it."""
    world, start_ns = cluster.world, cluster.world.now_ns
    seam, servers = world.node(VOTER_CHANGER), cluster.shape.bootstrap_servers
    async with Admin(bootstrap_servers=servers, timeout_ms=REQUEST_TIMEOUT_MS, seam=seam) as admin:
        for operation in work:
            await world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
            await _change(cluster, admin, operation)


async def _change(cluster: SimCluster, admin: Admin, operation: Operation) -> None:
    controllers = cluster.shape.controller_ids
    node = controllers[operation.target % len(controllers)]
    told = cluster.watch.chronicle.begin_operation(VOTER_CHANGER, f"{operation.verb} {node}")
    outcome = "nobody knows"
    with suppress(KafkaError, ClusterUnreachable, *CONNECTION_FAILURES):
        voters = (await admin.nodes.quorum()).voters
        if operation.verb != REMOVE_VOTER:
            await admin.nodes.add_voter(node, directory_id_of(node), address_of(node))
            outcome = "done"
        elif len(voters) > VOTERS_MIN:
            await admin.nodes.remove_voter(node, directory_id_of(node))
            outcome = "done"
        else:
            outcome = "left out"
    cluster.watch.chronicle.end_operation(told, outcome, outcome == "done" or None)
