"""Histogram for metrics: cheap to update, and reading costs a bounded time."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from types import MappingProxyType

SAMPLES_KEPT = 512
"""Number of samples kept; reading a histogram sorts at most this many."""
QUANTILES = MappingProxyType({"0.50": 0.50, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999})
"""Kafka's percentiles, with the names that dashboards use."""


class Histogram:
    """Count, sum, maximum, and the newest SAMPLES_KEPT values in a ring, for percentiles.

    A weight is the number of events that a value represents, where only some events are measured."""

    __slots__ = ("_next", "_percentiles", "_percentiles_count", "count", "largest", "samples", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.largest = 0.0
        self.samples: array[float] = array("d")
        self._next = 0
        self._percentiles: dict[str, float] = {}
        self._percentiles_count = -1

    def update(self, value: float, weight: int = 1) -> None:
        samples = self.samples
        if len(samples) < SAMPLES_KEPT:
            samples.append(value)
        else:
            samples[self._next] = value
            self._next = (self._next + 1) % SAMPLES_KEPT
        self.count += weight
        self.total += value * weight
        if value > self.largest:
            self.largest = value

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def percentile(self, share: float) -> float:
        """Return the value below which `share` (0 to 1) of the kept samples lie; 0 if there are none."""
        return _at(sorted(self.samples), share)

    def percentiles(self) -> dict[str, float]:
        """Return a map from share to percentile, for each of QUANTILES. Sorts again only if values were added since the
        last call."""
        if self._percentiles_count != self.count:
            self._percentiles_count = self.count
            ordered = sorted(self.samples)
            self._percentiles = {name: _at(ordered, share) for name, share in QUANTILES.items()}
        return self._percentiles


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
