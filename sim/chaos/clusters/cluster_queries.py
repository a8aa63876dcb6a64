"""Blocking queries of a test cluster's state, for tests of any kind.

Each query runs in its own thread and trio run. So it does not matter whether the test itself runs in trio, asyncio or
neither. Faults of requests do not affect these queries (ONLOOKER_CLIENT_ID).
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

import trio

from kraft.client.admin import (
    Admin,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    PartitionDescription,
    ResourceType,
)
from kraft.client.cluster import ClusterUnreachable
from kraft.client.connections import CONNECTION_FAILURES, VersionMismatch
from kraft.client.core.records import KafkaError
from kraft.seam import Address, WireError, sole_error
from kraft.sim.shapes import ClusterError
from kraft.wire.error_codes import ErrorCode
from kraft.wire.reply_policy import ONLOOKER_CLIENT_ID

Answer = TypeVar("Answer")

LOOK_TIMEOUT_MS = 3_000
CLEAN_TIMEOUT_MS = 10_000
EVICTIONS_MAX = 3
FROM_BIRTH = ("min.insync.replicas",)

_MEMBERS_MOVE = frozenset({ErrorCode.NON_EMPTY_GROUP, ErrorCode.UNKNOWN_MEMBER_ID})
_FAILURES = (*CONNECTION_FAILURES, ClusterUnreachable, VersionMismatch, KafkaError)


def find_partition(brokers: Mapping[int, str], topic: str, partition: int) -> PartitionDescription:
    """Return the partition's newest description: the one with the highest leader epoch, preferably from the leader
    itself. `brokers`: node → address of each broker to query. Raises KafkaError if the partition does not exist,
    ClusterError if no broker answers."""
    found: list[tuple[PartitionDescription, bool]] = []
    failures: list[Exception] = []
    refusal = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{partition}")

    async def look(node: int, address: str) -> None:
        try:
            async with _admin(address, LOOK_TIMEOUT_MS) as admin:
                (described,) = await admin.topics.describe([topic])
            if partition >= len(described.partitions):
                raise refusal
            found.append((described.partitions[partition], described.partitions[partition].leader == node))
        except _FAILURES as failure:
            failures.append(failure)

    async def look_everywhere() -> None:
        async with trio.open_nursery() as nursery:
            for node, address in brokers.items():
                nursery.start_soon(look, node, address)

    ask(look_everywhere)
    if found:
        return max(found, key=lambda one: (one[0].leader_epoch, one[1]))[0]
    if not any(isinstance(failure, KafkaError) for failure in failures):
        raise ClusterError(f"no broker describes {topic}-{partition}: {failures or 'none runs'}")
    raise refusal


def find_partitions(bootstrap_servers: str) -> list[PartitionDescription] | None:
    """Return all partitions as one broker describes them; None if no broker runs, or none answers."""
    if not bootstrap_servers:
        return None

    async def look() -> list[PartitionDescription]:
        async with _admin(bootstrap_servers, LOOK_TIMEOUT_MS) as admin:
            names = [topic.name for topic in await admin.topics.list()]
            described = await admin.topics.describe(names) if names else []
            return [partition for topic in described for partition in topic.partitions]

    try:
        return ask(look)
    except _FAILURES:
        return None


def find_controller(bootstrap_servers: str) -> int | None:
    """Return the leader of the quorum; None if there is none, or no broker answers."""
    if not bootstrap_servers:
        return None

    async def look() -> int | None:
        async with _admin(bootstrap_servers, LOOK_TIMEOUT_MS) as admin:
            return (await admin.nodes.quorum()).leader

    try:
        return ask(look)
    except _FAILURES:
        return None


def find_brokers(bootstrap_servers: str) -> list[int]:
    """Return the brokers that one broker lists as alive; empty if no broker answers."""
    if not bootstrap_servers:
        return []

    async def look() -> list[int]:
        async with _admin(bootstrap_servers, LOOK_TIMEOUT_MS) as admin:
            return [broker.node_id for broker in (await admin.nodes.cluster()).brokers if not broker.is_fenced]

    try:
        return ask(look)
    except _FAILURES:
        return []


def query_cluster(bootstrap_servers: str) -> tuple[dict[int, Address], tuple[int, ...]]:
    """Return the alive brokers with their advertised addresses, and the voters of the quorum. ClusterError if no broker
    answers, or the responses are not those of a cluster that can be examined here."""

    async def look() -> tuple[dict[int, Address], tuple[int, ...]]:
        async with _admin(bootstrap_servers, LOOK_TIMEOUT_MS) as admin:
            cluster = await admin.nodes.cluster()
            quorum = await admin.nodes.quorum()
        brokers = {broker.node_id: broker.address for broker in cluster.brokers if not broker.is_fenced}
        return brokers, tuple(sorted(voter.node_id for voter in quorum.voters))

    try:
        return ask(look)
    except (*_FAILURES, WireError) as failure:
        raise ClusterError(
            f"no Kafka cluster answers at {bootstrap_servers}: {failure}; expected the address of a broker, as clients"
            " use it"
        ) from failure


def clean(bootstrap_servers: str, brokers: Iterable[int], settings: Mapping[str, str]) -> None:
    """Delete all topics except Kafka's internal ones, all groups, and all dynamic configs of brokers, which were
    started with `settings`. Raises ClusterError if that fails."""

    async def clean_all() -> None:
        async with _admin(bootstrap_servers, CLEAN_TIMEOUT_MS) as admin, trio.open_nursery() as nursery:
            for name in ("", *map(str, brokers)):
                nursery.start_soon(_restore_configs, admin, ConfigResource(ResourceType.BROKER, name), settings)
            for group in await admin.groups.list():
                nursery.start_soon(delete_group, admin, group.group_id)
            for topic in await admin.topics.list():
                if not topic.is_internal:
                    nursery.start_soon(admin.topics.delete, topic.name)

    try:
        ask(clean_all)
    except (*_FAILURES, BaseExceptionGroup) as failure:
        raise ClusterError(f"the cluster could not be cleaned: {sole_error(failure)}") from failure


async def _restore_configs(admin: Admin, resource: ConfigResource, settings: Mapping[str, str]) -> None:
    """Delete the dynamic configs of a resource. A cluster-wide config that exists from bootstrap on
    (min.insync.replicas) is set to its original value instead."""
    source = ConfigSource.DYNAMIC_BROKER if resource.name else ConfigSource.DYNAMIC_DEFAULT_BROKER
    changes = []
    for entry in await admin.configs.describe(resource):
        if entry.source is source and (resource.name or entry.name not in FROM_BIRTH):
            changes.append(ConfigChange(ConfigOperation.DELETE, entry.name))
        elif entry.source is source and entry.value != settings[entry.name]:
            changes.append(ConfigChange(ConfigOperation.SET, entry.name, settings[entry.name]))
    if changes:
        await admin.configs.alter(resource, changes)


async def delete_group(admin: Admin, group: str) -> None:
    """Delete a group, removing its remaining members first. Fails if a member joins again and again. Raises
    KafkaError."""
    for attempt in range(1, EVICTIONS_MAX + 1):
        try:
            members = (await admin.groups.describe(group)).members
            if members:
                await admin.groups.remove_members(group, members)
            await admin.groups.delete(group)
        except KafkaError as refusal:
            if refusal.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return
            if refusal.code not in _MEMBERS_MOVE or attempt == EVICTIONS_MAX:
                raise
        else:
            return


def _admin(bootstrap_servers: str, timeout_ms: int) -> Admin:
    return Admin(bootstrap_servers=bootstrap_servers, client_id=ONLOOKER_CLIENT_ID, timeout_ms=timeout_ms)


def ask(question: Callable[[], Awaitable[Answer]]) -> Answer:
    """Run a query in its own thread and trio run, and return its result."""
    answers: list[Answer] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(trio.run(question))
        except BaseException as failure:  # noqa: BLE001 - raised in the asking thread below
            failures.append(failure)

    thread = threading.Thread(target=run, name="kraft onlooker", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return answers[0]
