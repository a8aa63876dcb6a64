"""Placement: racks first, then hosts, then load; fair, and never two replicas on one broker."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.control.topics import placement
from kraft.control.topics.draw import Draw
from kraft.control.topics.placement import Candidate, PlacementFailed, place
from kraft.image.partitions import Holdings


def broker(number: int, rack: str = "", host: str | None = None, *, fenced: bool = False, load: int = 0) -> Candidate:
    return Candidate(number, rack, host or f"host {number}", fenced, load)


def test_leaders_and_replicas_are_spread_evenly() -> None:
    placed = place([broker(one) for one in range(6)], 60, 3, Draw(1))
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    assert set(Counter(one for replicas in placed for one in replicas).values()) == {30}


def test_the_followers_of_one_leader_differ() -> None:
    placed = place([broker(one) for one in range(6)], 60, 3, Draw(1))
    assert len({replicas[1:] for replicas in placed if replicas[0] == 0}) > 3


def test_replicas_go_to_different_racks_while_there_are_racks() -> None:
    racks = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    for replicas in place([broker(one, rack) for one, rack in racks.items()], 30, 3, Draw(2)):
        assert len({racks[one] for one in replicas}) == 3


def test_with_more_replicas_than_racks_no_rack_has_two_more_than_another() -> None:
    racks = {one: "ab"[one % 2] for one in range(6)}
    for replicas in place([broker(one, rack) for one, rack in racks.items()], 30, 4, Draw(2)):
        assert Counter(racks[one] for one in replicas) == {"a": 2, "b": 2}


def test_within_a_rack_replicas_go_to_different_hosts() -> None:
    hosts = {0: "x", 1: "x", 2: "x", 3: "y", 4: "y", 5: "z"}
    for replicas in place([broker(one, "", host) for one, host in hosts.items()], 30, 3, Draw(3)):
        assert len({hosts[one] for one in replicas}) == 3


def test_a_fenced_broker_never_leads_and_is_taken_last() -> None:
    brokers = [broker(0, fenced=True), broker(1), broker(2), broker(3)]
    for replicas in place(brokers, 20, 3, Draw(4)):
        assert 0 not in replicas
    for replicas in place(brokers, 20, 4, Draw(4)):
        assert replicas[0] != 0


def test_among_equals_the_least_loaded_broker_is_taken() -> None:
    brokers = [broker(0, load=100), broker(1, load=0), broker(2, load=50)]
    assert place(brokers, 1, 2, Draw(5)) == [(1, 2)]


def test_new_partitions_even_out_what_the_topic_has() -> None:
    placed = place([broker(one) for one in range(3)], 2, 1, Draw(6), held=Holdings({0: 1}, {0: 1}, 0))
    assert sorted(replicas[0] for replicas in placed) == [1, 2]


def test_the_same_seed_gives_the_same_placement_and_another_seed_another() -> None:
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
def test_too_few_brokers_or_none_unfenced_is_refused_and_the_text_says_how_many_there_are(
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
def test_every_placement_is_legal_and_fair(
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
def test_where_all_brokers_are_alike_the_short_way_places_as_the_long_one(
    count: int, factor: int, fenced: set[int], loads: list[int], seed: int
) -> None:
    brokers = [broker(one, fenced=one in fenced, load=loads[one]) for one in range(count)]
    if factor > count or all(one.fenced for one in brokers):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "_least_loaded", placement._spread)
        expected = place(brokers, 40, factor, Draw(seed))
    assert place(brokers, 40, factor, Draw(seed)) == expected
