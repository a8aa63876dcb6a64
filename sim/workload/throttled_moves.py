"""Moves of partitions that are throttled, as kafka-reassign-partitions does it (KIP-73): first the rate of brokers and
the names of the replicas, then the move, and when it has come to its end or takes too long the throttle is lifted.

A request whose answer is lost may be carried out late, so what stands in the metadata says whether there is anything to
lift, and that is looked at to the end of a run.
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
    lift_throttle,
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
"""A second. Partitions have a few to a hundred thousand bytes: some moves come to their end by themselves."""
MOVE_MS_MAX = 4_000
"""Then the throttle is lifted whatever has become of the move."""
LIFT_PAUSE_MS = 300

Ask = Callable[[str, int, tuple[int, ...]], Awaitable[None]]
REFUSED = (KafkaError, ClusterUnreachable, *CONNECTION_FAILURES)


class Throttles:
    """`begun` counts the moves that were throttled."""

    def __init__(self, cluster: SimCluster, seam: Seam) -> None:
        self.begun = 0
        self._cluster = cluster
        self._seam = seam

    async def move(self, place: TopicPartition, target: tuple[int, ...], pick: int, ask: Ask) -> None:
        """Set a throttle, `ask` for the move, and lift it when the partition rests."""
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
        """No throttle stands for long from here on, if there were any. Until cancelled."""
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
        """Until none stands."""
        while standing := (list(self._throttled_topics()), list(self._throttled_brokers())):
            if not any(standing):
                return
            with suppress(*REFUSED):
                await lift_throttle(admin, *standing)
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
