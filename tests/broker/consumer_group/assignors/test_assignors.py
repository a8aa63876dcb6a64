from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.broker.consumer_group.assignors.members import Assignment, AssignorMember
from kraft.broker.consumer_group.assignors.names import ASSIGNORS

Case = tuple[list[AssignorMember], dict[UUID, int]]
BOTH = pytest.mark.parametrize("name", sorted(ASSIGNORS))
A, B, C = (UUID(int=number) for number in (1, 2, 3))


def member(name: str, *subscribed: UUID, instance_id: str | None = None, **owned: set[int]) -> AssignorMember:
    """`owned` maps a topic's letter to partitions."""
    letters = {"a": A, "b": B, "c": C}
    held = {letters[letter]: frozenset(partitions) for letter, partitions in owned.items()}
    return AssignorMember(name, instance_id, None, frozenset(subscribed), held)


def again(members: Sequence[AssignorMember], result: Assignment) -> list[AssignorMember]:
    """Return the members with the result of an assignment as what they own."""
    return [row._replace(owned=result.get(row.member_id, {})) for row in members]


def totals(result: Assignment) -> dict[str, int]:
    return {name: sum(map(len, topics.values())) for name, topics in result.items()}


def partitions_of(topics: Mapping[UUID, frozenset[int]]) -> set[tuple[UUID, int]]:
    return {(topic_id, partition) for topic_id, partitions in topics.items() for partition in partitions}


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    equal: bool = False,
    members_max: int = 7,
    topics_max: int = 5,
    partitions_max: int = 12,
    same_size: bool = False,
) -> Case:
    """Members of one group with what they own (also partitions and topics that no longer exist, and unsubscribed ones),
    and the topics."""
    ids = [UUID(int=draw(st.integers(0, 1 << 127))) for _ in range(draw(st.integers(1, topics_max)))]
    size = draw(st.integers(1, partitions_max))
    counts = {topic_id: size if same_size else draw(st.integers(1, partitions_max)) for topic_id in ids}
    missing = UUID(int=(1 << 128) - 1)
    owners: dict[str, dict[UUID, set[int]]] = {}
    names = [f"m{number}" for number in range(draw(st.integers(1, members_max)))]
    for topic_id in [*counts, missing]:
        for partition in range(counts.get(topic_id, 1) + 1):
            owner = draw(st.sampled_from([None, *names]))
            if owner is not None:
                owners.setdefault(owner, {}).setdefault(topic_id, set()).add(partition)
    everything = frozenset(draw(st.sets(st.sampled_from([*counts, missing]), min_size=1)))
    members = []
    for name in draw(st.permutations(names)):
        subscribed = everything if equal else frozenset(draw(st.sets(st.sampled_from([*counts, missing]))))
        instance_id = draw(st.sampled_from([None, f"i{name}"]))
        held = {topic_id: frozenset(partitions) for topic_id, partitions in owners.get(name, {}).items()}
        members.append(AssignorMember(name, instance_id, None, subscribed, held))
    return members, counts


@BOTH
@given(case=cases())
def test_each_partition_of_a_subscribed_topic_is_assigned_once_and_only_to_a_subscriber(name: str, case: Case) -> None:
    members, counts = case
    result = ASSIGNORS[name](members, counts)
    assert set(result) == {row.member_id for row in members}
    seen: list[tuple[UUID, int]] = []
    for row in members:
        assert set(result[row.member_id]) <= row.subscribed
        assert all(result[row.member_id].values())
        seen += partitions_of(result[row.member_id])
    subscribed = {topic_id for row in members for topic_id in row.subscribed if topic_id in counts}
    assert sorted(seen) == sorted((topic_id, number) for topic_id in subscribed for number in range(counts[topic_id]))


@BOTH
@given(case=cases(), order=st.randoms(use_true_random=False))
def test_an_assignment_does_not_depend_on_the_order_of_its_input(name: str, case: Case, order: object) -> None:
    members, counts = case
    shuffled, topics = list(members), list(counts.items())
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    order.shuffle(topics)  # type: ignore[attr-defined]
    assert ASSIGNORS[name](shuffled, dict(topics)) == ASSIGNORS[name](members, counts)


@BOTH
@given(case=cases())
def test_assigning_a_result_again_changes_nothing(name: str, case: Case) -> None:
    members, counts = case
    result = ASSIGNORS[name](members, counts)
    assert ASSIGNORS[name](again(members, result), counts) == result


@BOTH
def test_a_group_without_members_has_no_assignment(name: str) -> None:
    assert ASSIGNORS[name]([], {A: 3}) == {}


# uniform, equal subscriptions


@given(cases(equal=True))
def test_uniform_totals_of_equal_subscribers_differ_by_at_most_one(case: Case) -> None:
    members, counts = case
    sizes = totals(ASSIGNORS["uniform"](members, counts)).values()
    assert max(sizes) - min(sizes) <= 1


@given(cases(equal=True, members_max=6))
def test_uniform_moves_the_fewest_partitions_among_equal_subscribers(case: Case) -> None:
    """The twin tries every way to give the larger quotas to members."""
    members, counts = case
    valid = [
        {(topic_id, number) for topic_id, number in partitions_of(row.owned) if topic_id in row.subscribed}
        & {(topic_id, number) for topic_id, count in counts.items() for number in range(count)}
        for row in members
    ]
    total = sum(count for topic_id, count in counts.items() if topic_id in members[0].subscribed)
    quota, extra = divmod(total, len(members))
    best = max(
        sum(min(len(owned), quota + (number in larger)) for number, owned in enumerate(valid))
        for larger in combinations(range(len(members)), extra)
    )
    result = ASSIGNORS["uniform"](members, counts)
    kept = sum(len(owned & partitions_of(result[row.member_id])) for row, owned in zip(members, valid, strict=True))
    assert kept == best


