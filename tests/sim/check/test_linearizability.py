"""The judge of histories: what is linearizable, what is not, and that it agrees with one that tries every order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from typing import Any
from uuid import UUID

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from kraft.sim.check.histories.linearizability import INVALID, UNKNOWN, VALID, Call, Model, judge, parted
from kraft.sim.check.histories.metadata_models import (
    Answer,
    Create,
    Delete,
    Grow,
    Read,
    Register,
    TopicModel,
    Write,
)
from kraft.wire.error_codes import ErrorCode

MODEL = Register(0)
ONE, OTHER, THIRD = UUID(int=1), UUID(int=2), UUID(int=3)
TOPICS = TopicModel(frozenset({ONE, OTHER}))
"""Of the third one nobody was told when it was made."""


def wrote(value: int, called_ns: int, returned_ns: int | None, process: str = "a") -> Call:
    return Call(process, called_ns, returned_ns, Write(value), None if returned_ns is None else True)


def read(value: int, called_ns: int, returned_ns: int, process: str = "b") -> Call:
    return Call(process, called_ns, returned_ns, Read(), value)


GOOD: dict[str, Sequence[Call]] = {
    "nothing": [],
    "a write, then its reading": [wrote(1, 0, 1), read(1, 2, 3)],
    "a reading beside a write may see it or not": [wrote(1, 0, 9), read(0, 1, 2), read(1, 3, 4)],
    "calls that touch overlap": [wrote(1, 0, 5), read(0, 5, 6)],
    "an open write takes effect late": [wrote(1, 0, None), read(0, 5, 6), read(1, 7, 8)],
    "an open write never takes effect": [wrote(1, 0, None), wrote(2, 1, 2), read(2, 5, 6), read(2, 7, 8)],
    "an open write comes between two others": [
        wrote(1, 0, None),
        wrote(2, 1, 2),
        read(2, 3, 4),
        read(1, 5, 6),
        wrote(3, 7, 8),
        read(3, 9, 10),
    ],
    "two writes in the order that readers tell": [wrote(1, 0, 9), wrote(2, 0, 9), read(2, 2, 3), read(1, 4, 5)],
}
BAD: dict[str, tuple[Sequence[Call], int]] = {
    "a lost write": ([wrote(1, 0, 1), read(0, 2, 3)], 1),
    "a value from nowhere": ([wrote(1, 0, 1), read(7, 2, 3)], 1),
    "a write that is taken back": ([wrote(1, 0, 9), read(1, 1, 2), read(0, 3, 4)], 2),
    "a write that comes twice": ([wrote(1, 0, 1), wrote(2, 2, 3), read(2, 4, 5), read(1, 6, 7)], 3),
    "an open write that comes twice": (
        [wrote(1, 0, None), wrote(2, 1, 2), read(1, 3, 4), wrote(3, 5, 6), read(1, 7, 8)],
        4,
    ),
    "a reading before the call": ([read(1, 0, 1), wrote(1, 2, None)], 0),
}
"""History, and the number of the call that cannot follow."""


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_one_order_explains_is_valid(name: str) -> None:
    judgement = judge(GOOD[name], MODEL)
    assert judgement.verdict == VALID
    assert judgement.stuck is None
    assert {call for call in GOOD[name] if not call.is_open} <= set(judgement.prefix)


@pytest.mark.parametrize("name", BAD)
def test_a_history_that_no_order_explains_is_invalid_and_the_call_that_cannot_follow_is_named(name: str) -> None:
    history, stuck = BAD[name]
    judgement = judge(history, MODEL)
    assert judgement.verdict == INVALID
    assert judgement.stuck == history[stuck]
    assert judgement.stuck not in judgement.prefix
    assert len(judgement.prefix) >= stuck - 1


def test_the_order_of_the_list_does_not_matter() -> None:
    for history in (*GOOD.values(), *(history for history, _ in BAD.values())):
        assert judge(reversed(history), MODEL).verdict == judge(history, MODEL).verdict


def test_the_longest_prefix_ends_in_the_states_that_it_leads_to() -> None:
    history = [wrote(1, 0, 1), wrote(2, 2, None), read(3, 4, 5)]
    judgement = judge(history, MODEL)
    assert judgement.prefix == tuple(history[:2])
    assert judgement.states == {1, 2}


def test_a_search_that_takes_too_long_is_unknown_and_says_so() -> None:
    history = [wrote(number, 0, 100) for number in range(12)] + [read(99, 200, 201)]
    judgement = judge(history, MODEL, steps_max=500)
    assert (judgement.verdict, judgement.steps) == (UNKNOWN, 500)


def test_a_hundred_calls_of_two_clients_with_some_open_ones_take_few_steps() -> None:
    history: list[Call] = []
    for at in range(0, 1_000, 10):
        history += [wrote(at, at, None if at % 200 == 190 else at + 7), read(at, at + 8, at + 9)]
        if at % 200 == 190:
            history[-1] = read(at - 10, at + 8, at + 9)
    judgement = judge(history, MODEL)
    assert judgement.verdict == VALID
    assert judgement.steps < 5_000


def test_many_open_calls_that_ask_the_same_take_no_more_steps_than_some() -> None:
    """A change that brokers hand on for seconds has such."""
    lost = [wrote(value, value, None) for value in (1, 2) for _ in range(40)]
    known = [read(value, 10 * at, 10 * at + 1) for at, value in enumerate((2, 1, 2, 1, 2, 1), start=1)]
    assert judge([*lost, *known], Register(0), steps_max=500).verdict == VALID
    assert judge([*lost, *known, read(3, 100, 101)], Register(0), steps_max=500).verdict == INVALID


def test_a_history_is_parted_by_key() -> None:
    calls = [(key, wrote(number, number, number + 1)) for number, key in enumerate("abab")]
    assert {key: [call.asked.value for call in part] for key, part in parted(calls).items()} == {
        "a": [0, 2],
        "b": [1, 3],
    }


# against one that tries every order


def is_linearizable(history: Sequence[Call], model: Model) -> bool:
    """By the definition, without a thought of speed."""
    answered = [call for call in history if not call.is_open]
    still_open = [call for call in history if call.is_open]
    return any(
        _is_in_time(order) and _is_explained(order, model)
        for count in range(len(still_open) + 1)
        for chosen in combinations(still_open, count)
        for order in permutations([*answered, *chosen])
    )


def _is_in_time(order: Sequence[Call]) -> bool:
    return not any(
        later.returned_ns is not None and later.returned_ns < call.called_ns
        for at, call in enumerate(order)
        for later in order[at + 1 :]
    )


def _is_explained(order: Sequence[Call], model: Model) -> bool:
    states = {model.initial}
    for call in order:
        states = {new for state in states for new in model.step(state, call.asked, call.answer)}
    return bool(states)


@st.composite
def histories(draw: st.DrawFn) -> list[Call]:
    return list(_drawn_calls(draw))


def _drawn_calls(draw: st.DrawFn) -> Iterator[Call]:
    """Few calls, few moments, two values: nearly as many good histories as bad ones."""
    for number in range(draw(st.integers(1, 5))):
        called_ns = draw(st.integers(0, 8))
        returned_ns = called_ns + draw(st.integers(1, 4))
        value = draw(st.integers(0, 2))
        kind = draw(st.sampled_from(("read", "read", "write", "open")))
        process = f"p{number}"
        if kind == "read":
            yield read(value, called_ns, returned_ns, process)
        else:
            yield wrote(value, called_ns, None if kind == "open" else returned_ns, process)


@given(histories())
@settings(max_examples=400)
def test_the_judge_agrees_with_one_that_tries_every_order(history: list[Call]) -> None:
    due = VALID if is_linearizable(history, MODEL) else INVALID
    judgement = judge(history, MODEL)
    assert judgement.verdict == due
    assert _is_in_time(judgement.prefix)
    assert _is_explained(judgement.prefix, MODEL)


ASKED: tuple[Any, ...] = (
    Create(1),
    Create(1, validate_only=True),
    Delete(),
    Delete(ONE),
    Delete(THIRD),
    Grow(2),
    Grow(2, validate_only=True),
)
ANSWERS: dict[type, tuple[Answer, ...]] = {
    Create: (Answer(topic_id=ONE), Answer(topic_id=OTHER), Answer(ErrorCode.TOPIC_ALREADY_EXISTS)),
    Delete: (Answer(topic_id=ONE), Answer(topic_id=THIRD), Answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
    Grow: (Answer(), Answer(ErrorCode.INVALID_PARTITIONS), Answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
}


@st.composite
def histories_of_topics(draw: st.DrawFn) -> list[Call]:
    """As above, of a topic's name. Open calls lead to more than one state: the name may stand for a topic whose maker
    was told nothing."""
    history: list[Call] = []
    for number in range(draw(st.integers(1, 5))):
        asked = draw(st.sampled_from(ASKED))
        called_ns = draw(st.integers(0, 8))
        if draw(st.integers(0, 2)):
            answer = draw(st.sampled_from(ANSWERS[type(asked)]))
            history.append(Call(f"p{number}", called_ns, called_ns + draw(st.integers(1, 4)), asked, answer))
        else:
            history.append(Call(f"p{number}", called_ns, None, asked))
    return history


@given(histories_of_topics())
@settings(max_examples=400)
def test_of_topics_too_the_judge_agrees_with_one_that_tries_every_order(history: list[Call]) -> None:
    due = VALID if is_linearizable(history, TOPICS) else INVALID
    judgement = judge(history, TOPICS)
    assert judgement.verdict == due
    assert _is_in_time(judgement.prefix)
    assert _is_explained(judgement.prefix, TOPICS)


@pytest.mark.slow
@pytest.mark.parametrize("verdict", [VALID, INVALID])
def test_such_histories_of_topics_are_drawn_of_both_kinds(verdict: str) -> None:
    """With several calls and states that are not one."""

    def is_telling(history: list[Call]) -> bool:
        judgement = judge(history, TOPICS)
        return judgement.verdict == verdict and len(judgement.prefix) > 1 and len(judgement.states) > 1

    find(histories_of_topics(), is_telling)
