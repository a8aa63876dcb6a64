"""What readers see of a replica that was never written: an empty log, without a folder, a file, or an object of its
own.

Invariant: it reads as a log that was just made, so readers do not notice when the first append makes the log.
Source: docs/decisions/19-blank-replicas.md.
"""

from __future__ import annotations

from functools import lru_cache

from kraft.storage.epochs import EpochCache


class BlankLog:
    """An empty log that begins at 0. `leader_epoch` is the epoch in which it is led here; -1: it is not."""

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


BLANK_LOG = BlankLog()


@lru_cache(maxsize=256)
def blank_log(leader_epoch: int) -> BlankLog:
    """The same value for all that are led in this epoch."""
    return BlankLog(leader_epoch)
