"""DescribeProducers: list the producers of this broker's partitions, and their open transactions.

Leaders and followers answer, each from its own log. Source: DescribeProducersRequest 0, KIP-664.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft.broker.partition.log_waits import wait_open
from kraft.broker.serving.gates import Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext
    from kraft.storage.log import Log

KEY = ApiKey.DESCRIBE_PRODUCERS


def handle_describe_producers(context: HandlerContext, request: Request, session: Session) -> None:
    """Describe each partition; each succeeds or fails independently. Closed logs are opened first. A replica whose log
    was never created has no producers."""
    message = read(request)
    closed = [
        found
        for topic in message.topics
        if context.gates.authorize_topic(session, Operation.READ, topic.name)
        for index in topic.partition_indexes
        if (found := context.find(topic.name, index)) is not None and found.readable is None and not found.is_offline
    ]

    async def reply() -> None:
        for partition in closed:
            await wait_open(partition)
        answer(request, _response(context, session, message))

    if closed:
        context.answer_later(request, reply)
    else:
        answer(request, _response(context, session, message))


def _response(context: HandlerContext, session: Session, message: Any) -> Any:
    topic_part = part(KEY, "TopicResponse")
    return respond(
        KEY,
        topics=tuple(
            topic_part(
                name=topic.name,
                partitions=tuple(_partition(context, session, topic.name, index) for index in topic.partition_indexes),
            )
            for topic in message.topics
        ),
    )


def _partition(context: HandlerContext, session: Session, topic: str, index: int) -> Any:
    result = part(KEY, "PartitionResponse")
    if not context.gates.authorize_topic(session, Operation.READ, topic):
        return result(partition_index=index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    found = context.locate(topic, index)
    if isinstance(found, ErrorCode):
        return result(partition_index=index, error_code=found)
    if found.is_unwritten:
        return result(partition_index=index, active_producers=())
    if found.log is None:
        return result(partition_index=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    return result(partition_index=index, active_producers=tuple(_producers(found.log)))


def _producers(log: Log) -> list[Any]:
    state = part(KEY, "ProducerState")
    return [
        state(
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            last_sequence=row.last_sequence,
            last_timestamp=row.timestamp,
            coordinator_epoch=row.coordinator_epoch,
            current_txn_start_offset=row.current_txn_first_offset,
        )
        for row in log.producers.snapshot()
    ]
