"""The publisher turns committed events into images, deltas and snapshots."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import UUID

import msgpack
import pytest

from kraft.image import ImageDelta, MetadataImage, UnknownEvent, decode_event, encode_event, replay
from kraft.image.events import ClusterIdentity, Event, FeatureLevel, NoOp, Partition, Topic
from kraft.image.partitions import LEAF_PARTITIONS_MAX
from kraft.quorum.publisher import MetadataPublisher
from kraft.quorum.quorum import CommittedBatch
from kraft.seam import Seam
from kraft.sim.world import World
from tests.controller.fake_quorum import FakeQuorum
from tests.stages.decided_cluster import node_config

ID = UUID(int=(1 << 100) + 7)


def batch(base: int, *events: Event, epoch: int = 1, size: int = 100) -> CommittedBatch:
    values = tuple(encode_event(event) for event in events)
    return CommittedBatch(base, base + len(events), epoch, 0, size, values)


def publisher_of(seam: Seam, **properties: str) -> tuple[MetadataPublisher, FakeQuorum]:
    quorum = FakeQuorum()
    return MetadataPublisher(node_config(**properties), seam, quorum), quorum  # type: ignore[arg-type]


Check = Callable[[World, MetadataPublisher, FakeQuorum], Awaitable[None]]


def with_publisher(check: Check, **properties: str) -> None:
    """Run `check(world, publisher, quorum)` in a world with a clock."""

    async def main(world: World) -> None:
        publisher, quorum = publisher_of(world.node("n"), **properties)
        await check(world, publisher, quorum)

    World(1).run(main)


def test_batches_delivered_together_are_published_as_one_change() -> None:
    async def check(world: World, publisher: MetadataPublisher, quorum: FakeQuorum) -> None:
        seen: list[tuple[int, int, ImageDelta]] = []
        publisher.subscribe(lambda old, new, delta: seen.append((old.offset, new.offset, delta)))
        publisher.on_commit([batch(0, ClusterIdentity("c")), batch(1, Topic("orders", ID), epoch=2)])
        assert [(old, new) for old, new, _ in seen] == [(0, 2)]
        assert set(seen[0][2].topics) == {ID}
        assert (publisher.image.offset, publisher.image.epoch) == (2, 2)

    with_publisher(check)


def test_control_batches_only_advance_the_published_offset() -> None:
    async def check(world: World, publisher: MetadataPublisher, quorum: FakeQuorum) -> None:
        publisher.on_commit([CommittedBatch(0, 1, 4, 0, 80, ())])
        assert (publisher.image.offset, publisher.image.epoch) == (1, 4)
        publisher.on_commit([])
        assert publisher.image.offset == 1

    with_publisher(check)


def test_late_subscriber_gets_the_whole_image_at_once() -> None:
    async def check(world: World, publisher: MetadataPublisher, quorum: FakeQuorum) -> None:
        publisher.on_commit([batch(0, ClusterIdentity("c"), Topic("orders", ID))])
        seen: list[tuple[MetadataImage, MetadataImage, ImageDelta]] = []
        publisher.subscribe(lambda *change: seen.append(change))
        assert len(seen) == 1
        assert seen[0][1] is publisher.image
        assert seen[0][2].topics[ID].created

    with_publisher(check)


def test_delivered_snapshot_replaces_the_whole_image() -> None:
    async def check(world: World, publisher: MetadataPublisher, quorum: FakeQuorum) -> None:
        publisher.on_commit([batch(0, ClusterIdentity("c"), Topic("orders", ID))])
        seen: list[ImageDelta] = []
        publisher.subscribe(lambda _old, _new, delta: seen.append(delta))
        publisher.on_snapshot(50, 3, [encode_event(ClusterIdentity("c"))])
        assert seen[-1].deleted_topics == {ID: "orders"}
        assert (publisher.image.offset, publisher.image.epoch, len(publisher.image.topics)) == (50, 3, 0)

    with_publisher(check)


def test_publisher_requests_a_snapshot_after_enough_bytes() -> None:
    async def check(world: World, publisher: MetadataPublisher, quorum: FakeQuorum) -> None:
        publisher.on_commit([batch(0, ClusterIdentity("c"), Topic("orders", ID), size=999)])
        assert quorum.snapshots == []
        publisher.on_commit([batch(2, NoOp(), size=1)])
        offset, epoch, values = quorum.snapshots[0]
        assert (offset, epoch) == (3, 1)
        again = replay(MetadataImage(), [decode_event(value) for value in values], offset, epoch)
        assert again == publisher.image
        publisher.on_commit([batch(3, NoOp(), size=999)])
        assert len(quorum.snapshots) == 1

    with_publisher(check, metadata_log_max_record_bytes_between_snapshots="1000")


def test_publisher_requests_a_snapshot_after_enough_time_if_anything_is_new() -> None:
    async def check(world: World, publisher: MetadataPublisher, quorum: FakeQuorum) -> None:
        publisher.on_commit([batch(0, ClusterIdentity("c"))])
        await world.sleep_ms(3_600_001)
        assert quorum.snapshots == []
        publisher.on_commit([batch(1, NoOp())])
        assert len(quorum.snapshots) == 1
        await world.sleep_ms(10_000)
        publisher.on_commit([batch(2, NoOp())])
        assert len(quorum.snapshots) == 1

    with_publisher(check)


def test_event_of_a_newer_release_stops_the_node_with_an_error_that_names_the_release() -> None:
    async def check(world: World, publisher: MetadataPublisher, quorum: FakeQuorum) -> None:
        publisher.on_commit([batch(0, FeatureLevel("metadata.version", 40, "9.9.0"))])
        newer = msgpack.packb([2, 5, "orders", ID.bytes])
        with pytest.raises(UnknownEvent, match=r"install pykraft 9\.9\.0 or newer"):
            publisher.on_commit([CommittedBatch(1, 2, 1, 0, 10, (newer,))])
        snapshot = [encode_event(FeatureLevel("metadata.version", 40, "9.9.0")), newer]
        with pytest.raises(UnknownEvent, match=r"install pykraft 9\.9\.0 or newer"):
            publisher.on_snapshot(2, 1, snapshot)
        assert publisher.image.offset == 1

    with_publisher(check)


def test_leader_subscribers_are_notified_of_leader_changes() -> None:
    async def check(world: World, publisher: MetadataPublisher, quorum: FakeQuorum) -> None:
        seen: list[tuple[int | None, int]] = []
        publisher.subscribe_leader(lambda leader_id, epoch: seen.append((leader_id, epoch)))
        publisher.on_leader(102, 7)
        publisher.on_leader(None, 8)
        assert seen == [(102, 7), (None, 8)]
        assert (publisher.leader_id, publisher.epoch) == (None, 8)

    with_publisher(check)


def topics(count: int) -> list[Event]:
    return [Topic(f"topic-{number}", UUID(int=(1 << 100) + number)) for number in range(count)]


def test_large_batch_is_replayed_in_steps_and_published_on_delivery() -> None:
    async def check(world: World, publisher: MetadataPublisher, quorum: FakeQuorum) -> None:
        seen: list[tuple[int, int]] = []
        publisher.subscribe(lambda old, new, _delta: seen.append((len(old.topics), len(new.topics))))
        large = batch(0, *topics(25))
        ahead = publisher.replay_ahead(large, 10)
        assert ahead is not None
        assert len(list(ahead)) == 3
        assert seen == []
        assert publisher.replay_ahead(large, 10) is None, "all that can be done is done"
        publisher.on_commit([large])
        assert seen == [(0, 25)]
        assert (publisher.image.offset, publisher.image.epoch) == (25, 1)

    with_publisher(check)


@pytest.mark.parametrize("steps", [0, 1])
def test_image_prepared_from_another_base_image_is_not_used(steps: int) -> None:
    """The preparation must not replay the batch on the other image either: the batch may not fit there."""

    async def check(world: World, publisher: MetadataPublisher, quorum: FakeQuorum) -> None:
        ahead = publisher.replay_ahead(batch(0, *topics(25)), 10)
        assert ahead is not None
        for _ in range(steps):
            next(ahead)
        publisher.on_snapshot(5, 1, [encode_event(event) for event in (ClusterIdentity("c"), Topic("other", ID))])
        list(ahead)
        publisher.on_commit([batch(5, *topics(20)[:7])])
        assert (publisher.image.offset, publisher.image.cluster_id, len(publisher.image.topics)) == (12, "c", 8)

    with_publisher(check)


@pytest.mark.parametrize("told", [25, 26])
def test_snapshot_is_replayed_in_steps_and_published_on_delivery(told: int) -> None:
    """If another snapshot than the replayed one is delivered, the delivered one is published."""

    async def check(world: World, publisher: MetadataPublisher, quorum: FakeQuorum) -> None:
        seen: list[int] = []
        publisher.subscribe(lambda _old, new, _delta: seen.append(len(new.topics)))
        assert len(list(publisher.load_ahead(25, 1, [encode_event(event) for event in topics(25)], 10))) == 3
        assert seen == []
        publisher.on_snapshot(told, 1, [encode_event(event) for event in topics(told)])
        assert seen == [told]
        assert (publisher.image.offset, publisher.image.epoch) == (told, 1)

    with_publisher(check)


def test_snapshot_is_dropped_if_the_image_passes_its_offset_during_its_replay() -> None:
    async def check(world: World, publisher: MetadataPublisher, quorum: FakeQuorum) -> None:
        ahead = publisher.load_ahead(25, 1, [encode_event(event) for event in topics(25)], 10)
        next(ahead)
        publisher.on_commit([batch(0, *topics(25))])
        list(ahead)
        assert publisher._loaded is None

    with_publisher(check)


@pytest.mark.parametrize("moves_on", [False, True])
def test_snapshot_is_compared_in_steps_with_the_image_that_it_replaces(moves_on: bool) -> None:
    """If the image changed before the snapshot is delivered, the snapshot is compared with the changed image."""
    count = 12 * LEAF_PARTITIONS_MAX

    def partitions(epoch: int) -> list[Event]:
        return [Partition(ID, number, (1,), (1,), leader=1, leader_epoch=epoch) for number in range(count)]

    async def check(world: World, publisher: MetadataPublisher, quorum: FakeQuorum) -> None:
        publisher.on_commit([batch(0, Topic("orders", ID), *partitions(0))])
        seen: list[tuple[MetadataImage, MetadataImage, ImageDelta]] = []
        publisher.subscribe(lambda *change: seen.append(change))
        seen.clear()
        records = [encode_event(event) for event in (Topic("orders", ID), *partitions(1))]
        steps = len(list(publisher.load_ahead(2 * count, 1, records, 3 * LEAF_PARTITIONS_MAX)))
        assert steps == 5 + 4, "a step for three leaves, replayed or compared"
        if moves_on:
            publisher.on_commit([batch(1 + count, Topic("others", UUID(int=7)))])
        publisher.on_snapshot(2 * count, 1, records)
        old, new, delta = seen[-1]
        assert delta == ImageDelta.between(old, new)
        assert len(delta.topics[ID].partitions) == count
        assert list(delta.deleted_topics.values()) == (["others"] if moves_on else [])

    with_publisher(check)
