"""RunClock: the single time axis of a run."""

from __future__ import annotations

from collections.abc import Callable


class RunClock:
    """Clock of a run: counts from the clients' start. Until the clients start, it counts from the creation of this
    object. `read_ns` reads a monotonic clock."""

    def __init__(self, read_ns: Callable[[], int]) -> None:
        self._read_ns = read_ns
        self._zero_ns = read_ns()

    def begin(self) -> None:
        """Restart at zero: the clients start now."""
        self._zero_ns = self._read_ns()

    def now_ns(self) -> int:
        return self._read_ns() - self._zero_ns

    def now_ms(self) -> float:
        return self.now_ns() / 1e6
