"""Rates over the last half minute, for the metrics that Kafka reports as rates and not as counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kraft.seam import Clock

SAMPLES = 31
"""Number of samples, one a second: the window of Kafka's rates is 30 s."""
NS_PER_SECOND = 1e9

Count = Callable[[], float]


class Rate:
    """The rate per second at which a count rises, over the last half minute."""

    __slots__ = ("_count", "_samples")

    def __init__(self, count: Count) -> None:
        self._count = count
        self._samples: deque[tuple[int, float]] = deque(maxlen=SAMPLES)

    def sample(self, now_ns: int) -> None:
        self._samples.append((now_ns, self._count()))

    def __call__(self) -> float:
        """Return the rate between the oldest and the newest sample; 0 if there are fewer than two samples."""
        if len(self._samples) < 2:
            return 0.0
        (since_ns, before), (until_ns, after) = self._samples[0], self._samples[-1]
        return (after - before) / max(until_ns - since_ns, 1) * NS_PER_SECOND


class Rates:
    """All rates of a node. `second_over` must be called once a second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rates: list[Rate] = []

    def of(self, count: Count) -> Rate:
        """Return the rate of `count`, a function that returns the current count."""
        rate = Rate(count)
        rate.sample(self._clock.monotonic_ns())
        self._rates.append(rate)
        return rate

    def second_over(self) -> None:
        now_ns = self._clock.monotonic_ns()
        for rate in list(self._rates):  # calling a count may add rates
            rate.sample(now_ns)
