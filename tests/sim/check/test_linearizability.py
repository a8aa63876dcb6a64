"""Tests that the linearizability checker accepts and rejects the right histories, and agrees with a checker that tries
every order of the calls.
"""

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
    ControllerAnswer,
    Create,
    Delete,
    Grow,
    ReadRegister,
    Register,
    TopicModel,
    WriteRegister,
)
from kraft.wire.error_codes import ErrorCode

MODEL = Register(0)
ONE, OTHER, THIRD = UUID(int=1), UUID(int=2), UUID(int=3)
TOPICS = TopicModel(frozenset({ONE, OTHER}))
"""Existing topics of the model; the creator of the third one did not get its id."""


def wrote(value: int, called_ns: int, returned_ns: int | None, process: str = "a") -> Call:
    return Call(process, called_ns, returned_ns, WriteRegister(value), None if returned_ns is None else True)


def read(value: int, called_ns: int, returned_ns: int, process: str = "b") -> Call:
    return Call(process, called_ns, returned_ns, ReadRegister(), value)


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
"""Histories that are not linearizable, each with the number of the call that has no place in the order."""


@pytest.mark.parametrize("name", GOOD)
def test_a_linearizable_history_is_valid(name: str) -> None:
    judgement = judge(GOOD[name], MODEL)
    assert judgement.verdict == VALID
    assert judgement.stuck is None
    assert {call for call in GOOD[name] if not call.is_open} <= set(judgement.prefix)


@pytest.mark.parametrize("name", BAD)
def test_checks_catch_a_nonlinearizable_history_and_name_the_call_that_has_no_place_in_the_order(name: str) -> None:
    history, stuck = BAD[name]
    judgement = judge(history, MODEL)
    assert judgement.verdict == INVALID
    assert judgement.stuck == history[stuck]
    assert judgement.stuck not in judgement.prefix
    assert len(judgement.prefix) >= stuck - 1


def test_linearizability_does_not_depend_on_the_order_of_the_list_of_calls() -> None:
    for history in (*GOOD.values(), *(history for history, _ in BAD.values())):
        assert judge(reversed(history), MODEL).verdict == judge(history, MODEL).verdict


def test_the_longest_linearizable_prefix_is_reported_with_its_final_states() -> None:
    history = [wrote(1, 0, 1), wrote(2, 2, None), read(3, 4, 5)]
    judgement = judge(history, MODEL)
    assert judgement.prefix == tuple(history[:2])
    assert judgement.states == {1, 2}


def test_a_linearizability_search_with_too_many_steps_has_the_verdict_unknown() -> None:
    history = [wrote(number, 0, 100) for number in range(12)] + [read(99, 200, 201)]
    judgement = judge(history, MODEL, steps_max=500)
    assert (judgement.verdict, judgement.steps) == (UNKNOWN, 500)


def test_checking_linearizability_of_a_hundred_calls_with_some_unanswered_takes_few_steps() -> None:
    history: list[Call] = []
    for at in range(0, 1_000, 10):
        history += [wrote(at, at, None if at % 200 == 190 else at + 7), read(at, at + 8, at + 9)]
        if at % 200 == 190:
            history[-1] = read(at - 10, at + 8, at + 9)
    judgement = judge(history, MODEL)
    assert judgement.verdict == VALID
    assert judgement.steps < 5_000


def test_checking_linearizability_of_many_equal_unanswered_calls_takes_no_more_steps_than_of_a_few() -> None:
    """A change that brokers forward for seconds has many equal unanswered calls."""
    lost = [wrote(value, value, None) for value in (1, 2) for _ in range(40)]
    known = [read(value, 10 * at, 10 * at + 1) for at, value in enumerate((2, 1, 2, 1, 2, 1), start=1)]
    assert judge([*lost, *known], Register(0), steps_max=500).verdict == VALID
    assert judge([*lost, *known, read(3, 100, 101)], Register(0), steps_max=500).verdict == INVALID


def test_a_history_is_split_into_one_history_per_key() -> None:
    calls = [(key, wrote(number, number, number + 1)) for number, key in enumerate("abab")]
    assert {key: [call.asked.value for call in part] for key, part in parted(calls).items()} == {
        "a": [0, 2],
        "b": [1, 3],
    }


# comparison with a checker that tries every order


def is_linearizable(history: Sequence[Call], model: Model) -> bool:
    """Return whether a history is linearizable, by the definition and without optimisation."""
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
    """Draw few calls, few times and two values, so that nearly as many histories are linearizable as not."""
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
def test_the_linearizability_checker_agrees_with_brute_force_for_registers(history: list[Call]) -> None:
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
ANSWERS: dict[type, tuple[ControllerAnswer, ...]] = {
    Create: (
        ControllerAnswer(topic_id=ONE),
        ControllerAnswer(topic_id=OTHER),
        ControllerAnswer(ErrorCode.TOPIC_ALREADY_EXISTS),
    ),
    Delete: (
        ControllerAnswer(topic_id=ONE),
        ControllerAnswer(topic_id=THIRD),
        ControllerAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ),
    Grow: (
        ControllerAnswer(),
        ControllerAnswer(ErrorCode.INVALID_PARTITIONS),
        ControllerAnswer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ),
}


@st.composite
def histories_of_topics(draw: st.DrawFn) -> list[Call]:
    """Draw histories of a topic's name. Open calls may lead to more than one state, because the topic's creator may not
    have got its id."""
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
def test_the_linearizability_checker_agrees_with_brute_force_for_topics(history: list[Call]) -> None:
    due = VALID if is_linearizable(history, TOPICS) else INVALID
    judgement = judge(history, TOPICS)
    assert judgement.verdict == due
    assert _is_in_time(judgement.prefix)
    assert _is_explained(judgement.prefix, TOPICS)


@pytest.mark.slow
@pytest.mark.parametrize("verdict", [VALID, INVALID])
def test_the_drawn_topic_histories_include_linearizable_and_nonlinearizable_ones(verdict: str) -> None:
    """The drawn histories have several calls, and states that are not unique."""

    def is_telling(history: list[Call]) -> bool:
        judgement = judge(history, TOPICS)
        return judgement.verdict == verdict and len(judgement.prefix) > 1 and len(judgement.states) > 1

    find(histories_of_topics(), is_telling)
