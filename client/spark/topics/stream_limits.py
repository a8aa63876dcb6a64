"""Pure: limits of a micro-batch: how many of the available offsets it reads, and whether it waits for more.

Source: Spark's KafkaMicroBatchStream (rateLimit, delayBatch).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kraft.client.core.records import TopicPartition

UNKNOWN_RECORD_BYTES = 1024.0
"""Assumed size of a record in bytes before the first sample."""
_SEEN_SHARE = 0.5


def limit_ends(
    starts: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], offsets_max: int | None
) -> dict[TopicPartition, int]:
    """Return the offset of each partition in `latest` at which the micro-batch ends, so that it has at most
    `offsets_max` offsets.

    Each partition with lag advances by at least one offset, even if there are more than `offsets_max` such partitions.
    The remaining offsets are shared in proportion to each partition's lag. A partition whose latest offset is at or
    below its start ends at the latest offset."""
    lags = {tp: end - starts[tp] for tp, end in latest.items() if end > starts[tp]}
    total = sum(lags.values())
    if offsets_max is None or total <= offsets_max:
        return dict(latest)
    shares = _shares(lags, total, max(offsets_max, len(lags)))
    return {tp: starts[tp] + shares[tp] if tp in shares else end for tp, end in latest.items()}


def _shares(lags: Mapping[TopicPartition, int], total: int, offsets: int) -> dict[TopicPartition, int]:
    """Distribute `offsets`: one to each partition, the others in proportion to lag. Remainders go to the partitions
    with the largest fractions."""
    spare, rest = offsets - len(lags), total - len(lags)
    dealt = {tp: divmod(spare * (lag - 1), rest) if rest else (0, 0) for tp, lag in lags.items()}
    shares = {tp: 1 + whole for tp, (whole, _) in dealt.items()}
    left = offsets - sum(shares.values())
    for tp in sorted(dealt, key=lambda one: (-dealt[one][1], one))[:left]:
        shares[tp] += shares[tp] < lags[tp]
    return shares


def strictest_limit(*limits: int | None) -> int | None:
    """Return the smallest of several limits, ignoring None; None if all are None."""
    given = [limit for limit in limits if limit is not None]
    return min(given) if given else None


@dataclass(frozen=True, slots=True)
class RecordBytes:
    """The mean size of a record in bytes, estimated from the batches sampled most recently."""

    mean: float | None = None

    def seen(self, byte_count: int, record_count: int) -> RecordBytes:
        """Return the estimate after another sample. The new sample counts as much as all earlier ones together."""
        if record_count <= 0:
            return self
        now = byte_count / record_count
        return RecordBytes(now if self.mean is None else _SEEN_SHARE * now + (1 - _SEEN_SHARE) * self.mean)

    def offsets_within(self, bytes_max: int) -> int:
        """Return the number of offsets whose records have about this many bytes; at least one."""
        return max(1, int(bytes_max / max(self.mean or UNKNOWN_RECORD_BYTES, 1.0)))


@dataclass(frozen=True, slots=True)
class OffsetsMinimum:
    """Decides whether micro-batches wait until a minimum number of offsets is available. Times are in ms of one clock.
    `since_ms`: when the present wait began; None: no micro-batch waits."""

    offsets_min: int | None
    delay_max_ms: int
    since_ms: float | None = None

    def next(self, offsets: int, now_ms: float) -> tuple[OffsetsMinimum, bool]:
        """Return (next state, whether the micro-batch waits) for this number of available offsets."""
        begun = now_ms if self.since_ms is None else self.since_ms
        waits = self.offsets_min is not None and 0 < offsets < self.offsets_min and now_ms - begun < self.delay_max_ms
        return OffsetsMinimum(self.offsets_min, self.delay_max_ms, begun if waits else None), waits
