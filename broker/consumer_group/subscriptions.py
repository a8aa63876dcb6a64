"""The topics to which members subscribe, by name and by regular expression.

Source: KIP-848, Kafka's ModernGroup, KIP-1101 (metadata hash).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from uuid import UUID

from kraft.broker.consumer_group.state import ConsumerGroup, Subscription
from kraft.broker.consumer_group.topics import TopicsView

HASH_BYTES = 8


def topics_of(group: ConsumerGroup, subscription: Subscription) -> frozenset[str]:
    """Return the topics of a subscription. An expression that is not resolved yet matches none."""
    names, regex = subscription
    resolved = None if regex is None else group.regexes.get(regex)
    return frozenset(names) if resolved is None else frozenset(names).union(resolved.topics)


def subscribed_topics(group: ConsumerGroup) -> frozenset[str]:
    """Return the topics to which some member of the group subscribes."""
    return frozenset().union(*(topics_of(group, subscription) for subscription in group.subscriptions))


def is_regex_used(group: ConsumerGroup, regex: str) -> bool:
    """Return whether some member subscribes with this expression."""
    return any(used == regex for _, used in group.subscriptions)


def ids_of(names: Iterable[str], topics: TopicsView) -> frozenset[UUID]:
    """Return the ids of those topics that exist."""
    found = (topics.get(name) for name in names)
    return frozenset(topic.topic_id for topic in found if topic is not None)


def metadata_hash(names: Iterable[str], topics: TopicsView) -> int:
    """Return a hash of the ids and partition counts of these topics, which differs when an assignment may have to
    change; 0 if none of them exists. It need only equal itself, so it is not Kafka's. A group that moves here from a
    broker of Kafka therefore rebalances once."""
    digest, is_empty = blake2b(digest_size=HASH_BYTES), True
    for name in sorted(names):
        topic = topics.get(name)
        if topic is not None:
            is_empty = False
            digest.update(topic.topic_id.bytes)
            digest.update(topic.partition_count.to_bytes(4))
    return 0 if is_empty else int.from_bytes(digest.digest(), signed=True)
