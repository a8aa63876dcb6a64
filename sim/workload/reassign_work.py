"""A client that reassigns replicas while all other clients work: any partition, to brokers drawn at random.

Sometimes it moves a partition back before the reassignment is complete. A partition keeps three replicas or gets a
fourth, so a reassignment never uses up the budget of faults.

Single requests may fail. The checks observe the resulting metadata (M15), and the end of a run requires that every
reassignment is complete.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft.client.cluster import Cluster, parse_bootstrap
from kraft.client.connections import CONNECTION_FAILURES
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import CANCEL_MOVE, THROTTLED_MOVE, TOPIC, PlannedOperation
from kraft.sim.workload.throttled_moves import Throttles
from kraft.sim.world.chance import NamedRandom
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

REQUEST_TIMEOUT_MS = 5_000
PAUSE_MS_MIN = 500
PAUSE_MS_MAX = 3_000
FACTORS = (3, 3, 4)
CANCEL_ONE_IN = 4


class Mover:
    """Client that reassigns replicas. `moved` counts the accepted requests."""

    def __init__(self, cluster: SimCluster) -> None:
        self.moved = 0
        self._cluster = cluster
        self._world = cluster.world
        seam = self._world.node("mover")
        self.throttles = Throttles(cluster, seam)
        self._client = Cluster(parse_bootstrap(cluster.shape.bootstrap_servers), seam, client_id="mover")

    async def run(self) -> None:
        """Request reassignments until cancelled."""
        random = self._world.random.stream("mover")
        try:
            while True:
                await self._world.sleep_ms(PAUSE_MS_MIN + random.below(PAUSE_MS_MAX - PAUSE_MS_MIN))
                await self._move(random)
        finally:
            self._client.close()

    async def carry_out(self, work: Iterable[PlannedOperation]) -> None:
        """Send the plan's requests for reassignments, each at its time."""
        start_ns = self._world.now_ns
        try:
            for operation in work:
                await self._world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
                partitions = self._partitions()
                if operation.verb == THROTTLED_MOVE:  # other partitions have too few records for a throttle to matter
                    partitions = [place for place in partitions if place[0] == TOPIC]
                if partitions:
                    random = NamedRandom(self._world.seed, f"move {operation.amount}")
                    target = None if operation.verb == CANCEL_MOVE else self._draw_target(random)
                    place = partitions[operation.target % len(partitions)]
                    if operation.verb == THROTTLED_MOVE and target is not None:
                        await self.throttles.move(place, target, operation.amount, self._ask)
                    else:
                        await self._ask(*place, target)
            await self.throttles.keep_lifting()
        finally:
            self._client.close()

    def _partitions(self) -> list[tuple[str, int]]:
        return [(topic.name, index) for topic in self._cluster.image.topics for index, _ in topic.partitions()]

    async def _move(self, random: NamedRandom) -> None:
        partitions = self._partitions()
        if not partitions:
            return
        topic, index = partitions[random.below(len(partitions))]
        target = None if not random.below(CANCEL_ONE_IN) else self._draw_target(random)
        await self._ask(topic, index, target)

    async def _ask(self, topic: str, index: int, target: tuple[int, ...] | None) -> None:
        """Request one reassignment. `target` None cancels it and moves the partition back."""
        row = {"name": topic, "partitions": ({"partition_index": index, "replicas": target},)}
        request = messages.build(
            messages.request_class(ApiKey.ALTER_PARTITION_REASSIGNMENTS),
            topics=(row,),
            timeout=messages.duration(REQUEST_TIMEOUT_MS),
        )
        for address in self._client.candidates():
            try:
                link = await self._client.links.get(address, "mover", timeout_ms=REQUEST_TIMEOUT_MS)
                answer = await link.request(
                    ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, timeout_ms=REQUEST_TIMEOUT_MS
                )
            except CONNECTION_FAILURES:
                continue
            codes = [part.error_code for told in answer.responses for part in told.partitions]
            self.moved += codes == [ErrorCode.NONE]
            return

    def _draw_target(self, random: NamedRandom) -> tuple[int, ...]:
        left = list(self._cluster.shape.broker_ids)
        size = min(FACTORS[random.below(len(FACTORS))], len(left))
        return tuple(left.pop(random.below(len(left))) for _ in range(size))
