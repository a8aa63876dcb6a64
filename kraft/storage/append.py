"""The result of an append: the batch's offsets, or the reason of a refusal.

Source: docs/produce-checks.md#the-producer, Kafka's LogAppendInfo.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kraft.wire.error_codes import ErrorCode


class AppendOrigin(Enum):
    """The writer of a batch that a leader appends; it determines the checks."""

    CLIENT = "client"
    """A producer: its batches pass epoch, sequence and duplicate checks."""
    COORDINATOR = "coordinator"
    """A transaction or group coordinator on this node. Only the producer epoch of its batches is checked, and it may
    write markers."""
    RAFT = "raft"
    """The metadata quorum, whose log has no producer state."""


class AppendInfo(NamedTuple):
    """A batch's place in the log. `log_append_time_ms` is -1 unless the log stamps batches. `duplicate`: nothing was
    written, because the same batch is already in the log."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


class AppendRefused(Exception):
    """The producer state does not permit a leader's append; nothing was written."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code
