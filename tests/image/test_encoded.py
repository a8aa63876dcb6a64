"""The fast paths between events, bytes and the image give the same values and the same errors as the general paths."""

from __future__ import annotations

import random
from dataclasses import fields
from uuid import UUID

import msgpack
import pytest

from kraft.image import (
    BatchBuilder,
    Event,
    ImageBuilder,
    MetadataImage,
    PartitionState,
    ReplayFailed,
    UnknownEvent,
    decode_event,
    encode_event,
    encoding,
    replay_with_delta,
)
from kraft.image import encoded as encoded_module
from kraft.image.encoded import apply_encoded
from kraft.image.encoding import EventEncoder
from kraft.image.events import NoOp, Partition, PartitionChange, RemoveTopic, Topic
from kraft.image.image import EMPTY_IMAGE
from kraft.image.replay import TopicBuilder
from kraft.seam import InvariantError, WireError

TOPICS = [UUID(int=1000 + number) for number in range(3)]
DIRECTORIES = [UUID(int=(5 << 64) + number) for number in range(4)]


def replicas(chance: random.Random) -> tuple[int, ...]:
    return tuple(chance.sample(range(1, 6), chance.randint(0, 4)))


def some_or_none(chance: random.Random) -> tuple[int, ...] | None:
    return None if chance.random() < 0.5 else replicas(chance)


def directories(chance: random.Random) -> tuple[UUID, ...]:
    return tuple(chance.choices(DIRECTORIES, k=chance.randint(0, 3)))


def partition(chance: random.Random, topic_id: UUID, number: int) -> Partition:
    return Partition(
        topic_id,
        number,
        replicas(chance),
        replicas(chance),
        replicas(chance),
        replicas(chance),
        chance.randint(-1, 5),
        chance.randint(0, 1),
        chance.randint(0, 9),
        chance.randint(0, 300),
        directories(chance),
        replicas(chance),
        replicas(chance),
    )


def change(chance: random.Random, topic_id: UUID, number: int) -> PartitionChange:
    return PartitionChange(
        topic_id,
        number,
        some_or_none(chance),
        chance.randint(-2, 5),
        some_or_none(chance),
        some_or_none(chance),
        some_or_none(chance),
        chance.randint(-1, 1),
        None if chance.random() < 0.5 else directories(chance),
        some_or_none(chance),
        some_or_none(chance),
    )


def history(seed: int) -> list[Event]:
    """Yield events that can be replayed one after the other: topics are created, grow, change and are deleted."""
    chance = random.Random(seed)
    events: list[Event] = []
    counts: dict[UUID, int] = {}
    for _ in range(400):
        topic_id = chance.choice(TOPICS)
        kind = chance.random()
        if topic_id not in counts:
            events.append(Topic(f"topic-{topic_id.int}", topic_id))
            counts[topic_id] = 0
        elif kind < 0.55:
            number = chance.randint(0, counts[topic_id])
            counts[topic_id] = max(counts[topic_id], number + 1)
            events.append(partition(chance, topic_id, number))
        elif kind < 0.95 and counts[topic_id]:
            events.append(change(chance, topic_id, chance.randrange(counts[topic_id])))
        elif kind < 0.97:
            events.append(RemoveTopic(topic_id))
            del counts[topic_id]
        else:
            events.append(NoOp())
    return events


def by_events(events: list[bytes], base: MetadataImage = EMPTY_IMAGE) -> ImageBuilder:
    builder = ImageBuilder(base)
    for data in events:
        builder.apply(decode_event(data))
    return builder


def by_bytes(events: list[bytes], base: MetadataImage = EMPTY_IMAGE) -> ImageBuilder:
    builder = ImageBuilder(base)
    apply_encoded(builder, events)
    return builder


@pytest.mark.parametrize("seed", range(20))
def test_replay_from_bytes_gives_the_same_image_and_delta_as_decoded_events(seed: int) -> None:
    events = [encode_event(event) for event in history(seed)]
    half = len(events) // 2
    base = by_events(events[:half]).build(half, 1)
    for begin, data in ((EMPTY_IMAGE, events), (base, events[half:])):
        long, short = by_events(data, begin), by_bytes(data, begin)
        assert short.build(9, 1) == long.build(9, 1)
        assert short.delta() == long.delta()


