"""Metadata images: replay, deltas, dumps, digests, and sizes."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.broker.serving import request_versions as answers
from kraft.image import (
    ConfigResourceType,
    Event,
    ImageBuilder,
    ImageDelta,
    MetadataImage,
    PartitionState,
    ReplayFailed,
    digest,
    dump,
    replay,
    replay_with_delta,
)
from kraft.image.dump import Digester
from kraft.image.events import (
    BrokerRegistrationChange,
    ClearElr,
    ClusterIdentity,
    Config,
    FeatureLevel,
    NoOp,
    Partition,
    PartitionChange,
    ProducerIds,
    RegisterBroker,
    RegisterController,
    RemoveTopic,
    Topic,
    UnregisterBroker,
)
from kraft.image.registrations import Endpoint
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey

EMPTY = MetadataImage()


def identity(number: int) -> UUID:
    return UUID(int=(1 << 100) + number)


def image_of(*events: Event, base: MetadataImage = EMPTY) -> MetadataImage:
    return replay(base, events, base.offset + len(events), 1)


def topic_events(name: str, number: int, partitions: int) -> list[Event]:
    return [
        Topic(name, identity(number)),
        *(Partition(identity(number), index, (1, 2), (1, 2), leader=1) for index in range(partitions)),
    ]


def small_cluster() -> MetadataImage:
    return image_of(
        ClusterIdentity("c"),
        FeatureLevel("metadata.version", 27, "0.1.0"),
        RegisterController(101, identity(101)),
        RegisterBroker(1, identity(51), 3),
        RegisterBroker(2, identity(52), 4),
        BrokerRegistrationChange(1, 3, fenced=False),
        *topic_events("orders", 1, 3),
        *topic_events("users", 2, 600),
        Config(2, "orders", "retention.ms", "5"),
        Config(4, "", "min.insync.replicas", "1"),
        PartitionChange(identity(1), 1, isr=(), leader=-1, elr=(1,), last_known_elr=(1,)),
        ProducerIds(1, 3, 1000),
    )


def test_topic_image_keeps_its_partitions_in_order() -> None:
    topic = small_cluster().topics.get("users")
    assert topic is not None
    assert topic.partition_count == 600
    assert [index for index, _ in topic.partitions()] == list(range(600))
    assert topic.partition(599).leader == 1
    assert topic.find(600) is None
    with pytest.raises(KeyError):
        topic.partition(-1)


def test_partition_change_raises_the_leader_and_partition_epochs() -> None:
    image = image_of(*topic_events("orders", 1, 1))
    image = image_of(PartitionChange(identity(1), 0, isr=(1,)), base=image)
    first = image.topics.get("orders").partition(0)  # type: ignore[union-attr]
    assert (first.leader_epoch, first.partition_epoch) == (0, 1)
    image = image_of(PartitionChange(identity(1), 0, leader=1), base=image)
    second = image.topics.get("orders").partition(0)  # type: ignore[union-attr]
    assert (second.leader_epoch, second.partition_epoch) == (1, 2)


def test_replay_does_not_change_its_base_image() -> None:
    image = small_cluster()
    before = digest(image)
    image_of(RemoveTopic(identity(1)), PartitionChange(identity(2), 300, isr=(1,)), base=image)
    assert digest(image) == before


def test_images_before_and_after_a_replay_share_unchanged_blocks_of_partitions() -> None:
    image = small_cluster()
    changed = image_of(PartitionChange(identity(2), 300, isr=(1,)), base=image)
    old, new = image.topics.get("users"), changed.topics.get("users")
    assert old is not None
    assert new is not None
    assert [mine is theirs for mine, theirs in zip(old.leaves, new.leaves, strict=True)] == [True, False, True]
    assert changed.topics.get("orders") is image.topics.get("orders")


def test_dump_of_an_image_replays_to_the_same_image() -> None:
    image = small_cluster()
    again = replay(EMPTY, dump(image), image.offset, image.epoch)
    assert again == image
    assert digest(again) == digest(image)


def test_image_digest_changes_with_any_difference() -> None:
    image = small_cluster()
    changes: list[Event] = [
        NoOp(),
        Config(2, "orders", "retention.ms", "6"),
        PartitionChange(identity(2), 599, isr=(1,)),
        BrokerRegistrationChange(2, 4, fenced=False),
        ProducerIds(1, 3, 2000),
        RemoveTopic(identity(1)),
    ]
    digests = {digest(image), *(digest(image_of(change, base=image)) for change in changes)}
    assert len(digests) == len(changes) + 1


def test_reused_digester_gives_the_same_digests_as_a_fresh_one() -> None:
    digester, image = Digester(), small_cluster()
    changes: list[Event] = [
        PartitionChange(identity(2), 599, isr=(1,)),
        Config(2, "orders", "retention.ms", "6"),
        PartitionChange(identity(2), 300, isr=(1,)),
        BrokerRegistrationChange(2, 4, fenced=False),
        ProducerIds(1, 3, 2000),
        RemoveTopic(identity(1)),
        Topic("orders", identity(9)),
    ]
    assert digester.digest(image) == digest(image)
    for change in changes:
        before, image = image, image_of(change, base=image)
        assert digester.digest(image) == digest(image)
    assert digester.digest(before) == digest(before)


DIGEST_PROGRAM = """
from kraft.image import digest
from tests.image.test_replay import small_cluster
print(digest(small_cluster()))
"""


def test_image_digest_is_the_same_in_every_process() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", DIGEST_PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {digest(small_cluster())}


WRONG: list[Event] = [
    Topic("orders", identity(9)),
    Topic("new", identity(1)),
    Partition(identity(9), 0, (1,), (1,)),
    Partition(identity(1), 5, (1,), (1,)),
    PartitionChange(identity(1), 3, isr=()),
    PartitionChange(identity(1), -1, isr=()),
    PartitionChange(identity(9), 0, isr=()),
    RemoveTopic(identity(9)),
    UnregisterBroker(9, 1),
    UnregisterBroker(1, 2),
    BrokerRegistrationChange(1, 2, fenced=True),
    Config(99, "orders", "retention.ms", "5"),
    ProducerIds(1, 3, 999),
    ClearElr("gone"),
    ClusterIdentity("other"),
]


@pytest.mark.parametrize("event", WRONG, ids=repr)
def test_event_that_does_not_fit_the_image_fails_replay(event: Event) -> None:
    with pytest.raises(ReplayFailed, match="does not fit"):
        image_of(event, base=small_cluster())


def test_resource_is_removed_from_the_configs_of_the_image_with_its_last_override() -> None:
    image = image_of(Config(2, "orders", "retention.ms", None), base=small_cluster())
    assert (ConfigResourceType.TOPIC, "orders") not in image.configs
    assert dict(image.topic_configs("orders")) == {}


def test_broker_configs_override_cluster_defaults() -> None:
    image = image_of(
        Config(4, "1", "log.cleaner.threads", "2"), Config(4, "", "log.cleaner.threads", "1"), base=small_cluster()
    )
    assert image.broker_configs(1)["log.cleaner.threads"] == "2"
    assert image.broker_configs(2)["log.cleaner.threads"] == "1"


def test_image_delta_lists_exactly_the_changes_of_a_replay() -> None:
    old = small_cluster()
    new, delta = replay_with_delta(
        old,
        [
            RemoveTopic(identity(1)),
            *topic_events("orders", 3, 2),
            PartitionChange(identity(2), 300, isr=(1,)),
            BrokerRegistrationChange(2, 4, fenced=False),
            Config(4, "", "log.cleaner.threads", "1"),
            FeatureLevel("group.version", 1),
            RegisterController(102, identity(102)),
        ],
        old.offset + 8,
        1,
    )
    assert {one.name: (one.partitions, one.created) for one in delta.topics.values()} == {
        "orders": ((0, 1), True),
        "users": ((300,), False),
    }
    assert delta.deleted_topics == {identity(1): "orders"}
    assert (delta.brokers, delta.controllers, delta.features) == ((2,), (102,), ("group.version",))
    assert delta.configs == ((ConfigResourceType.TOPIC, "orders"), (ConfigResourceType.BROKER, ""))
    assert ImageDelta.between(old, new) == delta


def test_topic_created_and_deleted_in_one_batch_is_not_in_the_delta() -> None:
    old = small_cluster()
    new, delta = replay_with_delta(old, [*topic_events("brief", 7, 1), RemoveTopic(identity(7))], old.offset + 3, 1)
    assert delta.is_empty
    assert ImageDelta.between(old, new).is_empty


def test_delta_to_a_snapshot_deletes_what_the_snapshot_lacks() -> None:
    old = small_cluster()
    snapshot = image_of(ClusterIdentity("c"), RegisterBroker(2, identity(52), 4))
    delta = ImageDelta.between(old, snapshot)
    assert delta.deleted_topics == {identity(1): "orders", identity(2): "users"}
    assert delta.brokers == (1,)
    assert (ConfigResourceType.TOPIC, "orders") in delta.configs


@pytest.mark.parametrize("node_id", [-1, 2**31, 2**63])
def test_registration_with_an_unencodable_node_id_is_not_in_the_image(node_id: int) -> None:
    """Earlier releases accepted such registrations, and no client can unregister them."""
    image = image_of(
        RegisterBroker(node_id, identity(9), 5),
        BrokerRegistrationChange(node_id, 5, fenced=False),
        RegisterController(node_id, identity(9)),
        base=small_cluster(),
    )
    assert image.brokers == small_cluster().brokers
    assert image.controllers == small_cluster().controllers
    assert image_of(UnregisterBroker(node_id, 5), base=image).brokers == small_cluster().brokers


@pytest.mark.parametrize("port", [-1, 65_536, 2**40])
def test_registration_with_unencodable_endpoints_is_described_and_unregistered(port: int) -> None:
    endpoints = (Endpoint("A", "a", port), Endpoint("B", "b" * 40_000, 9092), Endpoint("C", "c", 65_535))
    image = image_of(RegisterBroker(1, identity(9), 5, endpoints, rack="r" * 40_000))
    broker = image.brokers[1]
    assert [endpoint.port for endpoint in broker.endpoints] == [0, 9092, 65_535]
    entry = answers.kind(ApiKey.DESCRIBE_CLUSTER, "DescribeClusterBroker")
    for endpoint in broker.endpoints:
        row = entry(broker_id=1, host=endpoint.host, port=endpoint.port, rack=broker.rack, is_fenced=True)
        response = messages.build(messages.response_class(ApiKey.DESCRIBE_CLUSTER), brokers=[row])
        for version in range(3):
            assert messages.encode_response(ApiKey.DESCRIBE_CLUSTER, version, response)
    assert not image_of(UnregisterBroker(1, 5), base=image).brokers


def test_clear_elr_affects_only_partitions_with_an_elr_and_a_non_empty_isr() -> None:
    image = image_of(PartitionChange(identity(1), 0, isr=(1,), elr=(2,)), base=small_cluster())
    image = image_of(ClearElr(), base=image)
    topic = image.topics.get("orders")
    assert topic is not None
    assert [topic.partition(index).elr for index in range(3)] == [(), (1,), ()]
    assert [topic.partition(index).partition_epoch for index in range(3)] == [2, 1, 0]


operations = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.integers(0, 5), st.integers(1, 300)),
        st.tuples(st.just("delete"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("change"), st.integers(0, 5), st.integers(0, 400)),
        st.tuples(st.just("grow"), st.integers(0, 5), st.integers(1, 300)),
        st.tuples(st.just("move"), st.integers(0, 5), st.integers(0, 400)),
        st.tuples(st.just("config"), st.integers(0, 5), st.integers(0, 2)),
    ),
    max_size=25,
)


@given(operations=operations, cut=st.integers(0, 25))
def test_replay_in_pieces_agrees_with_a_simple_reference_implementation(
    operations: list[tuple[str, int, int]], cut: int
) -> None:
    twin: dict[str, list[PartitionState]] = {}
    ids: dict[str, int] = {}
    image = EMPTY
    pending: list[Event] = []
    number = 0
    for position, (kind, which, amount) in enumerate(operations):
        name = f"topic-{which}"
        if kind == "create" and name not in twin:
            number += 1
            ids[name] = number
            pending += topic_events(name, number, amount)
            twin[name] = [PartitionState((1, 2), (1, 2), 1, 0, 0)] * amount
        elif kind == "delete" and name in twin:
            pending.append(RemoveTopic(identity(ids[name])))
            del twin[name]
        elif kind == "change" and name in twin:
            index = amount % len(twin[name])
            pending.append(PartitionChange(identity(ids[name]), index, isr=(2,), leader=2))
            old = twin[name][index]
            twin[name] = list(twin[name])
            twin[name][index] = PartitionState(old.replicas, (2,), 2, old.leader_epoch + 1, old.partition_epoch + 1)
        elif kind == "move" and name in twin:
            index = amount % len(twin[name])
            old, replicas = twin[name][index], (2, 3 + amount % 3)
            pending.append(PartitionChange(identity(ids[name]), index, replicas=replicas, isr=(2,), leader=2))
            twin[name] = list(twin[name])
            twin[name][index] = PartitionState(replicas, (2,), 2, old.leader_epoch + 1, old.partition_epoch + 1)
        elif kind == "grow" and name in twin:
            start = len(twin[name])
            pending += [Partition(identity(ids[name]), start + one, (1, 2), (1, 2), leader=1) for one in range(amount)]
            twin[name] = twin[name] + [PartitionState((1, 2), (1, 2), 1, 0, 0)] * amount
        if position == cut:
            image, pending = image_of(*pending, base=image), []
    before = image
    image, delta = replay_with_delta(image, pending, image.offset + len(pending), 1)
    assert {topic.name: [state for _, state in topic.partitions()] for topic in image.topics} == twin
    assert image.topics.names == tuple(sorted(twin))
    held = Counter(replica for states in twin.values() for state in states for replica in state.replicas)
    assert +Counter(image.topics.replica_counts) == held
    for topic in image.topics:
        states = twin[topic.name]
        assert +Counter(topic.partition_counts.replicas) == Counter(one for state in states for one in state.replicas)
        assert +Counter(topic.partition_counts.preferred) == Counter(state.replicas[0] for state in states)
    assert replay(EMPTY, dump(image), image.offset, image.epoch) == image
    real = ImageDelta.between(before, image)
    assert set(real.topics) <= set(delta.topics)
    assert real.deleted_topics == delta.deleted_topics


def test_replica_counts_of_brokers_change_when_a_partition_moves() -> None:
    image = image_of(*topic_events("orders", 1, 3))
    image = image_of(PartitionChange(identity(1), 1, replicas=(3, 2), isr=(2,)), base=image)
    topic = image.topics.get("orders")
    assert topic is not None
    assert +Counter(topic.partition_counts.replicas) == {1: 2, 2: 3, 3: 1}
    assert +Counter(topic.partition_counts.preferred) == {1: 2, 3: 1}


def test_topic_image_counts_its_partitions_being_reassigned() -> None:
    def reassigning(*changes: PartitionChange, base: MetadataImage) -> tuple[int, MetadataImage]:
        image = image_of(*changes, base=base)
        topic = image.topics.get("orders")
        assert topic is not None
        return topic.partition_counts.reassigning, image

    count, image = reassigning(base=image_of(*topic_events("orders", 1, 3)))
    assert count == 0
    begin = [PartitionChange(identity(1), index, replicas=(1, 2, 3), adding=(3,)) for index in (0, 2)]
    count, image = reassigning(*begin, PartitionChange(identity(1), 0, isr=(1, 2)), base=image)
    assert count == 2
    count, image = reassigning(PartitionChange(identity(1), 0, adding=()), base=image)
    assert count == 1
    assert reassigning(PartitionChange(identity(1), 2, adding=(), removing=(1,)), base=image)[0] == 1
    assert reassigning(PartitionChange(identity(1), 2, replicas=(1, 2), adding=()), base=image)[0] == 0


@pytest.mark.slow
def test_image_of_a_hundred_thousand_partitions_needs_little_memory() -> None:
    builder = ImageBuilder(EMPTY)
    directory = UUID(int=1 << 90)
    tracemalloc.start()
    try:
        for topic in range(100):
            builder.apply(Topic(f"topic-{topic:03}", identity(topic)))
            for index in range(1_000):
                first = (topic + index) % 6
                replicas = (first, (first + 1) % 6, (first + 2) % 6)
                builder.apply(
                    Partition(identity(topic), index, replicas, replicas, leader=first, directories=(directory,) * 3)
                )
        image = builder.build(100_100, 1)
        del builder
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(topic.partition_count for topic in image.topics) == 100_000
    assert used < 40 * 1024 * 1024
