"""Transactions of a foreign producer that is a separate program, and what they must leave in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Self

from tests.interop.transactions.commands import PARTITIONS_RANGE
from tests.interop.transactions.conversation import Conversation

ATTEMPTS_MAX = 5


def _nothing() -> None:
    """Do nothing before the end of a transaction."""


class TransactionalProducer:
    """The `transact` program of a client, and the values of its transactions by their outcome.

    `uncertain` has the values of commits whose outcome the library does not know. A new program takes over then. Values
    of other attempts that failed are in no list: nothing may make them visible."""

    def __init__(self, command: tuple[str, ...], bootstrap: str, topic: str, transactional_id: str) -> None:
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.uncertain: list[list[str]] = []
        self._command = (*command, "transact", bootstrap, topic, transactional_id)
        self._program = self._started()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._program.kill()

    def request(self, line: str) -> str:
        """Have the program carry out one line. Return the first word of its answer."""
        return self._program.request(line).split()[0]

    def run(self, verb: str, prefix: str, *, before_end: Callable[[], object] = _nothing) -> None:
        """Write a value to each partition in a transaction, and end it with `commit` or `abort`. Call `before_end` when
        the records of the first attempt are acknowledged. Repeat with other values until the library reports success.
        """
        for attempt in range(ATTEMPTS_MAX):
            values = [f"{prefix}-{attempt}-{partition}" for partition in PARTITIONS_RANGE]
            answer = self._attempt(verb, values, before_end if attempt == 0 else _nothing)
            if self._is_over(verb, values, answer):
                return
        raise AssertionError(f"{verb} of {prefix} did not succeed in {ATTEMPTS_MAX} attempts: {answer}")

    def _attempt(self, verb: str, values: list[str], before_end: Callable[[], object]) -> str:
        for line in ("begin", *(f"send {partition} {value}" for partition, value in enumerate(values))):
            answer = self._program.request(line)
            if answer != "done":
                return answer
        before_end()
        return self._program.request(verb)

    def _is_over(self, verb: str, values: list[str], answer: str) -> bool:
        """Keep account of an attempt. Return whether it has ended as it should."""
        kind = answer.split()[0]
        if kind == "done":
            (self.committed if verb == "commit" else self.aborted).extend(values)
            return True
        if kind == "abortable":
            aborted = self._program.request("abort")
            assert aborted == "done", f"{aborted} after {answer}"
        elif kind == "unknown":
            if verb == "commit":
                self.uncertain.append(values)
            self._program.kill()
            self._program = self._started()
        else:
            raise AssertionError(f"{verb}: {answer}, {self._program.errors}")
        return False

    def _started(self) -> Conversation:
        program = Conversation(self._command)
        answer = program.request("init")
        assert answer == "done", f"{answer}, {program.errors}"
        return program


def check_visible(producer: TransactionalProducer, seen: Counter[str]) -> None:
    """Check what a reader of committed values has seen: each committed value once, no aborted one, and all or none of
    the values of a transaction with an uncertain outcome."""
    for values in producer.uncertain:
        assert sum(seen[value] for value in values) in (0, len(values)), f"{values} are not atomic"
    expected = Counter(producer.committed)
    expected.update(value for values in producer.uncertain for value in values if seen[value])
    assert seen == expected, f"not seen: {expected - seen}; seen too often: {seen - expected}"
