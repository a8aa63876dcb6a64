"""Throttled reassignments, in the steps of kafka-reassign-partitions (KIP-73).

First the rate of brokers and the names of the throttled replicas are set, then the reassignment starts. The throttle is
removed when the reassignment is complete or takes too long.

A request whose answer is lost may be carried out late. So whether there is a throttle to remove is read from the
metadata, until the end of a run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

from kraft.client.admin import Admin
from kraft.client.admin.reassign_throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    remove_throttle,
    set_throttle,
)
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import KafkaError
from kraft.seam import Seam
from kraft.sim.check.observations import TopicPartition
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import MOVER, THROTTLED_MOVE
from kraft.sim.workload.planned_requests import REQUEST_TIMEOUT_MS
from kraft.sim.world.chance import NamedRandom

RATES_BYTES = (200, 800, 3_000, 12_000)
"""Throttle rates in bytes per second. Partitions have a few bytes to a hundred thousand bytes, so some reassignments
complete under the throttle."""
MOVE_MS_MAX = 4_000
"""Time after which the throttle is removed, whatever the state of the reassignment."""
LIFT_PAUSE_MS = 300

Ask = Callable[[str, int, tuple[int, ...]], Awaitable[None]]
REFUSED = (KafkaError, ClusterUnreachable, *CONNECTION_FAILURES)


class Throttles:
    """Sets and removes throttles. `begun` counts the throttled reassignments."""

    def __init__(self, cluster: SimCluster, seam: Seam) -> None:
        self.begun = 0
        self._cluster = cluster
        self._seam = seam

    async def move(self, place: TopicPartition, target: tuple[int, ...], pick: int, ask: Ask) -> None:
        """Set a throttle, request the reassignment by `ask`, and remove the throttle when the reassignment is
        complete."""
        topic = self._cluster.image.topics.get(place[0])
        assert topic is not None, "it is there, for it was chosen just now"
        self.begun += 1
        rate = RATES_BYTES[NamedRandom(self._cluster.world.seed, f"rate {pick}").below(len(RATES_BYTES))]
        chronicle = self._cluster.watch.chronicle
        told = chronicle.begin_operation(MOVER, f"{THROTTLED_MOVE} of {place[0]}-{place[1]}, {rate} bytes a second")
        async with self._connected() as admin:
            with suppress(*REFUSED):
                await set_throttle(admin, {place: topic.partition(place[1]).replicas}, {place: target}, rate)
                await ask(*place, target)
            is_done = await self._cluster.wait_until(lambda: not self._moves(place), MOVE_MS_MAX)
            await self._lift(admin)
        chronicle.end_operation(told, "done" if is_done else "lifted before its end", is_done or None)

    async def keep_lifting(self) -> None:
        """Remove any remaining throttle, repeatedly until cancelled; do nothing if none was ever set."""
        async with self._connected() as admin:
            while self.begun:
                await self._lift(admin)
                await self._cluster.world.sleep_ms(LIFT_PAUSE_MS)

    def _connected(self) -> Admin:
        servers = self._cluster.shape.bootstrap_servers
        return Admin(bootstrap_servers=servers, timeout_ms=REQUEST_TIMEOUT_MS, seam=self._seam)

    def _moves(self, place: TopicPartition) -> bool:
        topic = self._cluster.image.topics.get(place[0])
        state = None if topic is None else topic.find(place[1])
        return state is not None and state.is_reassigning

    async def _lift(self, admin: Admin) -> None:
        """Remove the throttle, retrying until none is set."""
        while existing := (list(self._throttled_topics()), list(self._throttled_brokers())):
            if not any(existing):
                return
            with suppress(*REFUSED):
                await remove_throttle(admin, *existing)
            await self._cluster.world.sleep_ms(LIFT_PAUSE_MS)

    def _throttled_topics(self) -> Iterator[str]:
        image = self._cluster.image
        for topic in image.topics:
            if {LEADER_REPLICAS, FOLLOWER_REPLICAS} & image.topic_configs(topic.name).keys():
                yield topic.name

    def _throttled_brokers(self) -> Iterator[int]:
        image = self._cluster.image
        for broker in self._cluster.shape.broker_ids:
            if {LEADER_RATE, FOLLOWER_RATE} & image.broker_configs(broker).keys():
                yield broker
