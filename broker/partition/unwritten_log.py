"""UnwrittenLog: the empty log that readers see for a replica that was never written. It has no folder and no file, and
replicas share one object.

Invariant: it reads like a log that was just created, so readers do not notice when the first append creates a log on
disk.
Source: docs/decisions/19-blank-replicas.md.
"""

from __future__ import annotations

from functools import lru_cache

from kraft.storage.epochs import EpochCache


class UnwrittenLog:
    """An empty log whose start offset is 0. `leader_epoch` is the epoch in which this broker leads the replica, or -1
    if another broker leads."""

    __slots__ = ("epochs",)

    log_start_offset = 0
    local_log_start_offset = 0
    log_end_offset = 0
    recovery_point = 0
    last_stable_offset = 0

    def __init__(self, leader_epoch: int = -1) -> None:
        self.epochs = EpochCache()
        if leader_epoch >= 0:
            self.epochs.assign(leader_epoch, 0)


UNWRITTEN_LOG = UnwrittenLog()


@lru_cache(maxsize=256)
def unwritten_log(leader_epoch: int) -> UnwrittenLog:
    """Return the shared empty log of all replicas led in this epoch."""
    return UnwrittenLog(leader_epoch)
