"""Metadata: brokers, topics and partitions as clients see them, in every version."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from kraft.broker.api import metadata as module
from kraft.broker.api.metadata_partitions import Describe, PartitionsWriter
from kraft.broker.serving import turns
from kraft.broker.serving.gates import CLUSTER, Operation
from kraft.image import Event, ImageDelta, MetadataImage, TopicImage, events, replay
from kraft.seam import CloseReason
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.compiled_readers import compile_reader
from kraft.wire.messages.quirks import MessageDirection
from tests.stages.broker_harness import CLUSTER_ID, BrokerHarness, Denying
from tests.stages.images import (
    DIRECTORY,
    INTERNAL,
    ORDERS,
    OTHER_DIRECTORY,
    UNKNOWN,
    broker_event,
    image_of,
    orders,
    three_brokers,
)

VERSIONS = range(14)
METADATA = ApiKey.METADATA


def asked(*names: str) -> list[Any]:
    topic = messages.nested_class(messages.request_class(METADATA), "topics")
    return [messages.build(topic, name=name) for name in names]


def asked_by_id(*ids: Any) -> list[Any]:
    topic = messages.nested_class(messages.request_class(METADATA), "topics")
    return [messages.build(topic, name=None, topic_id=topic_id) for topic_id in ids]


@pytest.fixture
def image() -> MetadataImage:
    return image_of(*three_brokers(), *orders())


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_lists_only_unfenced_brokers_that_have_the_clients_listener(
    image: MetadataImage, version: int
) -> None:
    inside = BrokerHarness(image).ask(METADATA, version, topics=None)
    assert [(b.node_id, b.host, b.port) for b in inside.brokers] == [(1, "broker-1", 9092), (2, "broker-2", 9092)]
    outside = BrokerHarness(image).ask(METADATA, version, topics=None, listener="OUTSIDE")
    assert [(b.node_id, b.host, b.port) for b in outside.brokers] == [(1, "example.org", 19091)]
    if version >= 1:
        assert [b.rack for b in inside.brokers] == ["a", None]
        assert inside.controller_id == 1
    if version >= 2:
        assert inside.cluster_id == CLUSTER_ID


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_returns_leader_replicas_isr_and_offline_replicas_of_partitions(
    image: MetadataImage, version: int
) -> None:
    (topic,) = BrokerHarness(image).ask(METADATA, version, topics=asked("orders")).topics
    assert (topic.name, topic.error_code) == ("orders", 0)
    first, second, third = topic.partitions
    if version == 0:  # the replicas whose broker is not live
        assert (first.error_code, first.leader_id, first.replica_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, 1, (1, 2))
    else:
        assert (first.error_code, first.leader_id, first.replica_nodes) == (0, 1, (1, 2, 3))
        assert (second.leader_id, second.replica_nodes, second.isr_nodes) == (2, (2, 3, 1), (2, 1))
    assert (third.error_code, third.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    if version >= 5:
        assert first.offline_replicas == (3,)
    if version >= 7:
        assert (first.leader_epoch, second.leader_epoch, third.leader_epoch) == (4, 5, 6)
    if version >= 10:
        assert topic.topic_id == ORDERS


@pytest.mark.parametrize(
    ("version", "error"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND), (13, 72)]
)
def test_a_leader_without_the_clients_listener_gives_listener_not_found_from_version_6(
    image: MetadataImage, version: int, error: int
) -> None:
    (topic,) = BrokerHarness(image).ask(METADATA, version, topics=asked("orders"), listener="OUTSIDE").topics
    assert [p.error_code for p in topic.partitions] == [0, error, ErrorCode.LEADER_NOT_AVAILABLE]
    assert topic.partitions[1].leader_id == -1


def test_metadata_reports_a_replica_in_an_offline_log_directory_as_offline() -> None:
    image = image_of(*three_brokers(), *orders(), events.BrokerRegistrationChange(2, 12, log_dirs=(UNKNOWN,)))
    (topic,) = BrokerHarness(image).ask(METADATA, 13, topics=asked("orders")).topics
    assert topic.partitions[0].offline_replicas == (2, 3)


def test_metadata_returns_all_topics_for_null_and_in_version_0_also_for_an_empty_list(image: MetadataImage) -> None:
    harness = BrokerHarness(image)
    assert [t.name for t in harness.ask(METADATA, 0, topics=None).topics] == ["orders"]
    for version in VERSIONS[1:]:
        assert [t.name for t in harness.ask(METADATA, version, topics=None).topics] == ["orders"]
        assert harness.ask(METADATA, version, topics=[]).topics == ()


def test_metadata_finds_topics_by_id_and_returns_error_100_for_unknown_ids(image: MetadataImage) -> None:
    known, unknown = BrokerHarness(image).ask(METADATA, 12, topics=asked_by_id(ORDERS, UNKNOWN)).topics
    assert (known.name, known.topic_id, len(known.partitions)) == ("orders", ORDERS, 3)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", [10, 11])
def test_a_metadata_request_with_topic_ids_before_version_12_gets_invalid_request(
    image: MetadataImage, version: int
) -> None:
    topic = messages.nested_class(messages.request_class(METADATA), "topics")
    wanted = [messages.build(topic, name="orders", topic_id=ORDERS)]
    (answer,) = BrokerHarness(image).ask(METADATA, version, topics=wanted).topics
    assert (answer.name, answer.error_code) == ("orders", ErrorCode.INVALID_REQUEST)


def test_metadata_returns_invalid_topic_for_an_invalid_name_and_unknown_topic_for_a_missing_one(
    image: MetadataImage,
) -> None:
    harness = BrokerHarness(image)
    wanted = asked("missing", "bad/name", "a" * 250, "..")
    answers = harness.ask(METADATA, 9, topics=wanted, allow_auto_topic_creation=False).topics
    assert {t.name: t.error_code for t in answers} == {
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a" * 250: ErrorCode.INVALID_TOPIC_EXCEPTION,
        "..": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert harness.auto_topics.asked == []


def test_a_metadata_request_creates_a_missing_topic_if_client_and_broker_allow_it(image: MetadataImage) -> None:
    harness = BrokerHarness(image)
    answers = harness.ask(METADATA, 9, topics=asked("new", "bad/name"), allow_auto_topic_creation=True).topics
    assert {t.name: t.error_code for t in answers} == {
        "new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "bad/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert harness.auto_topics.asked == ["new"]


def test_a_metadata_request_never_creates_the_cluster_metadata_topic(image: MetadataImage) -> None:
    harness = BrokerHarness(image)
    (answer,) = harness.ask(METADATA, 9, topics=asked("__cluster_metadata"), allow_auto_topic_creation=True).topics
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.auto_topics.asked == []


def test_a_metadata_request_creates_no_topic_if_the_broker_does_not_allow_it(image: MetadataImage) -> None:
    harness = BrokerHarness(image, properties={"auto.create.topics.enable": "false"})
    (answer,) = harness.ask(METADATA, 9, topics=asked("new"), allow_auto_topic_creation=True).topics
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.auto_topics.asked == []


def test_metadata_versions_before_4_always_allow_topic_creation(image: MetadataImage) -> None:
    harness = BrokerHarness(image)
    harness.ask(METADATA, 3, topics=asked("new"))
    assert harness.auto_topics.asked == ["new"]


def test_an_unauthorized_topic_gets_the_authorization_error_and_is_not_in_the_list_of_all_topics(
    image: MetadataImage,
) -> None:
    harness = BrokerHarness(image, authorizer=Denying((Operation.DESCRIBE, "orders"), (Operation.DESCRIBE, "missing")))
    answers = harness.ask(METADATA, 12, topics=asked("orders", "missing")).topics
    assert [(t.name, t.topic_id, t.error_code) for t in answers] == [("orders", None, 29), ("missing", None, 29)]
    assert harness.ask(METADATA, 12, topics=None).topics == ()
    (by_id,) = harness.ask(METADATA, 12, topics=asked_by_id(ORDERS)).topics
    assert (by_id.name, by_id.topic_id, by_id.error_code) == (None, ORDERS, 29)


def test_topic_creation_by_a_metadata_request_needs_create_on_the_cluster_or_on_the_topic(image: MetadataImage) -> None:
    denying = Denying((Operation.CREATE, CLUSTER.name), (Operation.CREATE, "forbidden"))
    harness = BrokerHarness(image, authorizer=denying)
    answers = harness.ask(METADATA, 9, topics=asked("allowed", "forbidden"), allow_auto_topic_creation=True).topics
    assert {t.name: t.error_code for t in answers} == {"allowed": 3, "forbidden": 29}
    assert harness.auto_topics.asked == ["allowed"]


def test_authorized_operations_of_topics_are_returned_only_on_request(image: MetadataImage) -> None:
    harness = BrokerHarness(image, authorizer=Denying((Operation.DELETE, "orders")))
    (silent,) = harness.ask(METADATA, 8, topics=asked("orders")).topics
    assert silent.topic_authorized_operations == -(2**31)
    (told,) = harness.ask(METADATA, 8, topics=asked("orders"), include_topic_authorized_operations=True).topics
    bits = {operation for operation in Operation if told.topic_authorized_operations >> operation & 1}
    assert Operation.DELETE not in bits
    assert {Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS} <= bits
    assert Operation.CLUSTER_ACTION not in bits


@pytest.mark.parametrize("version", [8, 9, 10])
def test_metadata_versions_8_to_10_return_authorized_cluster_operations_on_request(
    image: MetadataImage, version: int
) -> None:
    from io import BytesIO

    import kio.serial

    old_request = messages.versioned_class(METADATA, version, MessageDirection.REQUEST)
    old_response = messages.versioned_class(METADATA, version, MessageDirection.RESPONSE)
    read = compile_reader(old_response, old_response)
    for wanted in (False, True):
        buffer = BytesIO()
        request = messages.build(old_request, topics=None, include_cluster_authorized_operations=wanted)
        kio.serial.entity_writer(old_request)(buffer, request)
        client = BrokerHarness(image).connect()
        client.send(METADATA, version, buffer.getvalue())
        (body,) = client.answers()
        response, end = read(memoryview(body), 0)
        assert end == len(body)
        told = response.cluster_authorized_operations
        assert (told == -(2**31)) is not wanted
        if wanted:
            assert told >> Operation.CLUSTER_ACTION & 1


def test_a_recently_fenced_broker_is_still_listed_in_metadata_but_leads_no_partition() -> None:
    old = image_of(*three_brokers(), *orders())
    gone = [
        events.BrokerRegistrationChange(2, 12, fenced=True),
        events.PartitionChange(ORDERS, 1, isr=(1,), leader=1),
        events.PartitionChange(ORDERS, 0, isr=(1,)),
    ]
    new = replay(old, gone, old.offset + 3, 1)
    harness = BrokerHarness(old)
    harness.broker.departed.published(old, new, ImageDelta.between(old, new))
    harness.holder.image = new
    response = harness.ask(METADATA, 12, topics=asked("orders"))
    assert [b.node_id for b in response.brokers] == [1, 2]
    assert [p.leader_id for p in response.topics[0].partitions] == [1, 1, -1]
    assert response.topics[0].partitions[0].offline_replicas == (2, 3)
    harness.clock.now_ms += 9_000
    assert [b.node_id for b in harness.ask(METADATA, 12, topics=[]).brokers] == [1]


def test_a_broker_that_returned_or_was_unregistered_is_not_listed_as_departed() -> None:
    old = image_of(*three_brokers())
    fenced = replay(old, [events.BrokerRegistrationChange(2, 12, fenced=True)], old.offset + 1, 1)
    for change in (events.BrokerRegistrationChange(2, 12, fenced=False), events.UnregisterBroker(2, 12)):
        harness = BrokerHarness(old)
        departed = harness.broker.departed
        departed.published(old, fenced, ImageDelta.between(old, fenced))
        assert [broker.broker_id for broker in departed.listed()] == [2]
        new = replay(fenced, [change], fenced.offset + 1, 1)
        departed.published(fenced, new, ImageDelta.between(fenced, new))
        assert departed.listed() == []


def test_metadata_returns_leader_not_available_while_the_leaders_process_seems_dead() -> None:
    harness = BrokerHarness(image_of(*three_brokers(), *orders()))
    harness.lost.add(2)
    (topic,) = harness.ask(METADATA, 12, topics=asked("orders")).topics
    assert [(p.leader_id, p.error_code) for p in topic.partitions] == [
        (1, 0),
        (-1, ErrorCode.LEADER_NOT_AVAILABLE),
        (-1, ErrorCode.LEADER_NOT_AVAILABLE),
    ]
    harness.lost.clear()
    (topic,) = harness.ask(METADATA, 12, topics=asked("orders")).topics
    assert topic.partitions[1].leader_id == 2


def test_metadata_marks_internal_topics() -> None:
    image = image_of(
        *three_brokers(), events.Topic("__consumer_offsets", INTERNAL), events.Partition(INTERNAL, 0, (1,), (1,))
    )
    (topic,) = BrokerHarness(image).ask(METADATA, 13, topics=None).topics
    assert topic.is_internal


def test_metadata_of_a_fenced_broker_names_another_live_broker_as_controller() -> None:
    image = image_of(broker_event(1, fenced=True), broker_event(2))
    assert BrokerHarness(image).ask(METADATA, 12, topics=[]).controller_id == 2
    assert BrokerHarness(image_of()).ask(METADATA, 12, topics=[]).controller_id == -1


# very many partitions


def many(chance: random.Random, count: int, topic_id: UUID, name: str) -> list[Event]:
    """Return the metadata records of a topic whose partitions are in a few different states, some of them unusual."""
    directories = (DIRECTORY, OTHER_DIRECTORY, DIRECTORY)
    states: list[tuple[tuple[int, ...], tuple[int, ...], int, int]] = [
        ((1, 2, 3), (1, 2, 3), 1, 0),
        ((2, 3, 1), (2, 1), 2, 300),
        ((3, 1, 2), (3,), -1, 7),
        ((3, 9, 1), (1,), 9, 7),
    ]
    rows = [chance.choice(states) for _ in range(count)]
    return [
        events.Topic(name, topic_id),
        *(
            events.Partition(
                topic_id, number, replicas, isr, leader=leader, leader_epoch=epoch, directories=directories
            )
            for number, (replicas, isr, leader, epoch) in enumerate(rows)
        ),
    ]


def one_by_one(_: PartitionsWriter, topic: TopicImage, describe: Describe) -> Any:
    """Return all partitions, each described and encoded separately."""
    return tuple(describe(number, state) for number, state in topic.partitions())


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_encoded_from_shared_bytes_equal_partitions_encoded_one_by_one(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(version)
    image = image_of(*three_brokers(), *many(chance, 700, ORDERS, "orders"), *many(chance, 3, INTERNAL, "others"))
    asked_for: dict[str, Any] = {"topics": asked("orders", "unknown", "others"), "allow_auto_topic_creation": False}
    found = BrokerHarness(image).ask(METADATA, version, **asked_for)
    assert [len(topic.partitions) for topic in found.topics] == [700, 3, 0]
    monkeypatch.setattr(PartitionsWriter, "of", one_by_one)
    assert BrokerHarness(image).ask(METADATA, version, **asked_for) == found


@pytest.mark.parametrize("all_topics", [True, False])
async def test_a_metadata_response_with_very_many_partitions_is_built_in_turns_from_one_image(
    nursery: trio.Nursery, all_topics: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(1)
    image = image_of(*three_brokers(), *many(chance, 2_000, ORDERS, "orders"), *many(chance, 300, INTERNAL, "others"))
    topics = None if all_topics else asked("orders", "others")
    expected = BrokerHarness(image).ask(METADATA, 12, topics=topics)
    monkeypatch.setattr(module, "PARTITIONS_AT_ONCE_MAX", 2_299)
    monkeypatch.setattr(turns, "TURN_NS_MAX", 0)
    harness = BrokerHarness(image, nursery=nursery)
    client = harness.connect()
    request = messages.build(messages.request_class(METADATA), topics=topics)
    client.send(METADATA, 12, messages.encode_request(METADATA, 12, request))
    harness.holder.image = image_of(*three_brokers())
    taken = 0
    while not (bodies := client.answers()):
        taken += 1
        await trio.lowlevel.checkpoint()
    assert taken >= 10, "a turn for each 256 partitions"
    assert messages.decode_response(METADATA, 12, bodies[0]) == expected


def test_a_metadata_response_of_ordinary_size_is_sent_at_once() -> None:
    image = image_of(*three_brokers(), *many(random.Random(1), 500, ORDERS, "orders"))
    (topic,) = BrokerHarness(image).ask(METADATA, 12, topics=asked("orders")).topics
    assert len(topic.partitions) == 500


@pytest.mark.parametrize("version", [8, 13])
async def test_a_metadata_response_of_megabytes_is_sent_in_pieces_without_joining_them(
    nursery: trio.Nursery, version: int
) -> None:
    image = image_of(*three_brokers(), *many(random.Random(1), 12_000, ORDERS, "orders"))
    harness = BrokerHarness(image, nursery=nursery)
    client = harness.connect()
    request = messages.build(messages.request_class(METADATA), topics=None)
    client.send(METADATA, version, messages.encode_request(METADATA, version, request))
    while not (chunks := list(client.connection.output())):
        await trio.lowlevel.checkpoint()
    assert sum(map(len, chunks)) > 400_000
    assert max(map(len, chunks)) < 200_000
    (answer,) = client.answers()
    (topic,) = messages.decode_response(METADATA, version, answer).topics
    assert len(topic.partitions) == 12_000


async def test_a_long_metadata_request_creates_missing_topics_even_if_its_client_disconnects(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_TOPICS", 1)
    monkeypatch.setattr(turns, "TURN_NS_MAX", 0)
    names = [f"topic-{number}" for number in range(10)]
    harness = BrokerHarness(image_of(*three_brokers()), nursery=nursery)
    client = harness.connect()
    request = messages.build(messages.request_class(METADATA), topics=asked(*names), allow_auto_topic_creation=True)
    client.send(METADATA, 12, messages.encode_request(METADATA, 12, request))
    client.connection.closed(CloseReason.PEER)
    await trio.testing.wait_all_tasks_blocked()
    assert harness.auto_topics.asked == names
    assert client.answers() == []
