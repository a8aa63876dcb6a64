"""Convert between requests to a share coordinator and the five RPCs that carry them.

A message has share partitions of one group. The share coordinator gets one request for each share partition.
DeleteShareGroupState has no epoch. So our brokers send InitializeShareGroupState with the start offset -2 to delete the
states of older epochs.
Source: InitializeShareGroupStateRequest 0, ReadShareGroupStateRequest 0, WriteShareGroupStateRequest 0 to 1,
DeleteShareGroupStateRequest 0, ReadShareGroupStateSummaryRequest 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

from kraft.broker.serving.request_versions import part, request_part, respond
from kraft.broker.share_coordinator.records import NO_COUNT, NO_EPOCH, NO_OFFSET, ShareKey, ShareSnapshot
from kraft.broker.share_coordinator.requests import (
    DeleteStateRequest,
    InitializeStateRequest,
    ReadStateRequest,
    ReadSummaryRequest,
    Request,
    StateReply,
    WriteStateRequest,
)
from kraft.broker.share_partition.states import RecordState, StateBatch
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

INITIALIZE = ApiKey.INITIALIZE_SHARE_GROUP_STATE
READ = ApiKey.READ_SHARE_GROUP_STATE
WRITE = ApiKey.WRITE_SHARE_GROUP_STATE
DELETE = ApiKey.DELETE_SHARE_GROUP_STATE
SUMMARY = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY

NO_TIMESTAMP = -1
DELETED_OFFSET = -2
"""Start offset in InitializeShareGroupState by which a broker deletes a state of an older epoch."""

API_OF = MappingProxyType(
    {
        InitializeStateRequest: INITIALIZE,
        ReadStateRequest: READ,
        WriteStateRequest: WRITE,
        DeleteStateRequest: DELETE,
        ReadSummaryRequest: SUMMARY,
    }
)
TOPIC_PARTS = MappingProxyType(
    {
        INITIALIZE: ("InitializeStateData", "InitializeStateResult"),
        READ: ("ReadStateData", "ReadStateResult"),
        WRITE: ("WriteStateData", "WriteStateResult"),
        DELETE: ("DeleteStateData", "DeleteStateResult"),
        SUMMARY: ("ReadStateSummaryData", "ReadStateSummaryResult"),
    }
)
"""API key → names of the structs that have a topic, in the request and in the response."""
PERSISTED = frozenset({RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


def requests_of(key: ApiKey, message: Any) -> list[Request | ErrorCode]:
    """Return the request for each partition of a message, in its order. A malformed partition has an error instead."""
    return [
        _request(key, ShareKey(message.group_id, topic.topic_id, row.partition), row)
        if topic.topic_id is not None and row.partition >= 0
        else ErrorCode.INVALID_REQUEST
        for topic in message.topics
        for row in topic.partitions
    ]


def _request(key: ApiKey, share_key: ShareKey, row: Any) -> Request | ErrorCode:
    if key is INITIALIZE:
        if row.start_offset == DELETED_OFFSET:
            return DeleteStateRequest(share_key, row.state_epoch)
        return InitializeStateRequest(share_key, row.state_epoch, row.start_offset)
    if key is READ:
        return ReadStateRequest(share_key, row.leader_epoch)
    if key is DELETE:
        return DeleteStateRequest(share_key)
    if key is SUMMARY:
        return ReadSummaryRequest(share_key)
    batches = tuple(StateBatch(*_batch_fields(batch)) for batch in row.state_batches)
    if any(batch.state not in PERSISTED or not 0 <= batch[0] <= batch[1] for batch in batches):
        return ErrorCode.INVALID_REQUEST
    count = row.delivery_complete_count
    return WriteStateRequest(share_key, row.state_epoch, row.leader_epoch, row.start_offset, count, batches)


def _batch_fields(batch: Any) -> tuple[int, int, int, int]:
    return batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count


def response_of(key: ApiKey, message: Any, replies: Iterable[StateReply]) -> Any:
    """Return the response with the reply for each partition of the message, in its order."""
    topic_part, left = part(key, TOPIC_PARTS[key][1]), iter(replies)
    results = [
        topic_part(
            topic_id=topic.topic_id, partitions=[_row(key, row.partition, next(left)) for row in topic.partitions]
        )
        for topic in message.topics
    ]
    return respond(key, results=results)


def _row(key: ApiKey, index: int, reply: StateReply) -> Any:
    row, state = part(key, "PartitionResult"), reply.state
    if key not in (READ, SUMMARY) or reply.error is not ErrorCode.NONE:
        return row(partition=index, error_code=reply.error)
    if state is None:
        return row(partition=index, start_offset=NO_OFFSET)
    if key is SUMMARY:
        return row(
            partition=index,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
    batch_part = part(key, "StateBatch")
    batches = [
        batch_part(
            first_offset=one.first_offset,
            last_offset=one.last_offset,
            delivery_state=one.state,
            delivery_count=one.delivery_count,
        )
        for one in state.batches
    ]
    return row(partition=index, state_epoch=state.state_epoch, start_offset=state.start_offset, state_batches=batches)


def message_of(request: Request) -> tuple[ApiKey, Any]:
    """Return the API key and the message for one request."""
    key = API_OF[type(request)]
    if isinstance(request, DeleteStateRequest) and request.state_epoch != NO_EPOCH:
        key = INITIALIZE
    row = request_part(key, "PartitionData")(partition=request.key.partition, **_fields(request))
    topic = request_part(key, TOPIC_PARTS[key][0])(topic_id=request.key.topic_id, partitions=[row])
    return key, messages.build(messages.request_class(key), group_id=request.key.group, topics=[topic])


def _fields(request: Request) -> dict[str, Any]:
    match request:
        case InitializeStateRequest(_, state_epoch, start_offset):
            return {"state_epoch": state_epoch, "start_offset": start_offset}
        case ReadStateRequest(_, leader_epoch):
            return {"leader_epoch": leader_epoch}
        case ReadSummaryRequest():
            return {"leader_epoch": NO_EPOCH}
        case DeleteStateRequest(_, state_epoch):
            return {} if state_epoch == NO_EPOCH else {"state_epoch": state_epoch, "start_offset": DELETED_OFFSET}
    batch_part = request_part(WRITE, "StateBatch")
    return {
        "state_epoch": request.state_epoch,
        "leader_epoch": request.leader_epoch,
        "start_offset": request.start_offset,
        "delivery_complete_count": request.delivery_complete_count,
        "state_batches": [
            batch_part(
                first_offset=one.first_offset,
                last_offset=one.last_offset,
                delivery_state=one.state,
                delivery_count=one.delivery_count,
            )
            for one in request.batches
        ],
    }


def reply_of(request: Request, response: Any) -> StateReply:
    """Return the reply in a response to `message_of(request)`."""
    rows = [row for topic in response.results for row in topic.partitions]
    if len(rows) != 1:
        return StateReply(ErrorCode.UNKNOWN_SERVER_ERROR)
    (row,) = rows
    error = ErrorCode.of(int(row.error_code))
    if error is not ErrorCode.NONE or not isinstance(request, ReadStateRequest | ReadSummaryRequest):
        return StateReply(error)
    is_summary = isinstance(request, ReadSummaryRequest)
    batches = () if is_summary else tuple(StateBatch(*_batch_fields(batch)) for batch in row.state_batches)
    return StateReply(
        error,
        ShareSnapshot(
            NO_EPOCH,
            row.state_epoch,
            row.leader_epoch if is_summary else NO_EPOCH,
            row.start_offset,
            row.delivery_complete_count if is_summary else NO_COUNT,
            NO_TIMESTAMP,
            NO_TIMESTAMP,
            batches,
        ),
    )
