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
from kraft.sim.nemesis.plan import REMOVE_VOTER, VOTER_CHANGER, Operation
from kraft.sim.workload.planned_requests import make_requests

VOTERS_MIN = 2


async def change_voters(cluster: SimCluster, work: Iterable[Operation]) -> None:
    """Ask for what a plan says, when it says it."""
    await make_requests(cluster, VOTER_CHANGER, work, _change)


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