@pytest.mark.parametrize("seed", range(5))
def test_replay_from_damaged_bytes_fails_as_decoding_the_events_does(seed: int) -> None:
    chance = random.Random(seed)
    events = [encode_event(event) for event in history(seed)]
    good = events[:100]
    for _ in range(300):
        data = bytearray(chance.choice(events))
        for _ in range(chance.randint(1, 2)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        if chance.random() < 0.2:
            del data[chance.randrange(len(data)) :]
        outcomes: list[object] = []
        for way in (by_events, by_bytes):
            try:
                builder = way([*good, bytes(data)])
                outcomes.append((builder.build(1, 1), builder.delta()))
            except (ReplayFailed, UnknownEvent, WireError) as problem:
                outcomes.append(type(problem))
            except TypeError:
                outcomes.append(TypeError)
        assert outcomes[0] == outcomes[1], bytes(data).hex()


def test_event_of_an_older_or_newer_release_takes_the_general_path() -> None:
    topic = encode_event(Topic("orders", TOPICS[0]))
    short = msgpack.packb([3, 0, TOPICS[0].bytes, 0, [1, 2], [1]])
    long = msgpack.packb([3, 0, TOPICS[0].bytes, 1, [1], [1], [], [], 1, 0, 0, 0, [], [], [], "from", "later"])
    builder = by_bytes([topic, short, long])
    image = builder.build(3, 1)
    orders = image.topics.get("orders")
    assert orders is not None
    assert [state.replicas for _, state in orders.partitions()] == [(1, 2), (1,)]


def states(image: MetadataImage) -> list[PartitionState]:
    return [state for topic in image.topics for _, state in topic.partitions()]


def like_partitions(count: int) -> list[Event]:
    """Yield the events of a topic whose partitions differ only in their number."""
    return [
        Topic("orders", TOPICS[0]),
        *(
            Partition(TOPICS[0], number, (1, 2), (1, 2), leader=1, directories=(DIRECTORIES[0],))
            for number in range(count)
        ),
    ]


@pytest.mark.slow
def test_partitions_in_equal_states_share_one_value_before_and_after_equal_changes() -> None:
    moved: list[Event] = [PartitionChange(TOPICS[0], number, (2,), 2) for number in range(0, 70_000, 7)]
    builder = by_bytes([encode_event(event) for event in (*like_partitions(70_000), *moved)])
    image = builder.build(1, 1)
    assert len({id(state) for state in states(image)}) == 2
    assert image == by_events([encode_event(event) for event in (*like_partitions(70_000), *moved)]).build(1, 1)


@pytest.mark.parametrize("seed", range(20))
def test_full_cache_of_decoded_event_bytes_is_cleared(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_module, "TAILS_MAX", 3)
    monkeypatch.setattr(encoding, "TAILS_MAX", 3)
    monkeypatch.setattr(encoded_module, "_states", {})
    monkeypatch.setattr(encoded_module, "_changes", {})
    events = history(seed)
    encoder = EventEncoder(0)
    data = [encoder.encode(event) for event in events]
    assert data == [encode_event(event) for event in events]
    assert by_bytes(data).build(9, 1) == by_events(data).build(9, 1)
    assert len(encoded_module._states) <= 3


@pytest.mark.parametrize("seed", range(20))
def test_event_encoder_writes_the_same_bytes_as_encode_event(seed: int) -> None:
    events = [*history(seed), *like_partitions(300), *history(seed + 100)]
    encoder = EventEncoder(0)
    assert [encoder.encode(event) for event in events] == [encode_event(event) for event in events]


@pytest.mark.parametrize("events_at_once", [1, 7, 1_000])
@pytest.mark.parametrize("seed", range(5))
def test_batch_built_in_steps_equals_the_batch_built_at_once(seed: int, events_at_once: int) -> None:
    events = history(seed)
    half = len(events) // 2
    base = by_events([encode_event(event) for event in events[:half]]).build(half, 1)
    batch = BatchBuilder(base, events[half:])
    steps = 1
    while not batch.take(events_at_once):
        assert len(batch.values) == steps * events_at_once
        steps += 1
    assert steps == -(-(len(events) - half) // events_at_once)
    assert batch.values == [encode_event(event) for event in events[half:]]
    assert batch.build(len(events), 2) == replay_with_delta(base, events[half:], len(events), 2)


def test_topic_recreated_under_its_id_in_one_batch_is_a_new_topic() -> None:
    again = [*like_partitions(3), RemoveTopic(TOPICS[0]), *like_partitions(2)]
    batch = BatchBuilder(EMPTY_IMAGE, again)
    assert batch.take(100)
    image, _ = batch.build(9, 1)
    assert len(states(image)) == 2
    assert image == by_events([encode_event(event) for event in again]).build(9, 1)


def test_partition_change_whose_leader_is_not_a_number_takes_the_general_path() -> None:
    """The fast path would take a leader of None for "unchanged"."""
    (topic, partition) = (encode_event(event) for event in like_partitions(1))
    damaged = msgpack.packb([5, 0, TOPICS[0].bytes, 0, [1], None, None, None, None, -1, None, None, None])
    assert by_bytes([topic, partition, damaged]).build(3, 1) == by_events([topic, partition, damaged]).build(3, 1)


def test_event_that_fails_during_its_replay_is_not_applied_a_second_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = TopicBuilder.put
    puts: list[int] = []

    def put(self: TopicBuilder, index: int, state: PartitionState) -> None:
        honest(self, index, state)
        puts.append(index)
        raise KeyError("planted")

    topic, partition = (encode_event(event) for event in like_partitions(1))
    monkeypatch.setattr(TopicBuilder, "put", put)
    with pytest.raises(KeyError, match="planted"):
        by_bytes([topic, partition])
    assert puts == [0]


@pytest.mark.parametrize("event_class", [Partition, PartitionChange])
def test_event_encoder_whose_fields_do_not_match_the_event_class_raises_an_invariant_error(
    event_class: type[Event],
) -> None:
    names = [field.name for field in fields(event_class) if field.name not in encoding._APART]  # type: ignore[arg-type]
    encoding._shape(event_class, *names)
    for wrong in (names[1:], [*names, "later"]):
        with pytest.raises(InvariantError, match=event_class.__name__):
            encoding._shape(event_class, *wrong)
