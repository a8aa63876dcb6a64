"""The controller's replies to brokers: pure values, which the node turns into internal messages.

Each has an `error_code` of Kafka; NONE is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from kraft.wire.error_codes import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerReply:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    broker_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHeartbeatReply:
    error_code: ErrorCode = ErrorCode.NONE
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredPartitionReply:
    """Result of an AlterPartition command for one partition: an error, or the partition after the change."""

    topic_id: UUID
    partition_id: int
    error_code: ErrorCode = ErrorCode.NONE
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReply:
    error_code: ErrorCode = ErrorCode.NONE
    partitions: tuple[AlteredPartitionReply, ...] = ()


@dataclass(frozen=True, slots=True)
class AssignReplicasToDirsReply:
    error_code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProducerIdsReply:
    error_code: ErrorCode = ErrorCode.NONE
    first_producer_id: int = -1
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerReply:
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
