"""What would break determinism raises inside a world: real time, real chance, threads, processes and sockets.

Only what code calls through a module's attribute is caught; a name imported earlier is not. The import contracts and
the determinism tests are the other two nets.
"""

from __future__ import annotations

import gc
import os
import random
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import trio

FORBIDDEN: tuple[tuple[object, str], ...] = (
    (time, "sleep"),
    (time, "monotonic"),
    (time, "monotonic_ns"),
    (os, "urandom"),
    (random, "random"),
    (random, "randint"),
    (random, "randrange"),
    (random, "choice"),
    (random, "shuffle"),
    (random, "getrandbits"),
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


class NotOfThisWorld(Exception):
    """Code that runs in a world reached for the real one; the text names the function."""


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotOfThisWorld(
            f"{name} was called inside a world, and is of the real one: "
            "use the seam, trio's tasks and time, or kraft's clients"
        )

    return refuse


@contextmanager
def tripwires() -> Iterator[None]:
    """Put the tripwires in place."""
    kept = [(owner, name, getattr(owner, name)) for owner, name in FORBIDDEN]
    try:
        for owner, name, _ in kept:
            setattr(owner, name, _refusal(f"{getattr(owner, '__name__', owner)}.{name}"))
        yield
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


@contextmanager
def deterministic_trio(seed: int) -> Iterator[None]:
    """Make trio's batch order a function of the seed. Both names are private: trio is pinned, and this checks them."""
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
    """No garbage collection at moments of its own choice: the schedule collects at fixed counts of events."""
    enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        gc.unfreeze()
