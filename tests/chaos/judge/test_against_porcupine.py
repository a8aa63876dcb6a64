"""Tests that our linearizability checker agrees with porcupine, an independent checker. They compare verdicts on random
histories of topics, valid and invalid, and on histories from chaos runs. The model of a topic is written twice as well.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from kraft.sim.chaos.judge.operations import of, paired
from kraft.sim.chaos.judge.topics import TOPIC_FUNCTIONS, calls_as_lines, calls_of
from kraft.sim.check.histories.linearizability import INVALID, VALID, Call, judge, parted
from kraft.sim.check.histories.metadata_models import ControllerAnswer, Create, Delete, TopicModel
from kraft.wire.error_codes import ErrorCode
from tests.chaos.judge.test_schedules import Log
from tests.interop.programs import install_tools

pytestmark = pytest.mark.interop

PROGRAM = Path(__file__).parent.parent / "porcupine" / "target" / "porcupine"
WORDS = {"ok": VALID, "illegal": INVALID}
HISTORIES = 600
EACH_MIN = 100
"""Minimum number of histories with each verdict. With fewer, the agreement would prove little."""


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    install_tools()


def porcupine(histories: Sequence[Sequence[Call]]) -> list[str]:
    lines = "".join(f"{calls_as_lines(history)}\n" for history in histories)
    said = subprocess.run([PROGRAM], input=lines, capture_output=True, text=True, check=True, timeout=100)
    return [WORDS[word] for word in said.stdout.split()]


def ours(history: Sequence[Call]) -> str:
    made = [call.answer.topic_id for call in history if isinstance(call.asked, Create) and _is_success(call)]
    return judge(history, TopicModel(frozenset(id for id in made if id is not None))).verdict


def _is_success(call: Call) -> bool:
    return call.answer is not None and call.answer.code is ErrorCode.NONE


def drawn(source: random.Random) -> list[Call]:
    """Draw a linearizable history of one topic name. Each call takes effect between its call and its return; a call
    without a return takes effect at any later time or never."""
    planned = []
    for number in range(source.randrange(2, 14)):
        called = source.randrange(0, 400)
        returned = None if source.random() < 0.2 else called + source.randrange(0, 120)
        last = 600 if returned is None else returned
        asked = Create(1) if source.random() < 0.55 else Delete()
        planned.append((source.uniform(called, last), f"p{number}", called, returned, asked, source.random() < 0.8))
    topic_id: UUID | None = None
    is_there, calls = False, []
    for number, (_, process, called, returned, asked, is_told) in enumerate(sorted(planned, key=lambda one: one[0])):
        is_create = isinstance(asked, Create)
        is_done = is_create != is_there
        if returned is None:
            is_done = is_done and source.random() < 0.5
            answer = None
        elif not is_done:
            answer = ControllerAnswer(
                ErrorCode.TOPIC_ALREADY_EXISTS if is_create else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        else:
            made = UUID(int=number + 1) if is_told else None
            answer = ControllerAnswer(topic_id=made if is_create else topic_id if is_told else None)
        if is_done:
            is_there = is_create
            topic_id = answer.topic_id if is_create and answer is not None else None
        is_forgotten = returned is not None and source.random() < 0.1
        calls.append(Call(process, called, returned, asked, None if is_forgotten else answer))
    return calls


def spoiled(source: random.Random, calls: list[Call]) -> list[Call]:
    """Return the history with one call changed: it gets another response, another operation, or another time."""
    number = source.randrange(len(calls))
    call = calls[number]
    kind = source.randrange(4)
    if kind == 0 and call.returned_ns is not None:
        call = replace(call, answer=ControllerAnswer(topic_id=UUID(int=source.randrange(1, 15))))
    elif kind == 1:
        call = replace(call, asked=Delete() if isinstance(call.asked, Create) else Create(1))
    elif kind == 2 and call.returned_ns is not None:
        later = source.randrange(50, 400)
        call = replace(call, called_ns=call.called_ns + later, returned_ns=call.returned_ns + later)
    else:
        return [*calls[:number], *calls[number + 1 :]]
    return [*calls[:number], call, *calls[number + 1 :]]


def test_linearizability_checker_agrees_with_porcupine_on_random_topic_histories() -> None:
    source = random.Random(26)
    sound = [drawn(source) for _ in range(HISTORIES)]
    histories = [*sound, *(spoiled(source, history) for history in sound)]
    found = [ours(history) for history in histories]
    assert found == porcupine(histories)
    assert {*found[:HISTORIES]} == {VALID}
    assert min(Counter(found)[VALID], Counter(found)[INVALID]) >= EACH_MIN


def test_linearizability_checker_agrees_with_porcupine_on_chaos_histories() -> None:
    source = random.Random(27)
    histories: list[list[Call]] = []
    for seed in range(40):
        changes = of(paired(Log(seed).run(1_500)), *TOPIC_FUNCTIONS)
        by_topic = parted((change.values["topic"], call) for change in changes for call in calls_of(change))
        histories += [list(calls) for calls in by_topic.values()]
    count = len(histories)
    histories += [spoiled(source, history) for history in histories]
    found = [ours(history) for history in histories]
    assert found == porcupine(histories)
    assert {*found[:count]} == {VALID}
    assert INVALID in found[count:]
