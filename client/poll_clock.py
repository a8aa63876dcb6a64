"""How long ago the application polled. A member that does not poll for `max.poll.interval.ms` leaves its group, so that
other members get its partitions.
"""

from __future__ import annotations

from kraft.seam import Clock


class PollClock:
    """The time since the application was last in `poll`."""

    def __init__(self, clock: Clock, interval_ms: int) -> None:
        self.is_iterated = False
        """Whether the application has taken a record by iteration, without `poll`, since the last check."""
        self._clock = clock
        self._interval_ms = interval_ms
        self._polled_ms: int | None = clock.monotonic_ms()

    @property
    def is_polled(self) -> bool:
        """Whether the application is in `poll` now. When it is set to False, `max.poll.interval.ms` starts to run."""
        return self._polled_ms is None

    @is_polled.setter
    def is_polled(self, value: bool) -> None:
        self._polled_ms = None if value else self._clock.monotonic_ms()

    @property
    def deadline_ms(self) -> float:
        """The time from which on the interval is exceeded; infinity while the application is in `poll`."""
        return float("inf") if self._polled_ms is None else self._polled_ms + self._interval_ms + 1

    def is_exceeded(self) -> bool:
        """Check whether the interval is exceeded. Records taken by iteration restart the interval at this check."""
        if self.is_iterated and not self.is_polled:
            self.is_polled = False  # restarts the interval now
        self.is_iterated = False
        return self._clock.monotonic_ms() >= self.deadline_ms
