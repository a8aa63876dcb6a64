"""Synchronous: report records that should be read but no longer exist: as an error or, with failOnDataLoss=false, as a
warning in the log.

Offsets without a record because of compaction or transaction markers do not count as lost.
"""

from __future__ import annotations

import logging

_LOG = logging.getLogger("kraft.spark")


class DataLost(Exception):
    """Records that should be read no longer exist. The message names topic, partition, and the wanted and available
    offsets."""


def report_loss(*, fail: bool, topic: str, partition: int, wanted: str, available: str, count: int, why: str) -> None:
    """Raise DataLost if `fail`, otherwise log a warning. `count`: number of offsets that cannot be read, which is an
    upper bound of the number of lost records; -1: unknown."""
    lost = "" if count < 0 else f", {count} offsets"
    text = f"topic {topic}, partition {partition}: {why} (wanted: {wanted}; available: {available}{lost})"
    if not fail:
        _LOG.warning("%s; reading continues at the nearest offset, because failOnDataLoss=false", text)
        return
    raise DataLost(
        f"{text}. Set failOnDataLoss=false to continue at the nearest offset, or start a new query (without its "
        "checkpoint) at startingOffsets=earliest; longer retention.ms prevents it"
    )
