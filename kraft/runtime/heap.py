"""Heap: returns the memory of closed connections to the system.

The C library keeps freed memory below the top of its heap; after some thousand connections that is tens of megabytes.
`malloc_trim` returns whole free pages. It takes about 10 ms for 50 MB, so it runs in a thread, and only after
CHANGES_MIN connections were opened or closed. A C library without it keeps the memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

CHANGES_MIN = 1_000


class HeapTrim:
    """Decides when the heap is trimmed; its method `trim` trims it."""

    def __init__(self, trim: Callable[[], None] | None = None) -> None:
        self._trimmed_at = 0
        self.trim: Callable[[], None] = trim or _malloc_trim

    def is_due(self, changes: int) -> bool:
        """Return whether the heap should be trimmed now, once for each CHANGES_MIN changes. `changes`: connections
        opened and closed since the process began."""
        if changes - self._trimmed_at < CHANGES_MIN:
            return False
        self._trimmed_at = changes
        return True


def _malloc_trim() -> None:
    call = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if call is not None:
        call(ctypes.c_size_t(0))
