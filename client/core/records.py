"""What applications give to a producer and get from a consumer, and how a failed delivery is told."""

from __future__ import annotations

from dataclasses import dataclass

from kraft.wire.error_codes import ErrorCode

Headers = tuple[tuple[str, bytes | None], ...]
TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """Where an acknowledged record stands. `offset` is -1 for acks=0, where nobody knows."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A record as it was read. `leader_epoch` is the epoch of the batch that holds it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int


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
