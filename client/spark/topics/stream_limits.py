"""Pure: how much of what is there a micro-batch takes, and whether it waits for more.

Source: Spark's KafkaMicroBatchStream (rateLimit, delayBatch).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kraft.client.core.records import TopicPartition

UNKNOWN_RECORD_BYTES = 1024.0
"""Taken for the size of a record until one was seen."""
_SEEN_SHARE = 0.5


def limit_ends(
    starts: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], offsets_max: int | None
) -> dict[TopicPartition, int]:
    """The end of each partition of `latest`, so that at most `offsets_max` offsets lie between starts and ends.

    Each partition that is behind moves by one offset at least, also if there are more of these than `offsets_max`; what
    remains is shared in proportion to what is left in each. A partition whose latest offset is not above its start ends
    there."""
    lags = {tp: end - starts[tp] for tp, end in latest.items() if end > starts[tp]}
    total = sum(lags.values())
    if offsets_max is None or total <= offsets_max:
        return dict(latest)
    shares = _shares(lags, total, max(offsets_max, len(lags)))
    return {tp: starts[tp] + shares[tp] if tp in shares else end for tp, end in latest.items()}


def _shares(lags: Mapping[TopicPartition, int], total: int, offsets: int) -> dict[TopicPartition, int]:
    """`offsets` dealt out: one for each, the others in proportion, and remainders to the largest fractions."""
    spare, rest = offsets - len(lags), total - len(lags)
    dealt = {tp: divmod(spare * (lag - 1), rest) if rest else (0, 0) for tp, lag in lags.items()}
    shares = {tp: 1 + whole for tp, (whole, _) in dealt.items()}
    left = offsets - sum(shares.values())
    for tp in sorted(dealt, key=lambda one: (-dealt[one][1], one))[:left]:
        shares[tp] += shares[tp] < lags[tp]
    return shares


def least_of(*limits: int | None) -> int | None:
    """The strictest of several limits; None: no limit."""
    given = [limit for limit in limits if limit is not None]
    return min(given) if given else None


@dataclass(frozen=True, slots=True)
class RecordBytes:
    """The mean size of a record in bytes, as of the last batches that were looked at."""

    mean: float | None = None

    def seen(self, byte_count: int, record_count: int) -> RecordBytes:
        """With batches of so many bytes and records, which count as much as all before them."""
        if record_count <= 0:
            return self
        now = byte_count / record_count
        return RecordBytes(now if self.mean is None else _SEEN_SHARE * now + (1 - _SEEN_SHARE) * self.mean)

    def offsets_within(self, bytes_max: int) -> int:
        """So many offsets have about as many bytes; at least one."""
        return max(1, int(bytes_max / max(self.mean or UNKNOWN_RECORD_BYTES, 1.0)))


@dataclass(frozen=True, slots=True)
class Hold:
    """Whether micro-batches wait for a least number of offsets. Times in ms of one clock. `since_ms`: when the batch
    began to wait; None: nothing waits."""

    offsets_min: int | None
    delay_max_ms: int
    since_ms: float | None = None

    def next(self, offsets: int, now_ms: float) -> tuple[Hold, bool]:
        """(state to go on with, whether the batch waits) while so many offsets are there."""
        begun = now_ms if self.since_ms is None else self.since_ms
        waits = self.offsets_min is not None and 0 < offsets < self.offsets_min and now_ms - begun < self.delay_max_ms
        return Hold(self.offsets_min, self.delay_max_ms, begun if waits else None), waits
