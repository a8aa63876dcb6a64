"""Functions that worker processes call with a seed. The module imports no test tools."""

from __future__ import annotations

import os
import signal


def finds_hypothesis(seed: int) -> tuple[int, bool]:
    """Return the module hypothesis as kio would find it, or None. Importing it takes seconds, and warns of trio's
    random numbers."""
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        return seed, False
    return seed, True


def process_of(seed: int) -> int:
    return os.getpid()


def dies_of(seed: int) -> int:
    """End the worker process for seed 3, and kill it for seed 5."""
    if seed == 3:
        os._exit(7)
    if seed == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return -seed


def raises(seed: int) -> int:
    raise KeyError(seed)


def blocks_interrupts(_: int) -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
