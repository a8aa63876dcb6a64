"""A client that removes controllers from the quorum's voters and adds them again (KIP-853), while all other clients
work.

It runs in clusters whose voters are not configured. At least two voters stay. Single requests may fail. The checks
observe the voters, their logs and their disks (R9, R16).
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
from kraft.sim.nemesis.plan import REMOVE_VOTER, VOTER_CHANGER, PlannedOperation
from kraft.sim.workload.planned_requests import make_requests

VOTERS_MIN = 2


async def change_voters(cluster: SimCluster, work: Iterable[PlannedOperation]) -> None:
    """Send the plan's requests to remove and add voters, each at its time."""
    await make_requests(cluster, VOTER_CHANGER, work, _change)


async def _change(cluster: SimCluster, admin: Admin, operation: PlannedOperation) -> None:
    controllers = cluster.shape.controller_ids
    node = controllers[operation.target % len(controllers)]
    told = cluster.watch.chronicle.begin_operation(VOTER_CHANGER, f"{operation.verb} {node}")
    outcome = "unknown"
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
