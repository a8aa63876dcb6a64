from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.broker.regular_expressions import InvalidExpression, compile_expression
from kraft.broker.regular_expressions.expression import STATES_SIZE_MAX
from kraft.broker.regular_expressions.parser import CHARACTERS_MAX, NESTING_MAX, parse
from kraft.broker.regular_expressions.program import translate

MATCHES = [
    # literals and escapes
    ("orders", "orders"),
    ("", ""),
    (r"a\.b\-c\_d", "a.b-c_d"),
    (r"\x41\x{42}\103\0", "ABC\0"),
    (r"\t\n\r\f\v\a", "\t\n\r\f\v\a"),
    (r"\Qa.*b\E.", "a.*bx"),
    (r"\Qa.*b", "a.*b"),
    (r"\Qab\E*", "abbb"),
    ("a{", "a{"),
    ("a{,2}", "a{,2}"),
    ("a{1,2", "a{1,2"),
    ("]}", "]}"),
    # classes
    (r"\d\D\w\W\s\S", "1a_- x"),
    (r"\pL\p{Lu}\PL\P{Lu}\p{^L}\p{Any}", "éÉ1é1x"),
    ("[a-c-x]+", "ab-xc"),
    ("[]a]+", "]a"),
    ("[^]a]+", "bc"),
    ("[a-]+", "a-"),
    (r"[\d\-\]x-z]+", "1-]y"),
    (r"[^\D5]", "4"),
    ("[[:alpha:][:digit:]_]+", "aZ9_"),
    ("[[:^alpha:]]", "1"),
    ("[[:word:]]+[[:punct:]][[:space:]][[:xdigit:]]", "a_1- F"),
    ("[[:upper:]][[:lower:]][[:alnum:]][[:blank:]][[:cntrl:]][[:graph:]][[:print:]][[:ascii:]]", "Aa1\t\x01! ~"),
    ("[[:a]+", "[:a"),
    # groups, alternatives and repetitions
    ("(a|b)(?:c)(?P<one>d)(?<two>e)", "bcde"),
    ("a|ab|abc", "abc"),
    ("(|a)b", "b"),
    ("a*?b+?c??d{2,3}?", "aabddd"),
    ("a{2}b{1,}c{0,2}x{0}", "aabbb"),
    ("(a|b*)*c", "abbac"),
    ("(|a)+", "aaa"),
    ("(a?){3}", "aa"),
    # flags
    ("(?i)OrDers[a-c]", "oRdERSB"),
    ("a(?i:b)c", "aBc"),
    ("(a(?i)b)c", "aBc"),
    ("(?i)a(?-i)b", "Ab"),
    ("(?i:[^k])", "x"),
    ("(?i)k\u017f", "\u212aS"),
    ("(?s).+", "a\nb"),
    ("(?s-s:.)", "a"),
    ("(?m)a$\n^b", "a\nb"),
    ("(?U)a*(?im-sU)b", "aaB"),
    ("(?)a(?:)", "a"),
    # anchors
    (r"^\Aa$\z", "a"),
    (r"\ba\b-\bb\b", "a-b"),
    (r"a\Bb", "ab"),
    (r"\B", ""),
    ("(^a|b)+", "ab"),
    ("^*a", "a"),
]
DIFFERS = [
    ("orders", "orders2"),
    ("orders", "my-orders"),
    (".", "\n"),
    ("(?i:a)b", "aB"),
    ("(a(?i)b)c", "abC"),
    ("(?i:[^k])", "\u212a"),
    (r"(?i)\P{Lu}", "a"),
    ("a$\nb", "a\nb"),
    ("a\n^b", "a\nb"),
    (r"a\bb", "ab"),
    (r"a\B-", "a-"),
    ("a{2,3}", "aaaa"),
    ("(^a)+", "aa"),
    (r"\d", "\u0663"),
    ("x{0}", "x"),
]
INVALID = [
    ("(ab", 'missing ")" of the group (position 0'),
    ("a(b|c", 'missing ")" of the group (position 1'),
    ("ab)", '")" without "(" (position 2'),
    ("*a", "repetition of nothing (position 0"),
    ("a|+", "repetition of nothing (position 2"),
    ("a**", "repetition of a repetition (put the inner one in a group) (position 2"),
    ("a*??", "repetition of a repetition"),
    ("x{1000}{1000}", "repetition of a repetition"),
    ("a{1001}", "repetition {1001} of more than 1000 times (position 1"),
    ("a{1,1001}", "repetition {1,1001} of more than 1000 times"),
    ("a{3,2}", "reversed repetition {3,2}"),
    ("[ab", 'missing "]" of the bracket (position 0'),
    ("[a-", 'missing "]" of the bracket'),
    ("[]", 'missing "]" of the bracket'),
    ("x[b-a]", "reversed range 'b-a' (position 2"),
    (r"[a-\d]", "unknown escape"),
    ("[[:nothing:]]", "unknown class [:nothing:] (position 1"),
    (r"(a)\1", "back-references are not supported (position 3"),
    (r"\8", "back-references"),
    (r"(?P<a>x)(?P=a)", "a back-reference is not supported (position 8"),
    ("(?=a)", "look-ahead is not supported"),
    ("(?!a)", "look-ahead is not supported"),
    ("(?<=a)", "look-behind is not supported"),
    ("(?<!a)", "look-behind is not supported"),
    ("(?>a)", "an atomic group is not supported"),
    ("(?#a)", "a comment is not supported"),
    ("(?x)", "invalid group"),
    ("(?-)", "invalid group"),
    ("(?P<>a)", "invalid group"),
    ("(?P<a>x)(?<a>y)", "second group with the name 'a' (position 8"),
    ("a\\", "trailing backslash (position 1"),
    (r"\q", "unknown escape"),
    (r"\é", "unknown escape"),
    (r"\p", "missing name of a Unicode property"),
    (r"\p{Lu", 'missing "}" of a Unicode property'),
    (r"\p{Nothing}", "unknown Unicode property 'Nothing'"),
    (r"\x4", "invalid hexadecimal escape"),
    (r"\x{110000}", "invalid hexadecimal escape"),
    (r"\x{", "invalid hexadecimal escape"),
    (r"\xzz", "invalid hexadecimal escape"),
    ("(x{1000}){1000}", "too large"),
    ("((((a{10}){10}){10}){10}){10}", "too large"),
    ("(" * (NESTING_MAX + 1) + ")" * (NESTING_MAX + 1), "nested groups"),
    ("a" * (CHARACTERS_MAX + 1), "longer than"),
]


