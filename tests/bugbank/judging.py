"""Run one schedule and report the checks that failed. A run that takes too long is stopped, which does not count as
catching the bug.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from structlog.testing import capture_logs

from kraft.seam import InvariantError, StorageCorrupt
from kraft.sim.cores.checks import Violation as RaftViolation
from kraft.sim.world import NotOfThisWorld
from kraft.sim.world.world import Deadlock
from tests.bugbank.mutation import Schedule, Violation

RUN_SECONDS_MAX = 60
STOPPED = "N1"
"""Check name for a node that is stopped by its own invariant."""
BANNED = "N5"
"""Check name for a call of a real-world function from within a simulated world."""
DEADLOCK = "L13"
STUCK = "L"
"""Check name for missing progress: an assertion in a schedule that has no check's name."""
TIMED_OUT = "time-out"
BROKEN = "broken"
"""Check name for any other error. Most likely, the twin no longer fits the code."""


class TookTooLong(BaseException):
    """The run takes too long. It is not an Exception, so that no node can catch it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Checks that failed in a run, in this order; empty if the run was clean."""

    checks: tuple[str, ...]
    evidence: str
    cpu_seconds: float

    @property
    def is_caught(self) -> bool:
        return bool(self.checks) and self.checks[0] not in (TIMED_OUT, BROKEN)


def judge(schedule: Schedule, seed: int) -> Outcome:
    """Run the schedule once, and return the outcome."""
    began = time.process_time()
    checks, evidence = _fired(schedule, seed)
    return Outcome(checks, evidence[:300], time.process_time() - began)


def _fired(schedule: Schedule, seed: int) -> tuple[tuple[str, ...], str]:
    try:
        with capture_logs(), _time_limit():
            found = schedule(seed)
    except TookTooLong:
        return (TIMED_OUT,), f"more than {RUN_SECONDS_MAX} s"
    except BaseExceptionGroup as group:
        return _name(_first(group))
    except Exception as error:  # noqa: BLE001 - whatever a planted bug breaks is what we want to hear of
        return _name(error)
    return tuple(dict.fromkeys(found or ())), ""


def _name(error: BaseException) -> tuple[tuple[str, ...], str]:
    if isinstance(error, Violation):
        return (error.check,), str(error)
    if isinstance(error, RaftViolation):
        return (error.name,), str(error)
    if isinstance(error, AssertionError):
        return (STUCK,), f"{type(error).__name__}: {error}"
    if isinstance(error, Deadlock):
        return (DEADLOCK,), f"{error}"
    if isinstance(error, NotOfThisWorld):
        return (BANNED,), f"{error}"
    if isinstance(error, InvariantError | StorageCorrupt):
        return (STOPPED,), f"{type(error).__name__}: {error}"
    if isinstance(error, TookTooLong):
        return (TIMED_OUT,), ""
    return (BROKEN,), repr(error)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def _time_limit() -> Iterator[None]:
    """Stop the run after a time. The limit is set only in the main thread, because only that thread receives
    signals."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TookTooLong

    before: Callable[[int, FrameType | None], Any] | int | None = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, RUN_SECONDS_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
