"""The requests that a transactional producer sends to coordinators, and their responses, as values. The requests build
their Kafka messages.

Source: KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kraft.client.core.batch import NO_IDENTITY, ProducerIdentity
from kraft.client.core.records import CommittedOffset, GroupMetadata, TopicPartition
from kraft.client.core.topology import BrokerEndpoint
from kraft.seam import Address
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

GROUP_KEY_TYPE, TRANSACTION_KEY_TYPE = 0, 1
END_TXN_MAX_BEFORE_V2 = 4
TXN_OFFSET_COMMIT_MAX_BEFORE_V2 = 4
ADD_PARTITIONS_MAX = 3
"""The newest version of AddPartitionsToTxn that clients may use; later versions are for brokers only."""


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Request that finds the coordinator of a transactional id, or that of a group."""

    api: ClassVar[ApiKey] = ApiKey.FIND_COORDINATOR
    version_max: ClassVar[int | None] = None
    key: str
    is_group: bool = False

    def message(self, transactional_id: str, timeout_ms: int) -> Any:
        key_type = GROUP_KEY_TYPE if self.is_group else TRANSACTION_KEY_TYPE
        return messages.build(messages.request_class(self.api), key_type=key_type, coordinator_keys=(self.key,))


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """Request for a producer id and epoch. With an existing identity, it requests the next epoch (KIP-360)."""

    api: ClassVar[ApiKey] = ApiKey.INIT_PRODUCER_ID
    version_max: ClassVar[int | None] = None
    identity: ProducerIdentity = NO_IDENTITY

    def message(self, transactional_id: str, timeout_ms: int) -> Any:
        return messages.build(
            messages.request_class(self.api),
            transactional_id=transactional_id,
            transaction_timeout=messages.duration(timeout_ms),
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
        )


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Request that adds partitions to the transaction (transaction.version 0 and 1)."""

    api: ClassVar[ApiKey] = ApiKey.ADD_PARTITIONS_TO_TXN
    version_max: ClassVar[int | None] = ADD_PARTITIONS_MAX
    identity: ProducerIdentity
    partitions: tuple[TopicPartition, ...]

    def message(self, transactional_id: str, timeout_ms: int) -> Any:
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self.partitions):
            topics.setdefault(topic, []).append(partition)
        row = {
            "transactional_id": transactional_id,
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.producer_epoch,
            "topics": tuple({"name": name, "partitions": tuple(parts)} for name, parts in topics.items()),
        }
        return messages.build(messages.request_class(self.api), transactions=(row,))


@dataclass(frozen=True, slots=True)
class AddOffsets:
    """Request to add the __consumer_offsets partition of a group to the transaction (transaction.version 0 and 1)."""

    api: ClassVar[ApiKey] = ApiKey.ADD_OFFSETS_TO_TXN
    version_max: ClassVar[int | None] = None
    identity: ProducerIdentity
    group_id: str

    def message(self, transactional_id: str, timeout_ms: int) -> Any:
        return messages.build(
            messages.request_class(self.api),
            transactional_id=transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            group_id=self.group_id,
        )


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Request to the group's coordinator that commits offsets of the group as part of the transaction."""

    api: ClassVar[ApiKey] = ApiKey.TXN_OFFSET_COMMIT
    identity: ProducerIdentity
    group: GroupMetadata
    offsets: Mapping[TopicPartition, CommittedOffset]
    version_max: int | None = TXN_OFFSET_COMMIT_MAX_BEFORE_V2

    def message(self, transactional_id: str, timeout_ms: int) -> Any:
        topics: dict[str, list[dict[str, object]]] = {}
        for (topic, partition), entry in sorted(self.offsets.items()):
            topics.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": entry.offset,
                    "committed_leader_epoch": entry.leader_epoch,
                    "committed_metadata": entry.metadata,
                }
            )
        return messages.build(
            messages.request_class(self.api),
            transactional_id=transactional_id,
            group_id=self.group.group_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            generation_id=self.group.generation,
            member_id=self.group.member_id,
            group_instance_id=self.group.group_instance_id,
            topics=tuple({"name": name, "partitions": tuple(parts)} for name, parts in topics.items()),
        )


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """Request that commits or aborts the transaction."""

    api: ClassVar[ApiKey] = ApiKey.END_TXN
    identity: ProducerIdentity
    is_commit: bool
    version_max: int | None = END_TXN_MAX_BEFORE_V2

    def message(self, transactional_id: str, timeout_ms: int) -> Any:
        return messages.build(
            messages.request_class(self.api),
            transactional_id=transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            committed=self.is_commit,
        )


TransactionRequest = FindCoordinator | InitProducerId | AddPartitions | AddOffsets | CommitOffsets | EndTransaction


@dataclass(frozen=True, slots=True)
class CoordinatorAnswer:
    """The response to a TransactionRequest. If no response arrived, `code` is NETWORK_EXCEPTION. `partitions` has the
    error code of each partition; it is empty for a request without partitions."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""
    identity: ProducerIdentity | None = None
    coordinator: BrokerEndpoint | None = None
    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict)


def read_answer(request: TransactionRequest, answer: Any) -> CoordinatorAnswer:
    """Convert the response message for this request to a CoordinatorAnswer."""
    if isinstance(request, FindCoordinator):
        return _read_coordinator(answer)
    if isinstance(request, AddPartitions):
        topics = [topic for result in answer.results_by_transaction for topic in result.topic_results]
        return _with_partitions(
            int(answer.error_code),
            (
                (str(topic.name), int(p.partition_index), int(p.partition_error_code))
                for topic in topics
                for p in topic.results_by_partition
            ),
        )
    if isinstance(request, CommitOffsets):
        return _with_partitions(
            0,
            (
                (str(topic.name), int(p.partition_index), int(p.error_code))
                for topic in answer.topics
                for p in topic.partitions
            ),
        )
    identity = None
    if isinstance(request, InitProducerId | EndTransaction) and int(answer.producer_id) >= 0:
        identity = ProducerIdentity(int(answer.producer_id), int(answer.producer_epoch))
    return CoordinatorAnswer(ErrorCode.of(int(answer.error_code)), identity=identity)


def _read_coordinator(answer: Any) -> CoordinatorAnswer:
    found = answer.coordinators[0]
    code = ErrorCode.of(int(found.error_code))
    if code is not ErrorCode.NONE:
        return CoordinatorAnswer(code, found.error_message or "")
    return CoordinatorAnswer(coordinator=BrokerEndpoint(int(found.node_id), Address(found.host, int(found.port))))


def _with_partitions(code: int, rows: Iterable[tuple[str, int, int]]) -> CoordinatorAnswer:
    return CoordinatorAnswer(
        ErrorCode.of(code), partitions={(topic, index): ErrorCode.of(result) for topic, index, result in rows}
    )
