"""HostedReplicas: finding a replica by partition number, and iterating over replicas while others are added and
removed.
"""

from __future__ import annotations

import random
import sys
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kraft.broker.partition.hosted import LEAF_SHIFT, HostedReplicas

TOPICS = [UUID(int=number + 1) for number in range(3)]


def replica(topic: UUID, index: int) -> Any:
    return SimpleNamespace(topic_id=topic, index=index)


def test_hosted_replicas_contain_exactly_the_replicas_that_were_added_and_not_removed() -> None:
    chance = random.Random(1)
    hosted, naive = HostedReplicas(), dict[tuple[UUID, int], Any]()
    for _ in range(5_000):
        key = chance.choice(TOPICS), chance.randrange(3_000)
        if key in naive and chance.random() < 0.6:
            hosted.discard(naive.pop(key))
        elif key not in naive:
            naive[key] = replica(*key)
            hosted.add(naive[key])
        hosted.discard(replica(*key))
        assert len(hosted) == len(naive)
        topic = hosted.topic(key[0])
        assert (None if topic is None else topic.get(key[1])) is naive.get(key)
    assert {id(one) for one in hosted} == {id(one) for one in naive.values()}
    for one in list(hosted):
        hosted.discard(one)
    assert not len(hosted)
    assert all(hosted.topic(topic) is None for topic in TOPICS)


def test_an_iteration_over_many_turns_yields_each_remaining_replica_once() -> None:
    chance = random.Random(2)
    hosted = HostedReplicas()
    stays = [replica(topic, index) for topic in TOPICS for index in range(0, 5_000, 2)]
    goes = [replica(topic, index) for topic in TOPICS for index in range(1, 5_000, 2)]
    chance.shuffle(goes)
    for one in (*stays, *goes):
        hosted.add(one)
    new_topic = UUID(int=99)
    met = []
    for number, one in enumerate(hosted):
        met.append(one)
        if goes:
            hosted.discard(goes.pop())
        hosted.add(replica(new_topic if number % 2 else TOPICS[0], 10_000 + number))
    met_ids = [id(one) for one in met]
    assert len(met_ids) == len(set(met_ids))
    assert {id(one) for one in stays} <= set(met_ids)


def test_hosted_replicas_of_a_large_topic_are_stored_in_several_small_containers() -> None:
    hosted = HostedReplicas()
    for index in range(100_000):
        hosted.add(replica(TOPICS[0], index))
    topic = hosted.topic(TOPICS[0])
    assert topic is not None
    leaves = topic._leaves
    assert max(map(sys.getsizeof, (leaves, *leaves.values()))) < 100 << LEAF_SHIFT
