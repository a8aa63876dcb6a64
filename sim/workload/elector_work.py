"""One who asks for elections of preferred leaders, a partition at a time, while all else goes on (ElectLeaders,
KIP-460).

Nothing is expected of a single request: the preferred replica may be down, or lead already. What elections do is
watched by the checks (M3, M5), and `elected` counts those that were taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from kraft.client.admin import Admin, ElectionType
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import KafkaError
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import ELECTOR, Operation
from kraft.sim.workload.planned_requests import make_requests


class Elector:
    """`elected` counts the partitions that got another leader at its word."""

    def __init__(self, cluster: SimCluster) -> None:
        self.elected = 0
        self._cluster = cluster

    async def run(self, work: Iterable[Operation]) -> None:
        """Ask for what a plan says, when it says it."""
        await make_requests(self._cluster, ELECTOR, work, self._elect)

    async def _elect(self, cluster: SimCluster, admin: Admin, operation: Operation) -> None:
        places = [(topic.name, index) for topic in cluster.image.topics for index, _ in topic.partitions()]
        if not places:
            return
        place = places[operation.target % len(places)]
        told = cluster.watch.chronicle.begin_operation(ELECTOR, f"{operation.verb} of {place[0]}-{place[1]}")
        outcome = "no answer"
        with suppress(KafkaError, ClusterUnreachable, *CONNECTION_FAILURES):
            problem = (await admin.partitions.elect_leaders(ElectionType.PREFERRED, [place]))[place]
            outcome = "done" if problem is None else str(problem)
            self.elected += problem is None
        cluster.watch.chronicle.end_operation(told, outcome, outcome == "done" or None)
