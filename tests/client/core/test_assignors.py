"""Assignors give the same assignments as other libraries, balanced and sticky. They resist members that claim
partitions of others.
"""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from kraft.client.core.assignors import (
    ASSIGNORS,
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    SubscribedMember,
    assignors_named,
    is_cooperative,
)
from kraft.client.core.assignors.base import Assignments
from kraft.client.core.consumer_protocol import Subscription
from kraft.client.core.records import TopicPartition

TOPICS = ["a", "b", "c", "d"]
counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7), min_size=1)
topics_wanted = st.lists(st.sampled_from([*TOPICS, "missing"]), min_size=1, unique=True)
groups = st.lists(topics_wanted, min_size=1, max_size=6)


def member(name: str, topics: list[str], assignor: Assignor, had: list[TopicPartition] = [], generation: int = 1):  # noqa: B006
    owned = tuple(had) if assignor.is_cooperative else ()
    return SubscribedMember(
        name, Subscription(tuple(topics), assignor.user_data(tuple(had), generation), owned, generation)
    )


def members(wanted: list[list[str]], assignor: Assignor, had: Assignments | None = None) -> list[SubscribedMember]:
    return [member(f"m{n}", topics, assignor, (had or {}).get(f"m{n}", [])) for n, topics in enumerate(wanted)]


def every_partition(counts: dict[str, int], wanted: list[list[str]]) -> set[TopicPartition]:
    topics = {topic for topics in wanted for topic in topics if topic in counts}
    return {(topic, number) for topic in topics for number in range(counts[topic])}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(counts_of_topics, groups)
def test_every_partition_is_assigned_to_exactly_one_subscriber(
    name: str, counts: dict[str, int], wanted: list[list[str]]
) -> None:
    assigned = ASSIGNORS[name]().assign(counts, members(wanted, ASSIGNORS[name]()))
    given_out = [partition for partitions in assigned.values() for partition in partitions]
    assert sorted(given_out) == sorted(every_partition(counts, wanted))
    assert set(assigned) == {f"m{number}" for number in range(len(wanted))}
    for number, topics in enumerate(wanted):
        assert {topic for topic, _ in assigned[f"m{number}"]} <= set(topics)


class ForeignCluster:
    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._counts[topic])) if topic in self._counts else None


class ForeignMember:
    def __init__(self, ours: SubscribedMember) -> None:
        self.member_id = ours.member_id
        self.group_instance_id = ours.instance_id
        self.metadata = ConsumerProtocolSubscription(
            version=1, topics=list(ours.subscription.topics), user_data=b"", owned_partitions=[]
        )


@pytest.mark.parametrize(
    ("ours", "theirs"), [(RangeAssignor, RangePartitionAssignor), (RoundRobinAssignor, RoundRobinPartitionAssignor)]
)
@given(counts_of_topics, groups, st.integers(0, 3))
def test_assignors_give_the_same_assignment_as_another_library(
    ours: type[Assignor], theirs: type, counts: dict[str, int], wanted: list[list[str]], static: int
) -> None:
    wanted = [[topic for topic in topics if topic in counts] or list(counts)[:1] for topics in wanted]
    if ours is RoundRobinAssignor:
        wanted = [wanted[0]] * len(wanted)  # the other library fails if members subscribe to different topics
    group = [
        SubscribedMember(f"m{n}", Subscription(tuple(topics)), f"i{9 - n}" if n < static else None)
        for n, topics in enumerate(wanted)
    ]
    foreign = theirs([]) if not hasattr(theirs, "assign") else theirs
    told = foreign.assign(ForeignCluster(counts), [ForeignMember(one) for one in group])
    expected = {
        name: sorted((topic, number) for topic, numbers in share.assigned_partitions for number in numbers)
        for name, share in ((name, share) for name, share in told.items())
    }
    assigned = ours().assign(counts, group)
    assert {name: sorted(share) for name, share in assigned.items()} == expected


@pytest.mark.parametrize("assignor", [StickyAssignor(), CooperativeStickyAssignor()])
@given(counts_of_topics, st.integers(1, 7))
def test_members_with_equal_subscriptions_differ_by_at_most_one_partition(
    assignor: Assignor, counts: dict[str, int], size: int
) -> None:
    loads = [len(share) for share in assignor.assign(counts, members([TOPICS] * size, assignor)).values()]
    assert max(loads) - min(loads) <= 1


@given(counts_of_topics, groups)
def test_sticky_assignment_cannot_be_balanced_better_by_one_move(
    counts: dict[str, int], wanted: list[list[str]]
) -> None:
    assigned = StickyAssignor().assign(counts, members(wanted, StickyAssignor()))
    for one, other in combinations(assigned, 2):
        giver, taker = (one, other) if len(assigned[one]) > len(assigned[other]) else (other, one)
        if len(assigned[giver]) - len(assigned[taker]) > 1:
            may_move = [tp for tp in assigned[giver] if tp[0] in wanted[int(taker[1:])]]
            assert not may_move


