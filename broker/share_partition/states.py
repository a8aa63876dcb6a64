"""The delivery states of a record in a share group, and the values that describe changes of them.

Source: KIP-932, WriteShareGroupStateRequest, Kafka's RecordState and AcknowledgeType.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from kraft.wire.error_codes import ErrorCode


class RecordState(IntEnum):
    """The delivery state of a record. ACQUIRED is never persisted: a new leader finds such a record available."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_complete(self) -> bool:
        """Return whether the record will not be delivered again."""
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


class AcknowledgeType(IntEnum):
    """What a consumer reports about a record. GAP: the log has no record at the offset. RENEW extends the lock."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class StateBatch(NamedTuple):
    """The persisted state of the offsets from `first_offset` to `last_offset`, both inclusive."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


class AcquiredBatch(NamedTuple):
    """Records that a member has acquired, from `first_offset` to `last_offset`, both inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcknowledgementBatch(NamedTuple):
    """A member's report about the offsets from `first_offset` to `last_offset`, both inclusive. `types` has one type
    for all of them, or one for each."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]


class StateWrite(NamedTuple):
    """A change to persist. The changes of one partition are written in the order of `number`, one at a time, each as
    `SharePartition.sent_write` returns it.

    `delivery_complete_count` is the number of complete offsets at or after `start_offset` (KIP-1226)."""

    number: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class AcknowledgeResult(NamedTuple):
    """The result of an acknowledgement. With `write`, the member is answered when the change is persisted; otherwise at
    once."""

    error: ErrorCode
    write: StateWrite | None = None


class ShareLimits(NamedTuple):
    """The limits of a share group. `delivery_count_max` is share.delivery.count.limit, `record_locks_max` is
    share.partition.max.record.locks, and `lock_duration_ms` is share.record.lock.duration.ms."""

    delivery_count_max: int = 5
    record_locks_max: int = 2_000
    lock_duration_ms: int = 30_000
