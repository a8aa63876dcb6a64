"""Throttles of reassignments: the throttled replicas, and the rate that a broker may use for them (KIP-73).

Kafka's tool uses the same settings, so each tool can remove the throttles of the other. The rates are set on all
brokers that take part. The throttled replicas of each topic are the sources of its moves (leader side) and their
destinations (follower side).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kraft.client.admin.values import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from kraft.client.core.records import KafkaError

if TYPE_CHECKING:
    from kraft.client.admin.admin import Admin

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

TopicPartition = tuple[str, int]


def throttled_replicas(
    before: Mapping[TopicPartition, Sequence[int]], after: Mapping[TopicPartition, Sequence[int]]
) -> dict[str, dict[str, str]]:
    """Return the two settings that name the throttled replicas, as `partition:broker,…`, for each topic that is
    moved."""
    sources: dict[str, list[str]] = {}
    destinations: dict[str, list[str]] = {}
    for (topic, index), target in sorted(after.items()):
        held = before[(topic, index)]
        coming = [broker for broker in target if broker not in held]
        if coming:
            sources.setdefault(topic, []).extend(f"{index}:{broker}" for broker in sorted(held))
            destinations.setdefault(topic, []).extend(f"{index}:{broker}" for broker in sorted(coming))
    return {
        topic: {LEADER_REPLICAS: ",".join(sources[topic]), FOLLOWER_REPLICAS: ",".join(named)}
        for topic, named in destinations.items()
    }


async def set_throttle(
    admin: Admin,
    before: Mapping[TopicPartition, Sequence[int]],
    after: Mapping[TopicPartition, Sequence[int]],
    bytes_per_second: int,
) -> None:
    """Throttle these moves before they start. Brokers that are not registered are left out: they have no settings and
    copy nothing. A move to such a broker is rejected later. For a move away from one, other replicas are the source."""
    for topic, settings in throttled_replicas(before, after).items():
        await _set(admin, ConfigResource(ResourceType.TOPIC, topic), settings)
    concerned = {broker for replicas in (*before.values(), *after.values()) for broker in replicas}
    registered = {one.node_id for one in (await admin.nodes.cluster()).brokers}
    rates = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE), str(bytes_per_second))
    for broker in sorted(concerned & registered):
        await _set(admin, ConfigResource(ResourceType.BROKER, str(broker)), rates)


async def remove_throttle(admin: Admin, topics: Iterable[str], brokers: Iterable[int]) -> None:
    """Remove the throttles of these topics and brokers."""
    for topic in sorted(set(topics)):
        await _delete(admin, ConfigResource(ResourceType.TOPIC, topic), (LEADER_REPLICAS, FOLLOWER_REPLICAS))
    for broker in sorted(set(brokers)):
        await _delete(admin, ConfigResource(ResourceType.BROKER, str(broker)), (LEADER_RATE, FOLLOWER_RATE))


async def throttled_topics(admin: Admin, source: int) -> set[str]:
    """Return the topics with a throttled move away from this broker."""
    resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in await admin.topics.list()]
    found = await admin.configs.describe_each(resources, names=[LEADER_REPLICAS])
    named = {
        resource.name: entry.value or ""
        for resource, entries in found.items()
        if not isinstance(entries, KafkaError)
        for entry in entries
    }
    ending = f":{source}"
    return {topic for topic, value in named.items() if any(one.strip().endswith(ending) for one in value.split(","))}


async def _set(admin: Admin, resource: ConfigResource, settings: Mapping[str, str]) -> None:
    changes = [ConfigChange(ConfigOperation.SET, name, value) for name, value in settings.items()]
    await admin.configs.alter(resource, changes)


async def _delete(admin: Admin, resource: ConfigResource, names: Iterable[str]) -> None:
    await admin.configs.alter(resource, [ConfigChange(ConfigOperation.DELETE, name) for name in names])
