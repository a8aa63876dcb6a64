"""Who reads what: as other libraries divide it, balanced, sticky, and safe against members that claim too much."""

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
    GroupMember,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
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
    return GroupMember(name, Subscription(tuple(topics), assignor.user_data(tuple(had), generation), owned, generation))


def members(wanted: list[list[str]], assignor: Assignor, had: Assignments | None = None) -> list[GroupMember]:
    return [member(f"m{n}", topics, assignor, (had or {}).get(f"m{n}", [])) for n, topics in enumerate(wanted)]


def every_partition(counts: dict[str, int], wanted: list[list[str]]) -> set[TopicPartition]:
    topics = {topic for topics in wanted for topic in topics if topic in counts}
    return {(topic, number) for topic in topics for number in range(counts[topic])}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(counts_of_topics, groups)
def test_every_partition_goes_to_one_member_that_wants_it(
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
    def __init__(self, ours: GroupMember) -> None:
        self.member_id = ours.member_id
        self.group_instance_id = ours.instance_id
        self.metadata = ConsumerProtocolSubscription(
            version=1, topics=list(ours.subscription.topics), user_data=b"", owned_partitions=[]
        )


@pytest.mark.parametrize(
    ("ours", "theirs"), [(RangeAssignor, RangePartitionAssignor), (RoundRobinAssignor, RoundRobinPartitionAssignor)]
)
@given(counts_of_topics, groups, st.integers(0, 3))
def test_it_divides_as_another_library_does(
    ours: type[Assignor], theirs: type, counts: dict[str, int], wanted: list[list[str]], static: int
) -> None:
    wanted = [[topic for topic in topics if topic in counts] or list(counts)[:1] for topics in wanted]
    if ours is RoundRobinAssignor:
        wanted = [wanted[0]] * len(wanted)  # theirs fails where members want different topics
    group = [
        GroupMember(f"m{n}", Subscription(tuple(topics)), f"i{9 - n}" if n < static else None)
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
def test_members_that_want_the_same_differ_by_one_partition_at_most(
    assignor: Assignor, counts: dict[str, int], size: int
) -> None:
    loads = [len(share) for share in assignor.assign(counts, members([TOPICS] * size, assignor)).values()]
    assert max(loads) - min(loads) <= 1


@given(counts_of_topics, groups)
def test_no_single_move_would_make_two_members_more_equal(counts: dict[str, int], wanted: list[list[str]]) -> None:
    assigned = StickyAssignor().assign(counts, members(wanted, StickyAssignor()))
    for one, other in combinations(assigned, 2):
        giver, taker = (one, other) if len(assigned[one]) > len(assigned[other]) else (other, one)
        if len(assigned[giver]) - len(assigned[taker]) > 1:
            may_move = [tp for tp in assigned[giver] if tp[0] in wanted[int(taker[1:])]]
            assert not may_move


@pytest.mark.parametrize("assignor", [StickyAssignor(), CooperativeStickyAssignor()])
@given(counts_of_topics, groups)
def test_nothing_moves_when_nothing_has_changed(
    assignor: Assignor, counts: dict[str, int], wanted: list[list[str]]
) -> None:
    before = assignor.assign(counts, members(wanted, assignor))
    assert assignor.assign(counts, members(wanted, assignor, before)) == before


@given(counts_of_topics, st.integers(2, 6))
def test_when_a_member_leaves_the_others_keep_all_they_had(counts: dict[str, int], size: int) -> None:
    assignor = StickyAssignor()
    before = assignor.assign(counts, members([TOPICS] * size, assignor))
    del before[f"m{size - 1}"]
    after = assignor.assign(counts, members([TOPICS] * (size - 1), assignor, before))
    assert all(set(before[name]) <= set(after[name]) for name in before)


@given(counts_of_topics, st.integers(1, 5))
def test_when_a_member_comes_only_what_it_gets_moves(counts: dict[str, int], size: int) -> None:
    assignor = StickyAssignor()
    before = assignor.assign(counts, members([TOPICS] * size, assignor))
    after = assignor.assign(counts, members([TOPICS] * (size + 1), assignor, before))
    assert all(set(after[name]) <= set(before[name]) for name in before)


@given(counts_of_topics, st.integers(1, 5))
def test_what_changes_its_owner_is_given_out_only_after_it_was_given_up(counts: dict[str, int], size: int) -> None:
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
def test_of_two_claims_the_one_of_the_higher_generation_counts(assignor: Assignor) -> None:
    had: list[TopicPartition] = [("a", 0), ("a", 1)]
    old, new = member("m0", ["a"], assignor, had, 3), member("m1", ["a"], assignor, had[:1], 4)
    assert ("a", 0) not in assignor.assign({"a": 2}, [old, new])["m0"]
    assert assignor.assign({"a": 2}, [old, new])["m0"] == [("a", 1)]


def test_of_two_claims_of_one_generation_neither_counts() -> None:
    assignor = CooperativeStickyAssignor()
    both = [member(name, ["a"], assignor, [("a", 0)], 3) for name in ("m0", "m1")]
    third = member("m2", ["a"], assignor, [], 3)
    assigned = assignor.assign({"a": 1}, [*both, third])
    assert assigned == {"m0": [], "m1": [], "m2": []}, "both may still read it"
    given_up = [member(name, ["a"], assignor, [], 4) for name in assigned]
    assert sum(map(len, assignor.assign({"a": 1}, given_up).values())) == 1


def test_a_member_that_tells_its_generation_in_its_user_data_is_understood() -> None:
    assignor = CooperativeStickyAssignor()
    data = assignor.user_data((), 5)
    old_format = GroupMember("m0", Subscription(("a",), data, (("a", 0),)))
    stale = member("m1", ["a"], assignor, [("a", 0)], 4)
    assert assignor.assign({"a": 1}, [stale, old_format]) == {"m0": [("a", 0)], "m1": []}


def test_keeping_through_a_rebalance_needs_every_assignor_to_allow_it() -> None:
    assert is_cooperative(assignors_named(["cooperative-sticky"]))
    assert not is_cooperative(assignors_named(["range", "cooperative-sticky"]))


@pytest.mark.parametrize("wanted", [["rang"], []])
def test_an_assignor_that_does_not_exist_is_named(wanted: list[str]) -> None:
    with pytest.raises(ValueError, match="range, roundrobin, sticky, cooperative-sticky"):
        assignors_named(wanted)
