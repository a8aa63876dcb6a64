"""The copying program of a foreign client, killed at chosen places and started again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Self

from tests.interop.transactions.conversation import Conversation, ProgramEnded

COMMITS_BEFORE_CRASH = 2
"""Transactions that a program commits before a crash."""
FAILURES_MAX = 5
"""Maximum programs that end by themselves. A library may give up when a broker dies; a supervisor starts it again."""
COPY_SECONDS_MAX = 60
LOOK_S = 0.02


class Copier:
    """A running `copy` program, which is started again if it ends by itself. `failures` has the standard error of
    programs that did."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self.failures: list[str] = []
        self._command = command
        self._program = Conversation(command)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._program.kill()

    def crash_at(self, wanted: str) -> None:
        """Kill the program when it has committed some transactions and prints this line. Then start it again."""
        deadline = time.monotonic() + COPY_SECONDS_MAX
        commits, line = 0, ""
        while commits < COMMITS_BEFORE_CRASH or line != wanted:
            try:
                line = self._program.next_line(max(0.0, deadline - time.monotonic()))
            except ProgramEnded:
                self._start_again_after_failure()
                commits = 0
            else:
                commits += line == "committed"
        self._start_again()

    def wait_until(self, is_enough: Callable[[], bool]) -> None:
        """Keep the program running until a condition holds. Raise TimeoutError after a minute."""
        deadline = time.monotonic() + COPY_SECONDS_MAX
        while not is_enough():
            if time.monotonic() > deadline:
                raise TimeoutError(f"copied too little in {COPY_SECONDS_MAX} s: {self._program.errors}")
            if not self._program.is_running:
                self._start_again_after_failure()
            time.sleep(LOOK_S)

    def _start_again_after_failure(self) -> None:
        self.failures.append(self._program.errors)
        assert len(self.failures) <= FAILURES_MAX, self.failures
        self._start_again()

    def _start_again(self) -> None:
        self._program.kill()
        self._program = Conversation(self._command)
