"""How long the loop's thread ran on a processor, and how long it waited for one because of other threads and processes.

Linux counts both per thread. On a busy machine, most of the difference between a step's duration and its work is
waiting.
Source: Linux scheduler statistics (/proc/<pid>/schedstat).
"""

from __future__ import annotations

import os

PATH = "/proc/thread-self/schedstat"
LINE_BYTES_MAX = 128


class ThreadSchedule:
    """Reads the kernel's scheduling times of one thread: the thread that calls `read` first, which opens the file."""

    def __init__(self) -> None:
        self._fd: int | None = None

    def read(self) -> tuple[int, int]:
        """Return the nanoseconds that the thread ran on a processor, and those that it waited for one. Both are 0 if
        the kernel does not count them."""
        try:
            if self._fd is None:
                self._fd = os.open(PATH, os.O_RDONLY | os.O_CLOEXEC)
            ran_ns, waited_ns, _ = os.pread(self._fd, LINE_BYTES_MAX, 0).split()
        except (OSError, ValueError):
            return 0, 0
        return int(ran_ns), int(waited_ns)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
