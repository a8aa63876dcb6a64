"""Gives a simulated application the world's time and randomness when it uses Python's own modules.

Production code of this project uses only the seam. An application under test may call `time.time` or `uuid.uuid4`, and
behaves in the same way under the same seed nevertheless. Not covered: `datetime.now`, which is C, and names that were
imported before. Threads, processes and `time.sleep` stay forbidden: see the world's tripwires.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from kraft.seam import Clock

_NANOSECONDS = 1_000_000_000
_MILLISECOND_NS = 1_000_000

SEED_BITS = 128

_CHANCE = tuple(name for name in dir(random.Random) if name in random.__all__ and name != "seed")
"""Functions of the module `random`, which are methods of a hidden instance of its class."""
DRAWS = tuple(name for name in _CHANCE if name not in ("getstate", "setstate"))


@contextmanager
def simulated_stdlib(clock: Clock, seed: int) -> Iterator[None]:
    """Within the block, make Python's modules use this clock's time, and randomness that follows from the seed."""
    # `tempfile` creates its generator on first use. Within a world its first user may be a library that is imported
    # late. That would draw a number from the application's stream in the first run of a process, and in no other.
    tempfile.NamedTemporaryFile().close()
    changed = [*_time(clock), *_chance(random.Random(seed))]
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in changed]
    try:
        for owner, name, function in changed:
            setattr(owner, name, function)
        yield
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


Changed = Iterator[tuple[object, str, Callable[..., Any]]]


def _time(clock: Clock) -> Changed:
    for name in ("monotonic", "perf_counter"):
        yield time, name, lambda: clock.monotonic_ns() / _NANOSECONDS
        yield time, f"{name}_ns", clock.monotonic_ns
    yield time, "time", lambda: clock.wall_ms() / 1000
    yield time, "time_ns", lambda: clock.wall_ms() * _MILLISECOND_NS


def _chance(source: random.Random) -> Changed:
    for name in _CHANCE:
        yield random, name, getattr(source, name)
    seed = random.Random.seed

    def follow(self: random.Random, a: Any = None, version: int = 2) -> None:
        seed(self, source.getrandbits(SEED_BITS) if a is None else a, version)

    # An instance without a seed of its own calls the system below `os`.
    yield random.Random, "seed", follow
    yield random, "seed", partial(follow, source)
    yield os, "urandom", source.randbytes
    yield os, "getrandom", lambda size, flags=0: source.randbytes(size)
    yield uuid, "uuid4", lambda: uuid.UUID(int=source.getrandbits(128), version=4)
    # Functions that `secrets` uses; they are methods of a class, so the instance comes first.
    yield random.SystemRandom, "random", lambda self: source.random()
    yield random.SystemRandom, "getrandbits", lambda self, bits: source.getrandbits(bits)
    yield random.SystemRandom, "randbytes", lambda self, count: source.randbytes(count)
