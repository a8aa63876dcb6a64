"""Replica plans are even, spread over racks, and need few moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client.core.replica_plan import Assignment, plan_replicas

NO_RACKS: dict[int, str | None] = dict.fromkeys(range(1, 7))


def spread(plan: Assignment) -> Counter[int]:
    return Counter(broker for replicas in plan.values() for broker in replicas)


def moved(before: Assignment, after: Assignment) -> int:
    return sum(len(set(after[one]) - set(before[one])) for one in after)


def even(partitions: int, brokers: int, factor: int = 3) -> Assignment:
    return {("t", at): tuple((at + step) % brokers + 1 for step in range(factor)) for at in range(partitions)}


def test_an_even_replica_placement_is_not_changed() -> None:
    before = even(6, 3)
    assert plan_replicas(before, {1: None, 2: None, 3: None}) == before


def test_a_new_broker_gets_its_share_of_replicas_and_nothing_else_moves() -> None:
    before = even(8, 3)
    after = plan_replicas(before, {1: None, 2: None, 3: None, 4: None})
    assert sorted(spread(after).values()) == [6, 6, 6, 6]
    assert moved(before, after) == 6


def test_a_removed_broker_gives_up_all_its_replicas() -> None:
    before = even(8, 4)
    after = plan_replicas(before, {1: None, 2: None, 3: None})
    assert 4 not in spread(after)
    assert moved(before, after) == spread(before)[4]


def test_planned_replicas_are_spread_over_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    after = plan_replicas({("t", at): (1, 2) for at in range(4)}, racks)
    assert all({racks[broker] for broker in replicas} == {"a", "b"} for replicas in after.values())
    assert sorted(spread(after).values()) == [2, 2, 2, 2]


def test_a_plan_can_increase_and_decrease_the_replication_factor() -> None:
    before = even(6, 3, factor=2)
    assert all(len(replicas) == 3 for replicas in plan_replicas(before, NO_RACKS, 3).values())
    fewer = plan_replicas(before, NO_RACKS, 1)
    assert all(len(replicas) == 1 for replicas in fewer.values())


def test_surplus_replicas_in_a_shared_rack_are_removed_first() -> None:
    after = plan_replicas({("t", 0): (1, 2, 3)}, {1: "a", 2: "a", 3: "b"}, 2)
    assert after == {("t", 0): (1, 3)}


@pytest.mark.parametrize(("brokers", "factor"), [({}, None), ({1: None}, None), ({1: None, 2: None}, 3)])
def test_a_replica_plan_with_too_few_brokers_is_an_error(brokers: dict[int, str | None], factor: int | None) -> None:
    with pytest.raises(ValueError, match="t-0 needs"):
        plan_replicas({("t", 0): (1, 2)}, brokers, factor)


@given(
    current=st.dictionaries(
        st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 9)),
        st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True).map(tuple),
        min_size=1,
    ),
    brokers=st.sets(st.integers(1, 8), min_size=3),
)
def test_a_random_replica_plan_is_even_and_keeps_each_partitions_number_of_replicas(
    current: Assignment, brokers: set[int]
) -> None:
    after = plan_replicas(current, dict.fromkeys(brokers))
    assert after.keys() == current.keys()
    for partition, replicas in after.items():
        assert len(set(replicas)) == len(replicas) == len(current[partition])
        assert set(replicas) <= brokers
    load = spread(after)
    assert max(load[one] for one in brokers) - min(load[one] for one in brokers) <= 1
    assert moved(after, plan_replicas(after, dict.fromkeys(brokers))) == 0, "an even plan is not changed"
