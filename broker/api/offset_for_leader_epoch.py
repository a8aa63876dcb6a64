"""OffsetForLeaderEpoch: return the end offset of a leader epoch. A replica compares its log with that offset, a
consumer its position.

Also answered for the cluster's metadata log, if the client may read that log.
Source: OffsetForLeaderEpochRequest 2 to 4, KIP-101, KIP-279, KIP-320.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft.broker.api.fetch.metadata_topic import PARTITION
from kraft.broker.partition.log_waits import wait_open
from kraft.broker.partition.partition import Partition
from kraft.broker.partition.partition_checks import leader_epoch_error
from kraft.broker.serving.gates import Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.control.topics.names import METADATA_TOPIC
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext
    from kraft.broker.serving.session import Session
    from kraft.wire.server import Request

EpochAnswer = tuple[ErrorCode, int, int]
"""(error, epoch, end offset). Epoch and end offset are -1 when this broker does not know the epoch."""


def handle_offset_for_leader_epoch(context: HandlerContext, request: Request, session: Session) -> None:
    """Answer at once if all the logs are open, otherwise when all of them have been opened."""
    message = read(request)
    allowed = {
        topic.topic: context.gates.authorize_topic(session, Operation.DESCRIBE, topic.topic)
        or context.gates.authorize_cluster(session, Operation.CLUSTER_ACTION)
        for topic in message.topics
    }
    closed = [
        partition
        for topic in message.topics
        for row in topic.partitions
        if allowed[topic.topic]
        and isinstance(partition := context.locate(topic.topic, row.partition), Partition)
        and partition.readable is None
    ]
    if not closed:
        _answer(context, request, session, message, allowed)
        return

    async def when_open() -> None:
        for partition in closed:
            await wait_open(partition)
        _answer(context, request, session, message, allowed)

    context.answer_later(request, when_open)


def _answer(
    context: HandlerContext, request: Request, session: Session, message: Any, allowed: dict[str, bool]
) -> None:
    row_class = part(ApiKey.OFFSET_FOR_LEADER_EPOCH, "EpochEndOffset")
    topic_class = part(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderTopicResult")
    topics = []
    for topic in message.topics:
        rows = []
        for row in topic.partitions:
            if allowed[topic.topic]:
                error, epoch, end = _end_of_epoch(context, session, topic.topic, row)
            else:
                error, epoch, end = ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, -1
            rows.append(row_class(error_code=error, partition=row.partition, leader_epoch=epoch, end_offset=end))
        topics.append(topic_class(topic=topic.topic, partitions=tuple(rows)))
    answer(request, respond(ApiKey.OFFSET_FOR_LEADER_EPOCH, topics=tuple(topics)))


def _end_of_epoch(context: HandlerContext, session: Session, topic: str, asked: Any) -> EpochAnswer:
    """Return the end offset of the epoch in one partition; `asked` is the request's row for that partition."""
    if topic == METADATA_TOPIC and asked.partition == PARTITION and context.metadata_topic.may_read(session):
        return context.metadata_topic.end_of_epoch(asked.leader_epoch)
    found = context.locate(topic, asked.partition)
    if isinstance(found, ErrorCode):
        return found, -1, -1
    error = leader_epoch_error(found, asked.current_leader_epoch)
    log = found.readable
    if error == ErrorCode.NONE and (found.leader is None or log is None):
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if error != ErrorCode.NONE or log is None:
        return error, -1, -1
    answered_epoch, end = log.epochs.end_offset_for(asked.leader_epoch, log.log_end_offset)
    return ErrorCode.NONE, answered_epoch, end
