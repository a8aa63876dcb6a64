"""The offset that a reset rule gives, decided without a cluster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.client.admin.reset import OffsetBounds, ResetRule, ResetTo, decide_offset

LOG = OffsetBounds(earliest=10, latest=50, at_time=30)


@pytest.mark.parametrize(
    ("rule", "committed", "expected"),
    [
        (ResetRule(ResetTo.EARLIEST), 20, 10),
        (ResetRule(ResetTo.LATEST), 20, 50),
        (ResetRule(ResetTo.CURRENT), 20, 20),
        (ResetRule(ResetTo.CURRENT), 5, 10),
        (ResetRule(ResetTo.CURRENT), None, 50),
        (ResetRule(ResetTo.TIME, 1_000), 20, 30),
        (ResetRule(ResetTo.SHIFT, 7), 20, 27),
        (ResetRule(ResetTo.SHIFT, -7), 20, 13),
        (ResetRule(ResetTo.SHIFT, -15), 20, 10),
        (ResetRule(ResetTo.SHIFT, 99), 20, 50),
        (ResetRule(ResetTo.SHIFT, -5), None, 45),
        (ResetRule(ResetTo.OFFSET, 33), 20, 33),
        (ResetRule(ResetTo.OFFSET, 3), 20, 10),
        (ResetRule(ResetTo.OFFSET, 333), 20, 50),
    ],
)
def test_each_kind_of_reset_rule_gives_the_expected_offset(
    rule: ResetRule, committed: int | None, expected: int
) -> None:
    assert decide_offset(rule, committed, LOG) == expected


def test_a_reset_to_a_time_after_the_last_record_gives_the_log_end() -> None:
    assert decide_offset(ResetRule(ResetTo.TIME, 1_000), 20, OffsetBounds(10, 50, None)) == 50


@given(
    st.sampled_from(ResetTo),
    st.integers(-(2**40), 2**40),
    st.none() | st.integers(0, 2**40),
    st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)).map(sorted),
)
def test_reset_offsets_are_limited_to_the_log(to: ResetTo, value: int, committed: int | None, ends: list[int]) -> None:
    first, last = ends
    assert first <= decide_offset(ResetRule(to, value), committed, OffsetBounds(first, last, first)) <= last
