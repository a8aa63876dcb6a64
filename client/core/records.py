"""Values that an application passes to a producer and receives from a consumer, and the errors of both clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kraft.wire.error_codes import ErrorCode

Headers = tuple[tuple[str, bytes | None], ...]
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """The offset and time of an acknowledged record. `offset` is -1 if it is unknown: with acks=0, and for a duplicate
    of a record that the broker wrote long ago."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ConsumerRecord(NamedTuple):
    """A record read from a partition. `leader_epoch` is the epoch of its batch."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's position in a partition: the next offset to read, the leader epoch of the batch before it, and the
    metadata text of the commit."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A consumer's membership in its group, with which a transactional producer commits the consumer's offsets
    (KIP-447). If `member_id` is empty, the group's coordinator accepts the offsets from any producer."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class KafkaError(Exception):
    """A broker rejected a request, and a retry does not help. `code` is Kafka's error."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message


class DeliveryFailed(KafkaError):
    """A record was not delivered. `certain` is True if the record is definitely not in the log, and False if it may be
    in the log."""

    def __init__(self, code: ErrorCode, message: str, *, certain: bool) -> None:
        super().__init__(code, message)
        self.certain = certain


class CommitFailed(KafkaError):
    """Offsets were not committed: this member is no longer in the group, and its partitions belong to other members
    now."""


class RebalanceInProgress(KafkaError):
    """Offsets were not committed because the group is rebalancing. Call `poll`, then commit what is still assigned."""


class LogTruncated(KafkaError):
    """Records that were read are no longer in the log (unclean election), and `auto.offset.reset` is none."""
