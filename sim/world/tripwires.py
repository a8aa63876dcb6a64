"""Tripwires: calls that would break determinism raise inside a world (real time and randomness, threads, processes,
sockets and files). The first such call ends the run, even if its exception is swallowed.

Only calls through a module's attribute are caught. A name imported earlier is not, nor `datetime.now`, which is a
method in C. For the code of this project a test of its syntax forbids both (tests/architecture/test_banned_calls.py).
The import contracts and the determinism tests are the other two safeguards.
"""

from __future__ import annotations

import builtins
import gc
import io
import os
import random
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import trio

from kraft.sim.simulated_stdlib import DRAWS

Name = tuple[Any, str]
"""Name of an attribute of a module or of a class."""

FORBIDDEN: tuple[Name, ...] = (
    (time, "sleep"),
    (time, "monotonic"),
    (time, "monotonic_ns"),
    (os, "urandom"),
    (uuid, "uuid1"),
    (uuid, "uuid4"),
    (subprocess, "Popen"),
    (socket, "getaddrinfo"),
    (socket.socket, "connect"),
    (socket.socket, "connect_ex"),
    (socket.socket, "bind"),
    (socket.socket, "sendto"),
    (threading.Thread, "start"),
    (trio.to_thread, "run_sync"),
)
"""Functions that no code may call in a simulated world."""
FORBIDDEN_BUT_TO_TOOLS: tuple[Name, ...] = (
    *((time, name) for name in ("time", "time_ns", "perf_counter", "perf_counter_ns")),
    *((random, name) for name in DRAWS),
    *((random.SystemRandom, name) for name in ("random", "getrandbits", "randbytes")),
    (os, "getrandom"),
)
"""Functions that no code but tools may call in a simulated world. An application in a simulated cluster gets a
replacement of each (`simulated_stdlib`)."""
FORBIDDEN_TO_KRAFT: tuple[Name, ...] = (
    *((time, name) for name in ("process_time", "process_time_ns", "thread_time", "thread_time_ns")),
    *((time, name) for name in ("clock_gettime", "clock_gettime_ns")),
    *((owner, "open") for owner in (builtins, io, os)),
)
"""Functions that the code of this project may not call in a simulated world. An application may use files as it likes.
"""
FORBIDDEN_WITHOUT_ARGUMENT: tuple[tuple[Name, int], ...] = (
    ((random.Random, "seed"), 1),
    *(((time, name), 0) for name in ("localtime", "gmtime", "ctime", "asctime")),
    ((time, "strftime"), 1),
)
"""Functions that the code of this project may not call without the argument at this place, because the system's value
would be used."""
TOOLS = frozenset(
    {
        *("logging", "structlog"),  # time at which a line was logged
        *("linecache", "tokenize", "traceback", "warnings", "importlib"),  # read sources
        *("trio", "pytest", "_pytest", "pytest_timeout", "hypothesis", "coverage"),  # measure how long things take
        "kraft.sim.simulated_stdlib",  # warms up `tempfile`
    }
)
"""Packages and modules that may make such calls, on behalf of any caller."""


class NotOfThisWorld(Exception):
    """Raised when code in a simulated world called a function of the real world; the text names the function."""


Tripped = Callable[[NotOfThisWorld], None]
Arguments = Sequence[object]


def _asker() -> str:
    """Return the module that caused a forbidden call: the nearest caller outside Python's library; "" for a tool."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        top = name.partition(".")[0]
        if top in TOOLS or name in TOOLS:
            return ""
        if top not in sys.stdlib_module_names and name != __name__:
            return name
        frame = frame.f_back
    return ""


def _is_no_tool(_: Arguments) -> bool:
    return bool(_asker())


def _is_kraft(_: Arguments) -> bool:
    return _asker().partition(".")[0] == "kraft"


def _is_kraft_without(place: int) -> Callable[[Arguments], bool]:
    return lambda arguments: (len(arguments) <= place or arguments[place] is None) and _is_kraft(arguments)


def _all_wires() -> Iterator[tuple[Name, Callable[[Arguments], bool]]]:
    """Yield all forbidden functions, each with a function that returns whether a call with given arguments is
    rejected."""
    for name in FORBIDDEN:
        yield name, lambda _: True
    for name in FORBIDDEN_BUT_TO_TOOLS:
        yield name, _is_no_tool
    for name in FORBIDDEN_TO_KRAFT:
        yield name, _is_kraft
    for name, place in FORBIDDEN_WITHOUT_ARGUMENT:
        yield name, _is_kraft_without(place)


def _wire(name: str, original: Any, is_refused: Callable[[Arguments], bool], tripped: Tripped) -> Callable[..., Any]:
    def wire(*arguments: Any, **named: Any) -> Any:
        if not is_refused((*arguments, *named.values())):
            return original(*arguments, **named)
        return _refuse(name, tripped)

    return wire


def _refuse(name: str, tripped: Tripped) -> NoReturn:
    problem = NotOfThisWorld(
        f"{name} was called inside a world, and is of the real one: "
        "use the seam, trio's tasks and time, or kraft's clients"
    )
    tripped(problem)
    raise problem


@contextmanager
def tripwires(tripped: Tripped) -> Iterator[None]:
    """Make forbidden functions raise within the block; `tripped` is called when one is called."""
    changed = [
        ((owner, name), _wire(f"{getattr(owner, '__name__', owner)}.{name}", getattr(owner, name), is_refused, tripped))
        for (owner, name), is_refused in _all_wires()
        if hasattr(owner, name)
    ]
    kept = [(owner, name, getattr(owner, name)) for (owner, name), _ in changed]
    try:
        for (owner, name), wired in changed:
            setattr(owner, name, wired)
        yield
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


@contextmanager
def deterministic_trio(seed: int) -> Iterator[None]:
    """Make the order of trio's batches a function of the seed. Both patched names are private to trio, so the trio
    version is pinned, and this function checks that the names exist."""
    run = trio._core._run
    if not isinstance(getattr(run, "_ALLOW_DETERMINISTIC_SCHEDULING", None), bool) or not hasattr(run, "_r"):
        raise RuntimeError(f"trio {trio.__version__} has no deterministic scheduling under its known names")
    allowed, state = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate()
    run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    run._r.seed(seed)
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING = allowed  # type: ignore[misc]
        run._r.setstate(state)


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Disable automatic garbage collection: the schedule collects at fixed counts of events."""
    enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        gc.unfreeze()
