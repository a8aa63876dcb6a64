"""Find the offset at which a share group begins to read a partition, from share.auto.offset.reset.

Source: KIP-932, Kafka's ShareFetchUtils.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kraft.broker.partition.log_waits import wait_settled
from kraft.node.stepping import run_steps
from kraft.seam import StorageCorrupt
from kraft.storage.handles import SegmentGone
from kraft.storage.unreadable import UnreadableBatch

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.seam import Disk

EARLIEST = "earliest"
BY_DURATION = "by_duration"
MS_PER_SECOND = 1_000
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)


def duration_ms(text: str) -> int | None:
    """Return the length of an ISO 8601 duration such as P1DT2H, or None if the text is none."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes = (int(found[name] or 0) for name in ("days", "hours", "minutes"))
    seconds = float(found["seconds"] or 0)
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * MS_PER_SECOND)


async def reset_offset(partition: Partition, policy: str, disk: Disk, wall_ms: int) -> int | None:
    """Return the offset at which to begin, or None if the log of this broker cannot be read. Raises DiskError."""
    if not partition.is_unwritten:
        await wait_settled(partition)
    log = partition.log
    if partition.leader is None or log is None:
        return 0 if partition.is_unwritten else None
    kind, _, rest = policy.partition(":")
    if kind == EARLIEST:
        return log.log_start_offset
    length_ms = duration_ms(rest) if kind == BY_DURATION else None
    if length_ms is None:
        return partition.high_watermark
    try:
        found = await run_steps(disk, log.offset_for_timestamp(wall_ms - length_ms))
    except (SegmentGone, StorageCorrupt, UnreadableBatch):
        return None
    return partition.high_watermark if found is None else min(found.offset, partition.high_watermark)
