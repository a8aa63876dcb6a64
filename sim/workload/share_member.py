"""One member of a share group, together with its application.

The application polls, and acknowledges each record in one of several ways. What its client confirms is told to the
checks of `kraft.sim.check.share_groups`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import trio

from kraft.client import Acknowledgement, ShareConsumer
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES
from kraft.client.core.records import KafkaError
from kraft.sim.check.observations import TopicPartition
from kraft.sim.check.share_groups.steps import AcceptConfirmed
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import SHARE_GROUP_OF

LOCK_MS = 2_000
"""Time in ms for which a record is locked; share groups are configured with it."""
HELD_MS = LOCK_MS + 500
POLL_MS_MAX = 1_000
WORK_MS_MAX = 600
AGAIN_MS = 100
RELEASE_ONE_IN, REJECT_ONE_IN, RENEW_ONE_IN = 5, 12, 4
ACCEPTS, DECIDES, RENEWS, DOES_NOT_WAIT = WAYS = (
    "accepts everything",
    "releases and rejects some records",
    "renews some locks",
    "does not wait for its acknowledgements",
)
SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "share_acknowledgement_mode": "explicit",
        "fetch_max_wait_ms": 2_000,
        "request_timeout_ms": 3_000,
        "default_api_timeout_ms": 6_000,
        "metadata_max_age_ms": 8_000,
    }
)
FAILURES = (KafkaError, ClusterUnreachable, *CONNECTION_FAILURES)
"""Errors that clients of share groups, and their administrator, may get while faults last."""


class ShareMemberApplication:
    """One incarnation of a share consumer, together with the application that polls it."""

    def __init__(self, cluster: SimCluster, topics: tuple[str, ...], name: str, way: str) -> None:
        self.name = name
        self.way = way
        self.group = SHARE_GROUP_OF[name]
        self.is_ending = False
        self.holds = False
        """Whether the application acknowledges the next records only after their locks have expired."""
        self.is_over = False
        self.accepted = 0
        """Number of records whose acceptance was confirmed."""
        self._cluster = cluster
        self._world = cluster.world
        self._topics = topics
        self._random = self._world.random.stream(f"{name} {self._world.host(name).lives}")
        self._scope = trio.CancelScope()
        self._is_dead = False

    def die(self) -> None:
        """End the member without notice, as when its process is killed."""
        self._is_dead = self.is_over = True
        self._world.kill(self.name)
        self._scope.cancel()

    async def live(self) -> None:
        """Run until the member is asked to end or is killed. Errors during the teardown of a killed member are
        ignored."""
        if self._is_dead:
            return
        with self._scope:
            try:
                await self._live()
            except Exception as problem:  # noqa: BLE001 - told to the report, unless it is that of a killed host
                if not self._is_dead:
                    self._report_end(problem)
            except BaseExceptionGroup:
                if not self._is_dead:
                    raise
        self.is_over = True

    def _report_end(self, problem: Exception) -> None:
        why = repr(problem)
        self._cluster.report.fail("L8", "a consumer of a share group came to its end", member=self.name, why=why)

    async def _live(self) -> None:
        seam, servers = self._world.node(self.name), self._cluster.shape.bootstrap_servers
        async with ShareConsumer(
            bootstrap_servers=servers, client_id=self.name, group_id=self.group, seam=seam, **SETTINGS
        ) as consumer:
            await consumer.subscribe(list(self._topics))
            while not self.is_ending:
                await self._turn(consumer)

    async def _turn(self, consumer: ShareConsumer) -> None:
        """Poll once, process the records, and acknowledge them."""
        try:
            records = await consumer.poll(timeout_ms=POLL_MS_MAX)
        except FAILURES:
            await self._world.sleep_ms(AGAIN_MS)
            return
        await self._world.sleep_ms(HELD_MS if self.holds and records else 1 + self._random.below(WORK_MS_MAX))
        self.holds = self.holds and not records
        accepted: dict[TopicPartition, list[int]] = {}
        for record in records:
            answer = self._answer_to()
            try:
                consumer.acknowledge(record, answer)
            except ValueError:
                continue  # the session has ended meanwhile, and its records were released
            if answer is Acknowledgement.ACCEPT:
                accepted.setdefault((record.topic, record.partition), []).append(record.offset)
        if self.way == DOES_NOT_WAIT:
            consumer.commit_nowait()
        elif records:
            await self._commit(consumer, accepted)

    def _answer_to(self) -> Acknowledgement:
        """Return what to answer to a record. A record whose lock is renewed is returned again by the next poll."""
        if self.way == RENEWS and self._random.one_in(RENEW_ONE_IN):
            return Acknowledgement.RENEW
        if self.way != DECIDES:
            return Acknowledgement.ACCEPT
        if self._random.one_in(RELEASE_ONE_IN):
            return Acknowledgement.RELEASE
        return Acknowledgement.REJECT if self._random.one_in(REJECT_ONE_IN) else Acknowledgement.ACCEPT

    async def _commit(self, consumer: ShareConsumer, accepted: Mapping[TopicPartition, list[int]]) -> None:
        try:
            results = await consumer.commit()
        except FAILURES:
            return
        for place, error in results.items():
            offsets = tuple(accepted.get(place, ()))
            if error is None and offsets:
                self.accepted += len(offsets)
                self._cluster.watch.tell(AcceptConfirmed(self.name, self.group, place, offsets))
