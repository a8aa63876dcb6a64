"""The administrator of a run: creates and deletes topics, adds partitions, changes configurations and requests
elections.

Its operations are in the plan. It uses few topic names again and again, so that a controller could lose a change and a
broker could confuse two logs.

Each acknowledged change must be in effect at the end (M11). A topic that was created and not deleted since has its id
and its partitions, and a deleted topic is gone. Settings have the values that they were set to, which `SettingsLedger`
checks. A request without a clear answer may have been carried out, or may still be. Its topic name is not used again,
and is not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from kraft.client.cluster import Cluster, parse_bootstrap
from kraft.image import ConfigResourceType
from kraft.sim.cluster.cluster import SimCluster
from kraft.sim.nemesis.plan import ADD_PARTITION, ADMIN, DELETE, SET_CONFIG, PlannedOperation
from kraft.sim.workload.settings_ledger import SettingsLedger
from kraft.sim.workload.single_requests import NoClearAnswer, NotSent, ask_any_once
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

REQUEST_TIMEOUT_MS = 5_000
RETRY_MS = 50
REPLICATION_FACTOR = 3
PARTITIONS_MAX = 5
PREFERRED = 0
SET_OPERATION = 0
CONFIGS = (
    ("min.insync.replicas", "1"),
    ("min.insync.replicas", "2"),
    ("internal.segment.bytes", "1000"),
    ("retention.bytes", "2000"),
    ("flush.messages", "1"),
)
REFUSED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_PARTITIONS,
    }
)
"""Errors which prove that the request changed nothing."""


class AdminWorker:
    """Client that sends administrative requests to any broker. `living` are the topics that it has created and not
    deleted, by name."""

    def __init__(self, cluster: SimCluster, settings: SettingsLedger | None = None) -> None:
        self.living: dict[str, UUID] = {}
        self.partitions: dict[str, int] = {}
        self.gone: set[str] = set()
        self.done = 0
        """Number of acknowledged requests."""
        self.promises = 0
        """Number of acknowledged requests whose effect is checked at the end: those about topics and their partitions.
        """
        self._settings = settings or SettingsLedger(cluster)
        self._unsure: set[str] = set()
        self._number = 0
        self._names: dict[int, str] = {}
        """Number of an extra topic in the plan → the name that the topic has now. If the outcome of a request is
        unclear, the number gets a new name."""
        self._cluster = cluster
        self._world = cluster.world
        self._client = Cluster(
            parse_bootstrap(cluster.shape.bootstrap_servers), self._world.node(ADMIN), client_id=ADMIN
        )

    # requests

    async def create(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic, retrying until the topic exists."""
        good = False
        asked = self._settings.ask(ADMIN, ConfigResourceType.TOPIC, name, configs or {})
        while not good:
            try:
                code, _ = await self._create(name, partitions, configs or {})
                good = code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            except NoClearAnswer:
                await self._world.sleep_ms(RETRY_MS)
        self._settings.acknowledge(asked)

    async def _create(self, name: str, partitions: int, configs: Mapping[str, str]) -> tuple[ErrorCode, UUID]:
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": min(REPLICATION_FACTOR, self._cluster.shape.brokers),
            "configs": tuple({"name": key, "value": value} for key, value in configs.items()),
        }
        answer = await self._ask(ApiKey.CREATE_TOPICS, topics=(topic,), timeout=messages.duration(REQUEST_TIMEOUT_MS))
        return self._clear(answer.topics[0].error_code), answer.topics[0].topic_id

    async def _ask(self, key: ApiKey, **fields: Any) -> Any:
        """Send a request to one broker, at most once."""
        try:
            return await ask_any_once(self._client, key, timeout_ms=REQUEST_TIMEOUT_MS, **fields)
        except NotSent:
            await self._world.sleep_ms(RETRY_MS)
            raise

    @staticmethod
    def _clear(error: Any) -> ErrorCode:
        code = ErrorCode(int(error))
        if code is ErrorCode.NONE or code in REFUSED:
            return code
        raise NoClearAnswer(code.name)

    # work

    async def run(self, work: Iterable[PlannedOperation]) -> None:
        """Carry out these operations in order, one at a time."""
        start_ns = self._world.now_ns
        for operation in work:
            await self._world.sleep_until_ns(start_ns + operation.at_ms * 1_000_000)
            await self._carry_out(operation)

    async def _carry_out(self, operation: PlannedOperation) -> None:
        name = self._name_in(operation.target)
        chronicle = self._cluster.watch.chronicle
        verb = operation.verb if name in self.living else "create"
        told = chronicle.begin_operation(ADMIN, f"{verb} {name}")
        self._unsure.add(name)
        try:
            code = await self._work_on(name, operation)
        except NoClearAnswer as problem:
            chronicle.end_operation(told, f"unknown {problem}".strip(), None)
            del self._names[operation.target]
            self.living.pop(name, None)
        else:
            is_done = code is ErrorCode.NONE
            chronicle.end_operation(told, "done" if is_done else code.name, is_done)
            self.done += is_done
            self._unsure.discard(name)

    def _name_in(self, slot: int) -> str:
        if slot not in self._names:
            self._number += 1
            self._names[slot] = f"extra-{self._number}"
        return self._names[slot]

    async def _work_on(self, name: str, operation: PlannedOperation) -> ErrorCode:
        """Carry out one operation. Return NONE if it succeeded, or the error with which nothing was changed."""
        topic_id = self.living.get(name)
        if topic_id is None:
            count = 1 + operation.amount % 2
            code, created = await self._create(name, count, {})
            if code is not ErrorCode.NONE:
                raise NoClearAnswer(code.name)
            self.living[name], self.partitions[name] = created, count
            self.gone.discard(name)
            self.promises += 1
        elif operation.verb == DELETE:
            del self.living[name]
            asked = self._settings.delete(ADMIN, name)
            await self._delete(topic_id)
            self._settings.acknowledge(asked)
            self.gone.add(name)
            self.promises += 1
        elif operation.verb == ADD_PARTITION and self.partitions[name] < PARTITIONS_MAX:
            await self._add_partition(name)
            self.promises += 1
        elif operation.verb == SET_CONFIG:
            return await self._set_config(name, *CONFIGS[operation.amount % len(CONFIGS)])
        else:
            await self._ask(
                ApiKey.ELECT_LEADERS, election_type=PREFERRED, topic_partitions=None, timeout=messages.duration(1_000)
            )
        return ErrorCode.NONE

    async def _delete(self, topic_id: UUID) -> None:
        """Delete a topic by its id, so that a request that arrives late does not delete a newer topic of the
        same name."""
        topics = ({"name": None, "topic_id": topic_id},)
        answer = await self._ask(ApiKey.DELETE_TOPICS, topics=topics, timeout=messages.duration(REQUEST_TIMEOUT_MS))
        self._clear(answer.responses[0].error_code)

    async def _add_partition(self, name: str) -> None:
        topic = {"name": name, "count": self.partitions[name] + 1, "assignments": None}
        answer = await self._ask(
            ApiKey.CREATE_PARTITIONS, topics=(topic,), timeout=messages.duration(REQUEST_TIMEOUT_MS)
        )
        if self._clear(answer.results[0].error_code) is not ErrorCode.NONE:
            raise NoClearAnswer
        self.partitions[name] += 1

    async def _set_config(self, name: str, key: str, value: str) -> ErrorCode:
        """Set one configuration key of a topic. A controller that was replaced and has not noticed may not know the
        topic."""
        asked = self._settings.ask(ADMIN, ConfigResourceType.TOPIC, name, {key: value})
        change = {"name": key, "config_operation": SET_OPERATION, "value": value}
        resource = {"resource_type": 2, "resource_name": name, "configs": (change,)}
        answer = await self._ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=(resource,))
        code = self._clear(answer.responses[0].error_code)
        if code is ErrorCode.NONE:
            self._settings.acknowledge(asked)
        return code

    # checks at the end of the run

    def judge(self) -> None:
        """Compare the acknowledged changes with the committed metadata at the end."""
        topics, fail = self._cluster.image.topics, self._cluster.report.fail
        for name, topic_id in self.living.items():
            topic = topics.get(name)
            if name in self._unsure:
                continue
            if topic is None or topic.topic_id != topic_id:
                fail("M11", "a topic that was created is not there", topic=name)
            elif sum(1 for _ in topic.partitions()) != self.partitions[name]:
                fail("M11", "partitions that were added are not there", topic=name, due=self.partitions[name])
        for name in sorted(self.gone - self._unsure - self.living.keys()):
            if name in topics.names:
                fail("M11", "a topic that was deleted is still there", topic=name)

    def close(self) -> None:
        self._client.close()
