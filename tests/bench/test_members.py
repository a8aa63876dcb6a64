"""When the benchmark of large consumer groups takes a group for stable."""

from __future__ import annotations

from tests.bench.members import PARTITIONS, TOPIC, is_stable


def _divided(count: int) -> list[frozenset[tuple[str, int]]]:
    """Return an even assignment of all partitions to this many members."""
    return [frozenset((TOPIC, index) for index in range(first, PARTITIONS, count)) for first in range(count)]


def test_a_group_that_divides_all_partitions_evenly_is_stable() -> None:
    assert is_stable(_divided(200))


def test_a_group_with_a_partition_that_nobody_owns_is_not_stable() -> None:
    first, *others = _divided(200)
    assert not is_stable([first - {(TOPIC, 0)}, *others])


def test_a_group_with_a_partition_that_two_members_own_is_not_stable() -> None:
    first, second, *others = _divided(200)
    assert not is_stable([first, second | {(TOPIC, 0)}, *others])


def test_a_group_with_a_member_without_partitions_is_not_stable() -> None:
    assert not is_stable([*_divided(200), frozenset()])
