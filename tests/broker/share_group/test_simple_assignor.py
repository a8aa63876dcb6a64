"""The simple assignor of share groups."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kraft.broker.share_group.assignor import assign_simply

T1, T2 = UUID(int=1), UUID(int=2)


class CountedSubscriptions(dict[str, frozenset[UUID]]):
    """Subscriptions that count how often one of them is looked up."""

    lookups = 0

    def __getitem__(self, member: str) -> frozenset[UUID]:
        self.lookups += 1
        return super().__getitem__(member)


def test_the_work_does_not_grow_with_the_members_of_each_partition() -> None:
    members = CountedSubscriptions({f"m{number}": frozenset({T1}) for number in range(50)})
    found = assign_simply(members, {T1: frozenset(range(1_000))}, {})
    assert all(len(own[T1]) == 20 for own in found.values())
    assert members.lookups <= 2 * len(members)


def test_partitions_are_dealt_when_there_are_enough() -> None:
    found = assign_simply({"a": frozenset({T1}), "b": frozenset({T1})}, {T1: frozenset(range(4))}, {})
    assert found == {"a": {T1: {0, 2}}, "b": {T1: {1, 3}}}


def test_members_share_partitions_when_there_are_too_few() -> None:
    found = assign_simply({name: frozenset({T1}) for name in "abc"}, {T1: frozenset({0, 1})}, {})
    assert found == {"a": {T1: {0}}, "b": {T1: {1}}, "c": {T1: {0}}}


def test_a_member_keeps_its_partitions_when_another_one_leaves() -> None:
    before = {"a": {T1: frozenset({1})}, "b": {T1: frozenset({0})}}
    found = assign_simply({"a": frozenset({T1}), "b": frozenset({T1})}, {T1: frozenset({0, 1})}, before)
    assert found == before


SUBSCRIPTIONS = st.dictionaries(st.sampled_from("abcdef"), st.frozensets(st.sampled_from((T1, T2))), max_size=6)
PARTITIONS = st.fixed_dictionaries({T1: st.frozensets(st.integers(0, 5)), T2: st.frozensets(st.integers(0, 5))})


@given(subscriptions=SUBSCRIPTIONS, partitions=PARTITIONS)
def test_every_partition_and_every_member_is_used(
    subscriptions: dict[str, frozenset[UUID]], partitions: dict[UUID, frozenset[int]]
) -> None:
    found = assign_simply(subscriptions, partitions, {})
    assert found.keys() == subscriptions.keys()
    for topic_id, numbers in partitions.items():
        subscribed = [member for member, topics in subscriptions.items() if topic_id in topics]
        assigned = {number for member in subscribed for number in found[member].get(topic_id, ())}
        assert assigned == (numbers if subscribed else set())
    for member, own in found.items():
        assert own.keys() <= subscriptions[member]
        assert bool(own) == any(partitions[topic_id] for topic_id in subscriptions[member])


@given(
    st.dictionaries(st.sampled_from("abcd"), st.frozensets(st.sampled_from((T1, T2)))),
    st.dictionaries(st.sampled_from((T1, T2)), st.frozensets(st.integers(0, 4))),
    st.dictionaries(
        st.sampled_from("abcde"),
        st.dictionaries(st.sampled_from((T1, T2)), st.frozensets(st.integers(0, 4))),
    ),
)
def test_each_partition_goes_to_the_member_with_the_fewest_then_to_one_that_had_it(
    subscriptions: dict[str, frozenset[UUID]],
    partitions: dict[UUID, frozenset[int]],
    previous: dict[str, dict[UUID, frozenset[int]]],
) -> None:
    dealt: dict[str, set[tuple[UUID, int]]] = {member: set() for member in sorted(subscriptions)}
    for topic_id in sorted(partitions):
        for number in sorted(partitions[topic_id]):
            members = [member for member in dealt if topic_id in subscriptions[member]]
            ranks = [
                (len(dealt[member]), number not in previous.get(member, {}).get(topic_id, ()), member)
                for member in members
            ]
            if ranks:
                dealt[min(ranks)[2]].add((topic_id, number))
    found = assign_simply(subscriptions, partitions, previous)
    shown = {
        member: {(topic_id, number) for topic_id, numbers in own.items() for number in numbers}
        for member, own in found.items()
    }
    assert {member: own for member, own in shown.items() if dealt[member]} == {
        member: own for member, own in dealt.items() if own
    }
