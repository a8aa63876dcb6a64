"""LinearRegex accepts the texts that Python's engine accepts, in time that is linear in the length of the text."""

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
def test_a_malformed_or_unsupported_linear_regex_raises_invalid_pattern(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        LinearRegex(pattern)


def test_a_linear_regex_with_too_large_nested_repetitions_raises_invalid_pattern() -> None:
    with pytest.raises(InvalidPattern, match="too large"):
        LinearRegex("((a{100}){100}){100}")


def test_a_linear_regex_with_nested_repetitions_matches_in_linear_time() -> None:
    """A backtracking engine needs 2**5000 steps for this pattern."""
    began = time.process_time()
    assert not LinearRegex("(a*)*b").matches("a" * 5_000)
    assert time.process_time() - began < 5