def test_uniform_gives_the_larger_quota_to_the_member_that_owns_more() -> None:
    members = [member("m1", A, a={0}), member("m2", A, a={1, 2})]
    assert ASSIGNORS["uniform"](members, {A: 3}) == {"m1": {A: {0}}, "m2": {A: {1, 2}}}


def test_uniform_gives_the_partitions_of_a_departed_member_to_the_others() -> None:
    members = [member("m1", A, B, a={0}, b={0}), member("m2", A, B, a={1}, b={1})]
    assert ASSIGNORS["uniform"](members, {A: 3, B: 3}) == {"m1": {A: {0, 2}, B: {0}}, "m2": {A: {1}, B: {1, 2}}}


# uniform, mixed subscriptions


def smallest_sum_of_squares(members: Sequence[AssignorMember], counts: Mapping[UUID, int]) -> int:
    """Try every assignment of counts of each topic's partitions to its subscribers."""
    reachable = {(0,) * len(members)}
    for topic_id, count in counts.items():
        takers = [number for number, row in enumerate(members) if topic_id in row.subscribed]
        splits = [split for split in product(range(count + 1), repeat=len(takers)) if sum(split) == count]
        if takers:
            reachable = {
                tuple(total + dict(zip(takers, split, strict=True)).get(n, 0) for n, total in enumerate(loads))
                for loads in reachable
                for split in splits
            }
    return min(sum(total * total for total in loads) for loads in reachable)


@given(cases(members_max=4, topics_max=4, partitions_max=4))
def test_uniform_balances_mixed_subscriptions_as_well_as_any_assignment(case: Case) -> None:
    members, counts = case
    sizes = totals(ASSIGNORS["uniform"](members, counts)).values()
    assert sum(size * size for size in sizes) == smallest_sum_of_squares(members, counts)


def test_uniform_passes_partitions_on_along_a_path_of_topics() -> None:
    """Each topic by itself is balanced, because its subscribers differ by one; together they are not."""
    members = [
        member("m1", A, a={0}),
        member("m2", A, B, a={1, 2}),
        member("m3", B, C, b={0, 1, 2}),
        member("m4", C, c={0, 1, 2}),
    ]
    result = ASSIGNORS["uniform"](members, {A: 3, B: 3, C: 3})
    assert sorted(totals(result).values()) == [2, 2, 2, 3]


def test_uniform_prefers_balance_to_what_members_own() -> None:
    members = [member("m1", A, B, a={0, 1, 2, 3}), member("m2", A)]
    result = ASSIGNORS["uniform"](members, {A: 4, B: 2})
    assert totals(result) == {"m1": 3, "m2": 3}
    assert result["m1"][B] == {0, 1}


def test_uniform_keeps_what_members_own_when_a_mixed_group_is_balanced() -> None:
    members = [member("m1", A, B, a={3}, b={1}), member("m2", A, a={0, 2}), member("m3", A, B, a={1}, b={0})]
    result = ASSIGNORS["uniform"](members, {A: 4, B: 2})
    assert result == {"m1": {A: {3}, B: {1}}, "m2": {A: {0, 2}}, "m3": {A: {1}, B: {0}}}


def test_uniform_leaves_a_member_without_subscriptions_out() -> None:
    assert ASSIGNORS["uniform"]([member("m1"), member("m2", A)], {A: 2}) == {"m1": {}, "m2": {A: {0, 1}}}


# range


@given(cases())
def test_ranges_are_contiguous_and_their_sizes_differ_by_at_most_one(case: Case) -> None:
    members, counts = case
    result = ASSIGNORS["range"](members, counts)
    for topic_id in counts:
        sizes = [len(result[row.member_id].get(topic_id, ())) for row in members if topic_id in row.subscribed]
        assert not sizes or max(sizes) - min(sizes) <= 1
    for topics in result.values():
        for partitions in topics.values():
            assert max(partitions) - min(partitions) + 1 == len(partitions)


@given(cases(equal=True, same_size=True))
def test_ranges_of_equal_topics_are_copartitioned(case: Case) -> None:
    members, counts = case
    for topics in ASSIGNORS["range"](members, counts).values():
        assert len(set(topics.values())) <= 1


def test_ranges_go_to_static_members_first_in_order_of_their_instance_ids() -> None:
    members = [member("a", A), member("z", A, instance_id="i1"), member("b", A, instance_id="i2")]
    result = ASSIGNORS["range"](members, {A: 4})
    assert result == {"z": {A: {0, 1}}, "b": {A: {2}}, "a": {A: {3}}}


def test_a_static_member_keeps_its_range_under_a_new_member_id() -> None:
    before = [member("m1", A, instance_id="i1"), member("m2", A, instance_id="i2")]
    after = [member("x9", A, instance_id="i1"), member("m2", A, instance_id="i2")]
    first, second = ASSIGNORS["range"](before, {A: 5}), ASSIGNORS["range"](after, {A: 5})
    assert second == {"x9": first["m1"], "m2": first["m2"]}
