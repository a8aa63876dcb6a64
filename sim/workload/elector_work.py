"""A client that requests elections of preferred leaders, one partition at a time (ElectLeaders, KIP-460), while all
other clients work.

Single requests may fail: the preferred replica may be down, or lead already. The checks observe the results of
elections (M3, M5); `elected` counts the accepted ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from kraft.client.admin import Admin, ElectionType
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import KafkaError
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import ELECTOR, PlannedOperation
from kraft.sim.workload.planned_requests import make_requests


class Elector:
    """Client that requests elections. `elected` counts the partitions that got another leader because of its
    requests."""

    def __init__(self, cluster: SimCluster) -> None:
        self.elected = 0
        self._cluster = cluster

    async def run(self, work: Iterable[PlannedOperation]) -> None:
        """Send the plan's requests for elections, each at its time."""
        await make_requests(self._cluster, ELECTOR, work, self._elect)

    async def _elect(self, cluster: SimCluster, admin: Admin, operation: PlannedOperation) -> None:
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
