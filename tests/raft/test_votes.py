"""Majority arithmetic compared with a simple reference implementation, and the tally of an election round."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraft.raft.votes import Tally, majority_of, majority_offset


def naive_majority_offset(end_offsets: list[int]) -> int:
    """Return the largest offset that more than half have reached, by trying each offset."""
    best = min(end_offsets)
    for candidate in end_offsets:
        reached = sum(1 for end in end_offsets if end >= candidate)
        if reached * 2 > len(end_offsets):
            best = max(best, candidate)
    return best


@given(st.lists(st.integers(-1, 50), min_size=1, max_size=9))
def test_majority_offset_agrees_with_a_simple_count(end_offsets: list[int]) -> None:
    assert majority_offset(end_offsets) == naive_majority_offset(end_offsets)


@given(st.integers(1, 50))
def test_any_two_majorities_share_a_voter(voters: int) -> None:
    assert 2 * majority_of(voters) > voters
    assert 2 * (majority_of(voters) - 1) <= voters


@given(
    st.integers(1, 7),
    st.lists(st.tuples(st.integers(0, 8), st.sampled_from(["grant", "reject", "unreachable"])), max_size=30),
)
def test_election_tally_agrees_with_a_simple_count(voters: int, answers: list[tuple[int, str]]) -> None:
    ids = tuple(range(voters))
    tally = Tally(ids)
    said: dict[int, str] = {}
    for voter, answer in answers:
        if answer == "unreachable":
            tally.record_unreachable(voter)
        else:
            tally.record(voter, granted=answer == "grant")
        if voter in ids and said.get(voter, "unreachable") == "unreachable":
            said[voter] = answer
    granted = [voter for voter in ids if said.get(voter) == "grant"]
    out = [voter for voter in ids if said.get(voter) in ("reject", "unreachable")]
    assert tally.granting == tuple(granted)
    assert tally.unrecorded == tuple(v for v in ids if said.get(v, "unreachable") == "unreachable")
    assert tally.is_won == (len(granted) * 2 > voters)
    assert tally.is_lost == ((voters - len(out)) * 2 <= voters)
    assert not (tally.is_won and tally.is_lost)
