"""LinearRegex accepts what Python's engine accepts, and takes no longer than the text is long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.broker.serving.linear_regex import InvalidPattern, LinearRegex

ATOMS = st.sampled_from(["a", "b", "ab", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\W", r"\.", "^", "$", ""])


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repetition = st.sampled_from(["", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "{0}"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, repetition).map(lambda pair: f"({pair[0]}){pair[1]}"),
    )


PATTERNS = st.recursive(ATOMS, _compound, max_leaves=6)


@given(PATTERNS, st.text("abc1.", max_size=6))
def test_a_linear_regex_matches_the_texts_that_pythons_engine_matches(pattern: str, text: str) -> None:
    expected = re.fullmatch(pattern.replace("$", r"\Z"), text) is not None
    assert LinearRegex(pattern).matches(text) is expected


@pytest.mark.parametrize(
    "pattern", ["(", ")", "[a", "a**", "*", "a{2", "a{3,1}", r"(a)\1", "(?=a)", "(?i)a", "a\\", "[b-a]", "x" * 1_001]
)
def test_a_malformed_or_unsupported_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        LinearRegex(pattern)


def test_repetitions_of_repetitions_are_refused_before_they_fill_the_memory() -> None:
    with pytest.raises(InvalidPattern, match="too large"):
        LinearRegex("((a{100}){100}){100}")


def test_nested_repetitions_take_time_linear_in_the_text() -> None:
    """A backtracking engine needs 2**5000 steps for this."""
    began = time.process_time()
    assert not LinearRegex("(a*)*b").matches("a" * 5_000)
    assert time.process_time() - began < 5
