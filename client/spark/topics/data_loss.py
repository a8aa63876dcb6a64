"""Synchronous: records that were to be read and are not there any more: an error, or with failOnDataLoss=false a
warning in the log.

An offset that a compacted topic or a transaction marker leaves out is no loss.
"""

from __future__ import annotations

import logging

_LOG = logging.getLogger("kraft.spark")


class DataLost(Exception):
    """Records are not there any more; the text names topic, partition, what was wanted and what is available."""


def report_loss(*, fail: bool, topic: str, partition: int, wanted: str, available: str, count: int, why: str) -> None:
    """DataLost if `fail`, else a warning. `count`: offsets that cannot be read, at most so many records; -1: not
    known."""
    lost = "" if count < 0 else f", {count} offsets"
    text = f"topic {topic}, partition {partition}: {why} (wanted: {wanted}; available: {available}{lost})"
    if not fail:
        _LOG.warning("%s; reading goes on at the nearest offset, because failOnDataLoss=false", text)
        return
    raise DataLost(
        f"{text}. Set failOnDataLoss=false to go on at the nearest offset, or start a new query (without its "
        "checkpoint) at startingOffsets=earliest; longer retention.ms prevents it"
    )