@pytest.mark.parametrize("assignor", [StickyAssignor(), CooperativeStickyAssignor()])
@given(counts_of_topics, groups)
def test_sticky_assignment_is_unchanged_if_members_and_topics_are_unchanged(
    assignor: Assignor, counts: dict[str, int], wanted: list[list[str]]
) -> None:
    before = assignor.assign(counts, members(wanted, assignor))
    assert assignor.assign(counts, members(wanted, assignor, before)) == before


@given(counts_of_topics, st.integers(2, 6))
def test_when_a_member_leaves_a_sticky_group_the_others_keep_their_partitions(
    counts: dict[str, int], size: int
) -> None:
    assignor = StickyAssignor()
    before = assignor.assign(counts, members([TOPICS] * size, assignor))
    del before[f"m{size - 1}"]
    after = assignor.assign(counts, members([TOPICS] * (size - 1), assignor, before))
    assert all(set(before[name]) <= set(after[name]) for name in before)


@given(counts_of_topics, st.integers(1, 5))
def test_when_a_member_joins_a_sticky_group_only_the_partitions_assigned_to_it_move(
    counts: dict[str, int], size: int
) -> None:
    assignor = StickyAssignor()
    before = assignor.assign(counts, members([TOPICS] * size, assignor))
    after = assignor.assign(counts, members([TOPICS] * (size + 1), assignor, before))
    assert all(set(after[name]) <= set(before[name]) for name in before)


@given(counts_of_topics, st.integers(1, 5))
def test_cooperative_assignment_moves_a_partition_only_after_its_owner_gave_it_up(
    counts: dict[str, int], size: int
) -> None:
    assignor = CooperativeStickyAssignor()
    before = assignor.assign(counts, members([TOPICS] * size, assignor))
    first = assignor.assign(counts, members([TOPICS] * (size + 1), assignor, before))
    owner = {partition: name for name, share in before.items() for partition in share}
    assert all(owner[partition] == name for name, share in first.items() for partition in share)
    second = assignor.assign(counts, members([TOPICS] * (size + 1), assignor, first))
    loads = [len(share) for share in second.values()]
    assert max(loads) - min(loads) <= 1
    assert sum(loads) == len(every_partition(counts, [TOPICS]))


@pytest.mark.parametrize("assignor", [StickyAssignor(), CooperativeStickyAssignor()])
def test_of_two_members_that_claim_a_partition_the_one_with_the_higher_generation_keeps_it(assignor: Assignor) -> None:
    had: list[TopicPartition] = [("a", 0), ("a", 1)]
    old, new = member("m0", ["a"], assignor, had, 3), member("m1", ["a"], assignor, had[:1], 4)
    assert ("a", 0) not in assignor.assign({"a": 2}, [old, new])["m0"]
    assert assignor.assign({"a": 2}, [old, new])["m0"] == [("a", 1)]


def test_if_two_members_claim_a_partition_in_one_generation_neither_claim_counts() -> None:
    assignor = CooperativeStickyAssignor()
    both = [member(name, ["a"], assignor, [("a", 0)], 3) for name in ("m0", "m1")]
    third = member("m2", ["a"], assignor, [], 3)
    assigned = assignor.assign({"a": 1}, [*both, third])
    assert assigned == {"m0": [], "m1": [], "m2": []}, "both members may still read it"
    given_up = [member(name, ["a"], assignor, [], 4) for name in assigned]
    assert sum(map(len, assignor.assign({"a": 1}, given_up).values())) == 1


def test_the_generation_of_a_sticky_member_is_read_from_its_user_data() -> None:
    assignor = CooperativeStickyAssignor()
    data = assignor.user_data((), 5)
    old_format = SubscribedMember("m0", Subscription(("a",), data, (("a", 0),)))
    stale = member("m1", ["a"], assignor, [("a", 0)], 4)
    assert assignor.assign({"a": 1}, [stale, old_format]) == {"m0": [("a", 0)], "m1": []}


def test_cooperative_rebalancing_needs_every_assignor_to_be_cooperative() -> None:
    assert is_cooperative(assignors_named(["cooperative-sticky"]))
    assert not is_cooperative(assignors_named(["range", "cooperative-sticky"]))


@pytest.mark.parametrize("wanted", [["rang"], []])
def test_an_unknown_assignor_is_named_in_the_error(wanted: list[str]) -> None:
    with pytest.raises(ValueError, match="range, roundrobin, sticky, cooperative-sticky"):
        assignors_named(wanted)
