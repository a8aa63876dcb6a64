"""How long the loop's thread had a processor, and how long it was kept waiting for one by other threads and processes.

Linux counts both per thread. The difference between a step's length and its work is mostly the second, on a machine
with more to do than processors. Source: the kernel's documentation of scheduler statistics, /proc/<pid>/schedstat.
"""

from __future__ import annotations

import os

PATH = "/proc/thread-self/schedstat"
LINE_BYTES_MAX = 128


class ThreadSchedule:
    """Of the thread that reads it first. The file is opened then."""

    def __init__(self) -> None:
        self._fd: int | None = None

    def read(self) -> tuple[int, int]:
        """Nanoseconds on a processor and waiting for one. Both are 0 where the kernel does not count."""
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
