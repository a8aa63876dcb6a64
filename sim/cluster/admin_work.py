"""The administrator of a run: creates topics and deletes them again, so that the controllers have work to lose.

What was acknowledged must be so in the end: a topic that was created and not asked to be deleted is there, one whose
deletion was acknowledged is not (M11). Requests without an answer may have been carried out, or may be yet.
"""

from __future__ import annotations

from typing import Any

from kraft.client.cluster import Cluster, ClusterUnreachable, parse_bootstrap
from kraft.sim.cluster.cluster import SimCluster
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

REQUEST_TIMEOUT_MS = 5_000
RETRY_MS = 50
EXTRA_TOPICS_MAX = 3
PAUSE_MS_MAX = 2_000
CREATED = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})
DELETED = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class Admin:
    """One client for administration, over any broker."""

    def __init__(self, cluster: SimCluster) -> None:
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.unsure: set[str] = set()
        """Topics about which a request is, or was, without an answer."""
        self._cluster = cluster
        self._world = cluster.world
        self._client = Cluster(
            parse_bootstrap(cluster.shape.bootstrap_servers), self._world.node("admin"), client_id="admin"
        )

    async def create(self, name: str, partitions: int) -> None:
        """Create a topic, asking until it is there."""
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 3}
        timeout = messages.duration(REQUEST_TIMEOUT_MS)
        request = messages.build(messages.request_class(ApiKey.CREATE_TOPICS), topics=(topic,), timeout=timeout)
        await self._ask(ApiKey.CREATE_TOPICS, request, lambda answer: answer.topics[0].error_code, CREATED)

    async def delete(self, name: str) -> None:
        """Delete a topic, asking until it is gone."""
        timeout = messages.duration(REQUEST_TIMEOUT_MS)
        request = messages.build(
            messages.request_class(ApiKey.DELETE_TOPICS), topics=({"name": name, "topic_id": None},), timeout=timeout
        )
        await self._ask(ApiKey.DELETE_TOPICS, request, lambda answer: answer.responses[0].error_code, DELETED)

    async def _ask(self, key: ApiKey, request: Any, error_of: Any, good: frozenset[ErrorCode]) -> None:
        while True:
            try:
                answer = await self._client.ask_any(key, request, timeout_ms=REQUEST_TIMEOUT_MS)
            except ClusterUnreachable:
                continue
            if ErrorCode(int(error_of(answer))) in good:
                return
            await self._world.sleep_ms(RETRY_MS)

    async def run(self) -> None:
        """Create and delete until cancelled."""
        random = self._world.random.stream("admin")
        number = 0
        while True:
            await self._world.sleep_ms(random.below(PAUSE_MS_MAX))
            living = [name for name in self.created if name not in self.deleted]
            if len(living) >= EXTRA_TOPICS_MAX or (living and not random.below(3)):
                name = living[random.below(len(living))]
                self.unsure.add(name)
                await self.delete(name)
                self.deleted.append(name)
            else:
                number += 1
                name = f"extra-{number}"
                self.unsure.add(name)
                await self.create(name, partitions=1 + random.below(2))
                self.created.append(name)
            self.unsure.discard(name)

    def judge(self) -> None:
        """Compare what was acknowledged with what is committed in the end."""
        names = self._cluster.image.topics.names
        fail = self._cluster.report.fail
        for name in self.created:
            if name not in names and name not in self.deleted and name not in self.unsure:
                fail("M11", "a topic that was created is not there", topic=name)
        for name in self.deleted:
            if name in names and name not in self.unsure:
                fail("M11", "a topic that was deleted is still there", topic=name)

    def close(self) -> None:
        self._client.close()
