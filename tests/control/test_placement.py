"""Placement: racks first, then hosts, then load; fair, and never two replicas on one broker."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.control.topics import placement
from kraft.control.topics.draw import Draw
from kraft.control.topics.placement import PlacementCandidate, PlacementFailed, place
from kraft.image.partitions import TopicCounts


def broker(
    number: int, rack: str = "", host: str | None = None, *, fenced: bool = False, load: int = 0
) -> PlacementCandidate:
    return PlacementCandidate(number, rack, host or f"host {number}", fenced, load)


def test_placement_spreads_leaders_and_replicas_evenly() -> None:
    placed = place([broker(one) for one in range(6)], 60, 3, Draw(1))
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    assert set(Counter(one for replicas in placed for one in replicas).values()) == {30}


def test_placement_varies_the_followers_of_one_leader() -> None:
    placed = place([broker(one) for one in range(6)], 60, 3, Draw(1))
    assert len({replicas[1:] for replicas in placed if replicas[0] == 0}) > 3


def test_placement_uses_different_racks_while_there_are_enough() -> None:
    racks = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    for replicas in place([broker(one, rack) for one, rack in racks.items()], 30, 3, Draw(2)):
        assert len({racks[one] for one in replicas}) == 3


def test_placement_with_more_replicas_than_racks_fills_racks_evenly() -> None:
    racks = {one: "ab"[one % 2] for one in range(6)}
    for replicas in place([broker(one, rack) for one, rack in racks.items()], 30, 4, Draw(2)):
        assert Counter(racks[one] for one in replicas) == {"a": 2, "b": 2}


def test_placement_uses_different_hosts_within_a_rack() -> None:
    hosts = {0: "x", 1: "x", 2: "x", 3: "y", 4: "y", 5: "z"}
    for replicas in place([broker(one, "", host) for one, host in hosts.items()], 30, 3, Draw(3)):
        assert len({hosts[one] for one in replicas}) == 3


def test_placement_puts_no_leader_on_a_fenced_broker_and_uses_it_last() -> None:
    brokers = [broker(0, fenced=True), broker(1), broker(2), broker(3)]
    for replicas in place(brokers, 20, 3, Draw(4)):
        assert 0 not in replicas
    for replicas in place(brokers, 20, 4, Draw(4)):
        assert replicas[0] != 0


def test_placement_prefers_the_least_loaded_of_equal_brokers() -> None:
    brokers = [broker(0, load=100), broker(1, load=0), broker(2, load=50)]
    assert place(brokers, 1, 2, Draw(5)) == [(1, 2)]


def test_placement_of_new_partitions_balances_the_existing_ones() -> None:
    placed = place([broker(one) for one in range(3)], 2, 1, Draw(6), held=TopicCounts({0: 1}, {0: 1}, 0))
    assert sorted(replicas[0] for replicas in placed) == [1, 2]


def test_placement_of_replicas_depends_only_on_its_seed() -> None:
    brokers = [broker(one) for one in range(6)]
    assert place(brokers, 12, 3, Draw(7)) == place(list(reversed(brokers)), 12, 3, Draw(7))
    assert place(brokers, 12, 3, Draw(7)) != place(brokers, 12, 3, Draw(8))


UNREACHABLE = "The target replication factor of"


@pytest.mark.parametrize(
    ("count", "fenced", "factor", "why"),
    [
        (0, False, 1, f"{UNREACHABLE} 1 cannot be reached because only 0 broker(s) are registered."),
        (1, False, 3, f"{UNREACHABLE} 3 cannot be reached because only 1 broker(s) are registered."),
        (2, False, 3, f"{UNREACHABLE} 3 cannot be reached because only 2 broker(s) are registered."),
        (1, True, 1, "All brokers are currently fenced. 1 broker(s) are registered."),
        (2, True, 3, "All brokers are currently fenced. 2 broker(s) are registered."),
    ],
)
def test_placement_with_too_few_brokers_fails_with_their_number(
    count: int, fenced: bool, factor: int, why: str
) -> None:
    with pytest.raises(PlacementFailed) as refused:
        place([broker(one, fenced=fenced) for one in range(count)], 1, factor, Draw(1))
    assert str(refused.value) == why


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=9),
    fenced=st.sets(st.integers(0, 8)),
    partitions=st.integers(1, 40),
    seed=st.integers(0, 1 << 30),
    data=st.data(),
)
def test_random_placements_are_legal_and_fair(
    racks: list[str], fenced: set[int], partitions: int, seed: int, data: st.DataObject
) -> None:
    brokers = [broker(number, rack, fenced=number in fenced) for number, rack in enumerate(racks)]
    unfenced = [one for one in brokers if not one.fenced]
    if not unfenced:
        return
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place(brokers, partitions, factor, Draw(seed))
    leaders = Counter({one.broker_id: 0 for one in unfenced})
    leaders.update(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.values()) <= 1
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] not in fenced
        assert len({racks[one] for one in replicas}) == min(factor, len(set(racks)))


@given(
    st.integers(1, 7),
    st.integers(1, 7),
    st.sets(st.integers(0, 6)),
    st.lists(st.integers(0, 9), min_size=7),
    st.integers(0, 99),
)
def test_placement_fast_path_for_equivalent_brokers_agrees_with_the_general_path(
    count: int, factor: int, fenced: set[int], loads: list[int], seed: int
) -> None:
    brokers = [broker(one, fenced=one in fenced, load=loads[one]) for one in range(count)]
    if factor > count or all(one.fenced for one in brokers):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "_least_loaded", placement._spread)
        expected = place(brokers, 40, factor, Draw(seed))
    assert place(brokers, 40, factor, Draw(seed)) == expected
