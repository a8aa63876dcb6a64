"""`__cluster_metadata` read as a topic: by authorised clients, never above the high watermark, and without secrets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
import trio

from kraft.broker.api.fetch.metadata_topic import METADATA_TOPIC_ID, WAITING_KEPT_MAX, is_metadata_topic
from kraft.broker.serving.gates import Operation, ResourceType
from kraft.image import Event, ImageBuilder, MetadataImage, decode_event, digest, encode_event
from kraft.image.events import Config, NoOp, Topic
from kraft.image.image import EMPTY_IMAGE
from kraft.quorum.redaction import redacted
from kraft.sim.world import World
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.fetch import FetchPartition, FetchRequest, FetchResult, encode_fetch_request
from kraft.wire.messages.fetch_response import decode_fetch_response
from kraft.wire.records import Record, check_crc, decode_batch, encode_batch, iter_headers
from kraft.wire.records.control_records import ControlRecord, ControlRecordType, encode_control
from tests.stages.plane import Plane
from tests.stages.world_cluster import AskingClient, WorldCluster

NAME = "__cluster_metadata"
Test = Callable[[Plane], Awaitable[None]]


def run(test: Test, *, brokers: int = 2, seed: int = 1) -> None:
    async def main(world: World) -> None:
        cluster = WorldCluster(world, controllers=1, brokers=brokers)
        cluster.start()
        await cluster.wait_ready()
        await test(Plane(world, cluster))

    World(seed).run(main)


async def fetch(
    plane: Plane,
    offset: int,
    *,
    version: int = 12,
    broker_id: int = 1,
    max_wait_ms: int = 0,
    partition: int = 0,
    partition_bytes: int = 1 << 20,
    client: AskingClient | None = None,
    **options: Any,
) -> FetchResult:
    row = FetchPartition(partition, -1, offset, -1, -1, partition_bytes)
    topics = [(NAME, METADATA_TOPIC_ID, [row])]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 30, topics=topics, **options)
    asker = client or await plane.client(broker_id)
    answer = await asker.ask_bytes(ApiKey.FETCH, version, encode_fetch_request(version, request))
    response = decode_fetch_response(version, answer)
    assert response.error_code == 0
    return response.topics[0][2][0]


def events_in(data: Any) -> list[Event]:
    found: list[Event] = []
    for position, header in iter_headers(data):
        assert check_crc(data, position, header)
        if not header.is_control:
            found += [decode_event(record.value or b"") for record in decode_batch(data, position)]
    return found


def wanted(name: str | None, topic_id: UUID | None = None) -> Any:
    cls = messages.nested_class(messages.request_class(ApiKey.METADATA), "topics")
    return messages.build(cls, name=name, topic_id=topic_id)


async def read_all(plane: Plane, broker_id: int = 1) -> list[Event]:
    """Fetch the whole topic, in small pieces."""
    found: list[Event] = []
    offset = 0
    while True:
        result = await fetch(plane, offset, broker_id=broker_id, partition_bytes=1)
        assert result.error_code == 0
        data = b"".join(bytes(piece) for piece in result.records)
        if not data:
            assert offset == result.high_watermark
            return found
        found += events_in(data)
        offset = max(header.next_offset for _, header in iter_headers(data))
        assert offset <= result.high_watermark


def replayed(events: list[Event], offset: int, epoch: int) -> MetadataImage:
    builder = ImageBuilder(EMPTY_IMAGE)
    for event in events:
        builder.apply(event)
    return builder.build(offset, epoch)


def test_replaying_the_metadata_topic_gives_the_clusters_metadata() -> None:
    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        for broker_id in (1, 2):
            image = plane.cluster.node(broker_id).publisher.image
            assert digest(replayed(await read_all(plane, broker_id), image.offset, image.epoch)) == digest(image)

    run(test)


@pytest.mark.parametrize("version", [4, 11, 12, 13, 17])
def test_every_fetch_version_can_read_the_metadata_topic(version: int) -> None:
    async def test(plane: Plane) -> None:
        result = await fetch(plane, 0, version=version, isolation_level=1)
        assert result.error_code == 0
        assert result.high_watermark == result.last_stable_offset == plane.cluster.node(1).quorum.high_watermark
        assert events_in(b"".join(bytes(piece) for piece in result.records))

    run(test)


def test_waiting_fetch_of_the_metadata_topic_is_answered_on_a_commit() -> None:
    async def test(plane: Plane) -> None:
        end = plane.cluster.node(1).quorum.high_watermark
        client = await plane.another_client()
        began_ns = plane.world.now_ns
        results: list[FetchResult] = []

        async def wait() -> None:
            results.append(await fetch(plane, end, max_wait_ms=60_000, client=client))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await plane.world.sleep_ms(50)
            assert not results
            await plane.create_topic("orders")
        assert (plane.world.now_ns - began_ns) / 1e6 < 5_000
        assert any(
            isinstance(event, Topic) and event.name == "orders"
            for event in events_in(b"".join(bytes(piece) for piece in results[0].records))
        )

    run(test)


def test_waiting_fetch_of_the_metadata_topic_without_a_commit_is_answered_at_its_max_wait() -> None:
    async def test(plane: Plane) -> None:
        topic = plane.cluster.node(1).broker.broker.metadata_topic
        for _ in range(2 * WAITING_KEPT_MAX):
            end = plane.cluster.node(1).quorum.high_watermark
            result = await fetch(plane, end, max_wait_ms=1)
            assert (result.error_code, result.records) == (0, ()) or not b"".join(map(bytes, result.records))
        assert len(topic._waiting) <= WAITING_KEPT_MAX

    run(test)


def test_metadata_topic_serves_only_committed_records() -> None:
    async def test(plane: Plane) -> None:
        quorum = plane.cluster.node(1).quorum
        assert (await fetch(plane, quorum.high_watermark + 1)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await fetch(plane, 0, partition=1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await fetch(plane, -1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        # A broker that is cut off from the quorum serves only what it knows to be committed.
        client = await plane.client(2)
        plane.world.partition("b2", "c101")
        end = plane.cluster.node(2).quorum.high_watermark
        topic = messages.nested_class(messages.request_class(ApiKey.CREATE_TOPICS), "topics")
        new = messages.build(topic, name="orders", num_partitions=1, replication_factor=1)
        await (await plane.client(1)).ask(ApiKey.CREATE_TOPICS, 7, topics=[new], timeout=1_000)
        await plane.until(lambda: quorum.high_watermark > end)
        assert (await fetch(plane, quorum.high_watermark, client=client)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await fetch(plane, end, client=client)).high_watermark == end

    run(test)


def test_metadata_topic_offsets_are_listed_by_position_and_by_timestamp() -> None:
    async def test(plane: Plane) -> None:
        quorum = plane.cluster.node(1).quorum
        await plane.world.sleep_ms(1_000)
        end = quorum.high_watermark
        assert (await plane.list_offset(NAME, -2)).offset == 0
        assert (await plane.list_offset(NAME, -1)).offset == end
        first = await plane.list_offset(NAME, 0)
        assert (first.error_code, first.offset) == (0, 0)
        assert first.timestamp > 0
        await plane.world.sleep_ms(1_000)
        await plane.create_topic("orders")
        later = await plane.list_offset(NAME, first.timestamp + 1_500)
        assert later.offset >= end
        nothing = await plane.list_offset(NAME, first.timestamp + 10_000_000)
        assert (nothing.error_code, nothing.offset) == (0, -1)

    run(test)


def test_metadata_topic_is_described_by_name_and_id_but_never_listed() -> None:
    async def test(plane: Plane) -> None:
        client = await plane.client()
        by_name = (await client.ask(ApiKey.METADATA, 12, topics=[wanted(NAME)])).topics[0]
        by_id = (await client.ask(ApiKey.METADATA, 12, topics=[wanted(None, METADATA_TOPIC_ID)])).topics[0]
        for topic in (by_name, by_id):
            assert (topic.error_code, topic.name, topic.topic_id, topic.is_internal) == (
                0,
                NAME,
                METADATA_TOPIC_ID,
                True,
            )
            (partition,) = topic.partitions
            assert (partition.error_code, partition.leader_id, partition.replica_nodes) == (0, 1, (1, 2))
        everything = await client.ask(ApiKey.METADATA, 12, topics=None)
        assert NAME not in [topic.name for topic in everything.topics]

    run(test)


async def described(plane: Plane, **options: Any) -> Any:
    """Return the response of DescribeTopicPartitions for the metadata topic and another topic."""
    topic_class = messages.nested_class(messages.request_class(ApiKey.DESCRIBE_TOPIC_PARTITIONS), "topics")
    named = [messages.build(topic_class, name=name) for name in (NAME, "orders")]
    client = await plane.client()
    fields = {"topics": named, "response_partition_limit": 2000, "cursor": None, **options}
    return await client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, **fields)


def test_describe_topic_partitions_finds_the_metadata_topic_by_name() -> None:
    """Newer clients describe topics with DescribeTopicPartitions."""

    async def test(plane: Plane) -> None:
        await plane.create_topic("orders")
        topic, orders = (await described(plane)).topics
        assert (topic.error_code, topic.name, topic.topic_id, topic.is_internal) == (0, NAME, METADATA_TOPIC_ID, True)
        assert [(one.partition_index, one.leader_id, one.replica_nodes) for one in topic.partitions] == [(0, 1, (1, 2))]
        assert (orders.name, orders.error_code) == ("orders", 0)
        page = await described(plane, response_partition_limit=1)
        assert [one.name for one in page.topics] == [NAME]
        assert (page.next_cursor.topic_name, page.next_cursor.partition_index) == ("orders", 0)
        assert [one.name for one in (await described(plane, topics=[])).topics] == ["orders"]

    run(test)


async def end_of_epoch(plane: Plane, epoch: int, partition: int = 0) -> tuple[int, int, int]:
    """Request the end offset of a leader epoch of the metadata topic. Return (error, epoch, end offset)."""
    topic_class = messages.nested_class(messages.request_class(ApiKey.OFFSET_FOR_LEADER_EPOCH), "topics")
    row_class = messages.nested_class(topic_class, "partitions")
    row = messages.build(row_class, partition=partition, current_leader_epoch=-1, leader_epoch=epoch)
    topic = messages.build(topic_class, topic=NAME, partitions=[row])
    client = await plane.client()
    answer = await client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=[topic])
    ((found,),) = [topic.partitions for topic in answer.topics]
    return found.error_code, found.leader_epoch, found.end_offset


def test_offset_for_leader_epoch_on_the_metadata_topic_never_reports_truncation() -> None:
    """Clients send OffsetForLeaderEpoch after a leader change before they fetch again, and repeat it until they get a
    response."""

    async def test(plane: Plane) -> None:
        quorum = plane.cluster.node(1).quorum
        old, end = quorum.leader_and_epoch[1], quorum.high_watermark
        assert (await end_of_epoch(plane, old))[:2] == (0, old)
        assert (await end_of_epoch(plane, old))[2] >= end
        plane.world.kill("c101")
        plane.cluster.start(101)
        await plane.until(lambda: quorum.committed_epochs[-1][0] > old)
        new, begin = quorum.committed_epochs[-1]
        assert begin >= end
        assert await end_of_epoch(plane, old) == (0, old, begin)
        assert (await end_of_epoch(plane, new))[:2] == (0, new)
        assert (await end_of_epoch(plane, new))[2] >= quorum.high_watermark
        assert await end_of_epoch(plane, new + 1) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1)
        assert await end_of_epoch(plane, new, partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)

    run(test)


class Only:
    """Allows only these operations on the cluster, and all operations on topics."""

    def __init__(self, *operations: Operation) -> None:
        self.operations = operations

    def authorize(self, session: object, operation: Operation, resource: Any) -> bool:
        return resource.type is not ResourceType.CLUSTER or operation in self.operations

    def authorize_any(self, session: object, operation: Operation, type: ResourceType) -> bool:
        return True


@pytest.mark.parametrize(
    ("operations", "allowed"),
    [((Operation.ALTER,), True), ((Operation.CLUSTER_ACTION,), True), ((Operation.DESCRIBE, Operation.CREATE), False)],
)
def test_reading_the_metadata_topic_needs_alter_or_cluster_action_permission_on_the_cluster(
    operations: tuple[Operation, ...], allowed: bool
) -> None:
    async def test(plane: Plane) -> None:
        plane.cluster.node(1).gates.authorizer = Only(*operations)
        client = await plane.client()
        told = (await client.ask(ApiKey.METADATA, 12, topics=[wanted(NAME)])).topics[0]
        result, offset = await fetch(plane, 0), await plane.list_offset(NAME, -1)
        end = await end_of_epoch(plane, plane.cluster.node(1).quorum.leader_and_epoch[1])
        topic = (await described(plane)).topics[0]
        codes = {told.error_code, result.error_code, offset.error_code, end[0], topic.error_code}
        assert codes == ({ErrorCode.NONE} if allowed else {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        assert (await fetch(plane, 0, version=13)).error_code == (0 if allowed else ErrorCode.UNKNOWN_TOPIC_ID)

    run(test)


SECRET = Config(4, "1", "listener.name.internal.ssl.key.password", "hunter2")
PLAIN = Config(2, "orders", "retention.ms", "5")


def metadata_batch(*events: Event, base_offset: int = 0) -> bytes:
    records = [Record(0, 1000 + number, None, encode_event(event)) for number, event in enumerate(events)]
    return bytes(encode_batch(records, base_offset=base_offset, leader_epoch=7))


def test_redaction_hides_secrets_and_changes_nothing_else() -> None:
    control = bytes(
        encode_control(ControlRecord(type=ControlRecordType.SNAPSHOT_FOOTER), base_offset=5, leader_epoch=7)
    )
    data = metadata_batch(NoOp(), PLAIN, SECRET, PLAIN, base_offset=1) + control + metadata_batch(PLAIN, base_offset=6)
    shown = redacted(data)
    assert b"hunter2" not in shown
    assert shown.endswith(control + metadata_batch(PLAIN, base_offset=6))
    assert events_in(shown) == [NoOp(), PLAIN, Config(4, "1", SECRET.name, "[hidden]"), PLAIN, PLAIN]
    for (_, before), (_, after) in zip(iter_headers(data), iter_headers(shown), strict=True):
        assert (before.base_offset, before.next_offset, before.partition_leader_epoch, before.max_timestamp) == (
            after.base_offset,
            after.next_offset,
            after.partition_leader_epoch,
            after.max_timestamp,
        )
    plain = metadata_batch(PLAIN, Config(4, "1", SECRET.name, None))
    assert redacted(plain) == plain


def test_metadata_topic_hides_a_secret_setting() -> None:
    async def test(plane: Plane) -> None:
        name = plane.cluster.name(plane.cluster.controller_ids[0])
        controller = plane.cluster.started[name].node
        assert controller is not None
        controller.quorum.append([encode_event(SECRET)])
        end = controller.quorum.log_end_offset
        await plane.until(lambda: plane.cluster.node(1).quorum.high_watermark >= end)
        raw = plane.cluster.node(1).quorum.read(end - 1, 1 << 20)
        assert b"hunter2" in raw
        found = await fetch(plane, end - 1)
        data = b"".join(bytes(piece) for piece in found.records)
        assert b"hunter2" not in data
        assert events_in(data) == [Config(4, "1", SECRET.name, "[hidden]")]

    run(test)


def test_metadata_topic_is_recognised_only_by_its_name_and_id() -> None:
    assert is_metadata_topic(NAME)
    assert is_metadata_topic(METADATA_TOPIC_ID)
    assert not is_metadata_topic("orders")
    assert not is_metadata_topic(UUID(int=2))
