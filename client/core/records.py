"""What applications give to a producer and get from a consumer, and how a failed delivery is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kraft.wire.error_codes import ErrorCode

Headers = tuple[tuple[str, bytes | None], ...]
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """Where an acknowledged record stands. `offset` is -1 where nobody knows: for acks=0, and for a duplicate that the
    broker has had for long."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ConsumerRecord(NamedTuple):
    """A record as it was read. `leader_epoch` is the epoch of the batch that holds it."""

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
    """A group's position in a partition: the next offset to read, the epoch of the batch before it, and a note."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class KafkaError(Exception):
    """A broker refused, for good. `code` is Kafka's error."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code


class DeliveryFailed(KafkaError):
    """A record was not delivered. `certain` is True when it definitely is not in the log; False when it may be."""

    def __init__(self, code: ErrorCode, message: str, *, certain: bool) -> None:
        super().__init__(code, message)
        self.certain = certain


class CommitFailed(KafkaError):
    """Offsets were not committed: the member is not in the group any more, and what it held belongs to others now."""


class RebalanceInProgress(KafkaError):
    """Offsets were not committed because the group is rebalancing; `poll`, then commit what is still assigned."""


class LogTruncated(KafkaError):
    """What was read is not in the log any more (an unclean election), and `auto.offset.reset` is none."""
