"""PartitionTally compared with a count of all partitions, over random histories of a few topics."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kraft.controller.partition_tally import PartitionTally
from kraft.image import ImageBuilder, ImageDelta
from kraft.image.events import Event, Partition, PartitionChange, RemoveTopic, Topic
from kraft.image.image import EMPTY_IMAGE

REPLICAS = (1, 2, 3)
steps = st.lists(
    st.tuples(
        st.sampled_from(["topic", "partition", "lead", "remove"]), st.integers(0, 2), st.sampled_from([-1, 1, 2])
    ),
    max_size=40,
)


def _event(kind: str, number: int, leader: int, sizes: dict[int, int]) -> Event | None:
    topic_id = UUID(int=1000 + number)
    if kind == "topic" and number not in sizes:
        sizes[number] = 0
        return Topic(name=f"t{number}", topic_id=topic_id)
    if kind == "partition" and number in sizes:
        sizes[number] += 1
        index = sizes[number] - 1
        return Partition(topic_id=topic_id, partition_id=index, replicas=REPLICAS, isr=REPLICAS, leader=leader)
    if kind == "lead" and sizes.get(number):
        return PartitionChange(topic_id=topic_id, partition_id=0, leader=leader)
    if kind == "remove" and number in sizes:
        del sizes[number]
        return RemoveTopic(topic_id=topic_id)
    return None


@given(steps, st.booleans())
def test_the_partition_tally_equals_a_count_of_all_partitions(
    history: list[tuple[str, int, int]], compares: bool
) -> None:
    tally, image, sizes = PartitionTally(), EMPTY_IMAGE, dict[int, int]()
    for offset, (kind, number, leader) in enumerate(history, 1):
        event = _event(kind, number, leader, sizes)
        if event is None:
            continue
        builder = ImageBuilder(image)
        builder.apply(event)
        new = builder.build(offset, 1)
        tally.published(image, new, ImageDelta.between(image, new) if compares else builder.delta())
        image = new
    states = [state for topic in image.topics for _, state in topic.partitions()]
    assert tally.partitions == len(states)
    assert tally.offline == sum(state.leader == -1 for state in states)
    assert tally.not_preferred == sum(state.leader != state.replicas[0] for state in states)


def test_an_election_counts_as_clean_or_unclean_by_the_leaders_previous_isr_and_elr_membership() -> None:
    topic_id = UUID(int=1000)
    tally, image = PartitionTally(), EMPTY_IMAGE
    first = Partition(topic_id=topic_id, partition_id=0, replicas=REPLICAS, isr=(1, 2), leader=1)
    for offset, (event, expected) in enumerate(
        (
            (Topic(name="t", topic_id=topic_id), (0, 0)),
            (first, (0, 0)),
            (PartitionChange(topic_id=topic_id, partition_id=0, leader=2, isr=(2,), elr=(1,)), (0, 0)),
            (PartitionChange(topic_id=topic_id, partition_id=0, leader=1, isr=(1,), elr=()), (1, 0)),
            (PartitionChange(topic_id=topic_id, partition_id=0, leader=-1), (1, 0)),
            (PartitionChange(topic_id=topic_id, partition_id=0, leader=3, isr=(3,)), (1, 1)),
        ),
        1,
    ):
        builder = ImageBuilder(image)
        builder.apply(event)
        new = builder.build(offset, 1)
        tally.published(image, new, builder.delta())
        image = new
        assert (tally.eligible_elections, tally.unclean_elections) == expected, event
