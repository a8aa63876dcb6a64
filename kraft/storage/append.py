"""The result of an append: the offsets that it took, or why it was refused.

Source: docs/produce-checks.md#the-producer, Kafka's LogAppendInfo.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kraft.wire.error_codes import ErrorCode


class AppendOrigin(Enum):
    """Who made the batch that a leader appends, which decides what is checked."""

    CLIENT = "client"
    """A producer: epoch, sequence and duplicate checks."""
    COORDINATOR = "coordinator"
    """A transaction or group coordinator on this node: producer epoch only; may write markers."""
    RAFT = "raft"
    """The metadata quorum: no producer state at all."""


class AppendInfo(NamedTuple):
    """Where a batch is in the log. `log_append_time_ms` is -1 unless the log stamps it; `duplicate` means that nothing
    was written because the same batch is there already."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


class AppendRefused(Exception):
    """A leader's append was refused by producer state; nothing was written."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code
