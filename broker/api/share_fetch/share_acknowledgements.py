"""Pass the acknowledgements of a ShareFetch or ShareAcknowledge to the share partitions, and collect the results.

Source: KIP-932, KIP-1222, Kafka's KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kraft.broker.api.share_fetch.share_meters import topic_meters
from kraft.broker.api.share_fetch.share_sessions import ShareMember, TopicIdPartition
from kraft.broker.serving.gates import Operation
from kraft.broker.share_partition.acknowledging import are_well_formed
from kraft.broker.share_partition.states import AcknowledgementBatch, AcknowledgeType
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext
    from kraft.broker.serving.session import Session

Acknowledgements = dict[TopicIdPartition, tuple[AcknowledgementBatch, ...]]
AcknowledgeErrors = dict[TopicIdPartition, ErrorCode]

CLIENT_ERRORS = MappingProxyType(
    {
        ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
"""Error of a write → error in the response. Other errors stay."""


def acknowledgements_of(topics: Iterable[Any]) -> Acknowledgements:
    """Return the acknowledgements in the topics of a request."""
    return {
        (topic.topic_id, row.partition_index): tuple(
            AcknowledgementBatch(batch.first_offset, batch.last_offset, tuple(map(int, batch.acknowledge_types)))
            for batch in row.acknowledgement_batches
        )
        for topic in topics
        if topic.topic_id is not None
        for row in topic.partitions
        if row.acknowledgement_batches
    }


def acknowledge_all(
    context: HandlerContext,
    session: Session,
    member: ShareMember,
    wanted: Acknowledgements,
    *,
    may_renew: bool,
    then: Callable[[AcknowledgeErrors], None],
) -> None:
    """Acknowledge each partition independently. Call `then` with the result of each when all are persisted or rejected,
    now or later."""
    errors: AcknowledgeErrors = {}
    missing = len(wanted)

    def acknowledged(partition: TopicIdPartition, error: ErrorCode) -> None:
        nonlocal missing
        errors[partition] = CLIENT_ERRORS.get(error, error)
        missing -= 1
        if not missing:
            failed = [partition for partition, error in errors.items() if error is not ErrorCode.NONE]
            for meters in topic_meters(context.find, failed):
                meters.failed_share_acknowledges.count += 1
            then(errors)

    for meters in topic_meters(context.find, wanted):
        meters.share_acknowledges.count += 1
    if not wanted:
        then(errors)
    for partition, batches in wanted.items():
        error = _refusal(context, session, partition, batches, may_renew=may_renew)
        share = context.shares.find(member.group, partition)
        if error is not ErrorCode.NONE:
            acknowledged(partition, error)
        elif share is None:
            acknowledged(partition, ErrorCode.INVALID_RECORD_STATE)
        else:
            context.shares.counts.count_acknowledged(batches)
            share.acknowledge(member.member, batches, partial(acknowledged, partition))


def _refusal(
    context: HandlerContext,
    session: Session,
    partition: TopicIdPartition,
    batches: Sequence[AcknowledgementBatch],
    *,
    may_renew: bool,
) -> ErrorCode:
    topic_id, index = partition
    error = partition_error(context, session, topic_id, index)
    if error is not ErrorCode.NONE:
        return error
    renews = any(AcknowledgeType.RENEW in batch.types for batch in batches)
    if not are_well_formed(batches, may_renew=True) or (renews and not may_renew):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def partition_error(context: HandlerContext, session: Session, topic_id: Any, index: int) -> ErrorCode:
    """Return why a client cannot use this partition on this broker: an unknown topic, no permission, another leader."""
    name = context.image.topics.name_of(topic_id)
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not context.gates.authorize_topic(session, Operation.READ, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partition = context.find(topic_id, index)
    if partition is None:
        found = context.locate(name, index)
        return found if isinstance(found, ErrorCode) else ErrorCode.NOT_LEADER_OR_FOLLOWER
    if partition.leader is None and not partition.waits_for_log:
        return ErrorCode.KAFKA_STORAGE_ERROR if partition.is_offline else ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE
