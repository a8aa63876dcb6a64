"""Tests that histories of a correct log, with steps of clients in random order, have no anomalies."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kraft.sim.chaos.history import FINAL_READER, Function, HistoryEvent, HistoryEventType, HistoryRecorder
from kraft.sim.chaos.judge import INVALID
from kraft.sim.chaos.judge.verdict import decide_verdict
from tests.chaos.judge.histories import info_of

TOPIC, GROUP = "chaos", "group"
PRODUCERS, READERS, MEMBERS, PARTITIONS = 3, 2, 2, 2


class Log:
    """A correct log: partitions, committed offsets of a group, and topics, all changed atomically. Each step of a
    client is one part of an operation: invocation, effect, or completion."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._ns = 0
        self.history = HistoryRecorder(self._now)
        self._logs: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self._committed = [0] * PARTITIONS
        self._owner: dict[int, str] = {}
        self._topics: dict[str, int] = {}
        self._ids = 0

    def _now(self) -> int:
        self._ns += self._random.randrange(1, 10**7)
        return self._ns

    def run(self, steps: int) -> list[HistoryEvent]:
        clients = [self._producer(f"producer-{number}", number % PARTITIONS) for number in range(PRODUCERS)]
        clients += [self._reader(f"reader-{number}") for number in range(READERS)]
        clients += [self._member(f"member-{number}") for number in range(MEMBERS)]
        clients += [self._churn(f"churn-{number}") for number in range(2)]
        for _ in range(steps):
            next(self._random.choice(clients))
        begun = self.history.invoke(FINAL_READER, Function.ASSIGN, places=[])
        self.history.complete(begun, HistoryEventType.OK)
        self._poll_all(FINAL_READER, [0] * PARTITIONS, 10**9)
        return self.history.events

    def _outcome(self) -> HistoryEventType:
        return self._random.choices([HistoryEventType.OK, HistoryEventType.FAIL, HistoryEventType.INFO], [8, 1, 1])[0]

    def _producer(self, name: str, partition: int) -> Any:
        process, retired, count = name, 0, 0
        while True:
            value, count = f"{process}/{count}", count + 1
            begun = self.history.invoke(process, Function.SEND, place=[TOPIC, partition], value=value)
            yield
            outcome = self._outcome()
            told: dict[str, Any] = {}
            if outcome is HistoryEventType.OK or (outcome is HistoryEventType.INFO and self._random.random() < 0.5):
                self._logs[partition].append(value)
                told = {"offset": len(self._logs[partition]) - 1} if outcome is HistoryEventType.OK else {}
                yield
            self.history.complete(
                begun, outcome, error="" if outcome is HistoryEventType.OK else "REQUEST_TIMED_OUT", **told
            )
            if outcome is HistoryEventType.INFO:
                retired += 1
                process = f"{name}.{retired}"
            yield

    def _reader(self, process: str) -> Any:
        begun = self.history.invoke(process, Function.ASSIGN, places=[[TOPIC, number] for number in range(PARTITIONS)])
        self.history.complete(begun, HistoryEventType.OK)
        at = [0] * PARTITIONS
        while True:
            yield from self._poll(process, at)

    def _poll(self, process: str, at: list[int], of: tuple[int, ...] = tuple(range(PARTITIONS))) -> Any:
        begun = self.history.invoke(process, Function.POLL)
        yield
        records = []
        for number in of:
            given = self._logs[number][at[number] : at[number] + self._random.randrange(4)]
            if given:
                records.append([TOPIC, number, [[at[number] + n, value] for n, value in enumerate(given)]])
                at[number] += len(given)
        self.history.complete(begun, HistoryEventType.OK, records=records)
        yield

    def _poll_all(self, process: str, at: list[int], count: int) -> None:
        begun = self.history.invoke(process, Function.POLL)
        records = [[TOPIC, n, [[k, value] for k, value in enumerate(log)]] for n, log in enumerate(self._logs) if log]
        self.history.complete(begun, HistoryEventType.OK, records=records)

    def _member(self, process: str) -> Any:
        """Yield the steps of a group member. It takes a partition, reads from the committed offset, and commits while
        it owns the partition."""
        while True:
            number = self._random.randrange(PARTITIONS)
            begun = self.history.invoke(process, Function.POLL)
            yield
            self._owner[number] = process
            at = [*self._committed]
            self.history.complete(begun, HistoryEventType.OK, records=[])
            begun = self.history.invoke(process, Function.ASSIGN, places=[[TOPIC, number]])
            self.history.complete(begun, HistoryEventType.OK)
            for _ in range(self._random.randrange(4)):
                yield from self._poll(process, at, (number,))
                offsets = [[TOPIC, number, at[number]]]
                begun = self.history.invoke(process, Function.COMMIT, group=GROUP, offsets=offsets)
                yield
                is_owner = self._owner.get(number) == process
                if is_owner:
                    self._committed[number] = at[number]
                    yield
                self.history.complete(begun, HistoryEventType.OK if is_owner else HistoryEventType.FAIL)
                if not is_owner:
                    break
                yield

    def _churn(self, process: str) -> Any:
        while True:
            topic = f"churn-{self._random.randrange(2)}"
            is_create = self._random.random() < 0.5
            f = Function.CREATE_TOPIC if is_create else Function.DELETE_TOPIC
            begun = self.history.invoke(process, f, topic=topic, partitions=1)
            yield
            is_done = (topic not in self._topics) == is_create and self._random.random() < 0.9
            told = {}
            if is_done and is_create:
                self._ids += 1
                self._topics[topic] = self._ids
                told = {"topic_id": f"{self._ids:032x}"}
            elif is_done:
                del self._topics[topic]
            yield
            is_told = self._random.random() < 0.9
            type = (HistoryEventType.OK if is_done else HistoryEventType.FAIL) if is_told else HistoryEventType.INFO
            self.history.complete(begun, type, **(told if type is HistoryEventType.OK else {}))
            if not is_told:
                process += ".1"
            yield


@given(st.integers(0, 2**32), st.integers(20, 400))
def test_a_history_of_a_correct_log_has_no_anomaly(seed: int, steps: int) -> None:
    events = Log(seed).run(steps)
    end_ms = events[-1].time_ms
    verdict = decide_verdict(info_of(healed_ms=end_ms, duration_ms=end_ms, end_ms=end_ms), events, [], [])
    assert [anomaly.text for anomaly in verdict.anomalies] == []
    assert verdict.verdict != INVALID


def test_random_schedules_exercise_every_checked_invariant() -> None:
    looked: set[str] = set()
    for seed in range(10):
        events = Log(seed).run(400)
        looked |= {name for name, count in decide_verdict(info_of(), events, [], []).checked.items() if count}
    assert looked >= {"D10", "L10", "C7", "C1", "C2", "D14", "T1", "G3", "R20"}