@pytest.mark.parametrize(("text", "name"), MATCHES)
def test_an_expression_matches_a_name(text: str, name: str) -> None:
    assert compile_expression(text).matches(name)


@pytest.mark.parametrize(("text", "name"), DIFFERS)
def test_an_expression_does_not_match_a_name(text: str, name: str) -> None:
    assert not compile_expression(text).matches(name)


@pytest.mark.parametrize(("text", "reason"), INVALID)
def test_an_invalid_expression_is_refused_with_the_reason_and_the_place(text: str, reason: str) -> None:
    with pytest.raises(InvalidExpression) as found:
        compile_expression(text)
    assert reason in str(found.value)
    assert len(str(found.value)) < 500


# against Python's re, on the syntax that both have

NAMES = st.text("abAB01_-. ", max_size=8)
ATOMS = st.one_of(
    st.sampled_from("abAB01_-"),
    st.sampled_from(
        [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\.", r"\-", r"\x41", ".", r"\b", r"\B", "^", "$", r"\A"]
    ),
    st.builds(
        "[{}{}]".format,
        st.sampled_from(["", "^"]),
        st.lists(
            st.sampled_from(["a", "B", "_", "0-9", "A-Z", "a-b", r"\d", r"\W", r"\-"]), min_size=1, max_size=3
        ).map("".join),
    ),
)
REPETITIONS = st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{1,3}?"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    opening = st.sampled_from(["(", "(?:", "(?i:", "(?s:", "(?-i:"])
    group = st.builds("{}{})".format, opening, inner)
    return st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda rows: f"(?:{'|'.join(rows)})"),
        st.builds("{}{}".format, group, REPETITIONS),
        group,
    )


@given(st.recursive(ATOMS, _larger, max_leaves=8), st.lists(NAMES.filter(bool), min_size=1, max_size=8))
def test_an_expression_matches_what_it_matches_in_python(text: str, names: list[str]) -> None:
    expression, twin = compile_expression(text), re.compile(text, re.ASCII)
    for name in names:
        assert expression.matches(name) == (twin.fullmatch(name) is not None)


@given(st.text(r"ab01*+?|()[]{}^$.\,-:<>PiQEpdw&", max_size=20), NAMES)
def test_no_text_raises_anything_but_invalid_expression(text: str, name: str) -> None:
    try:
        expression = compile_expression(text)
    except InvalidExpression:
        return
    expression.matches(name)


# bounds, by counted steps

LENGTH = 240
PATHOLOGICAL = ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(a?){50}a{50}b", "(x+x+)+y", "((a*)*)*b", "(.*)(.*)(.*)(.*)[^ax]"]


@pytest.mark.parametrize("text", PATHOLOGICAL)
def test_a_pathological_expression_executes_each_instruction_at_most_once_per_character(text: str) -> None:
    size = len(translate(text, parse(text)).instructions)
    assert size < 20 * len(text)
    for name in ("a" * LENGTH, "x" * LENGTH):
        expression = compile_expression(text)
        assert not expression.matches(name)
        assert expression.steps <= (LENGTH + 1) * size


@given(st.recursive(ATOMS, _larger, max_leaves=6), NAMES)
def test_a_name_that_was_matched_before_takes_no_more_steps(text: str, name: str) -> None:
    expression = compile_expression(text)
    expression.matches(name)
    steps = expression.steps
    expression.matches(name)
    assert expression.steps == steps


def test_states_are_forgotten_when_there_are_too_many_and_matching_stays_right() -> None:
    """Each name leads to states of its own: which of the last 300 characters were an "a"."""
    expression = compile_expression("(?:a|b)*a(?:a|b){300}")
    sizes = []
    for number in range(12):
        bits = f"{number * 0x9E3779B97F4A7C15:064b}".replace("0", "a").replace("1", "b") * 6
        assert expression.matches(bits) == (bits[-301] == "a")
        sizes.append(expression.size)
    assert max(sizes) <= STATES_SIZE_MAX + 1_000
    assert any(later < earlier for earlier, later in pairwise(sizes))
