"""Committed offsets: check who may commit, write the offsets, and read them.

Invariants: all accepted offsets of a request are one atomic write. Nothing above the high watermark is returned. An
offset is not compared with the log of its partition.
Source: Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from kraft.broker.group.classic_group import ClassicGroup, GroupState
from kraft.broker.group.durable import DurableState
from kraft.broker.group.records import NO_LEADER_EPOCH, NO_TIMESTAMP, GroupLogEntry, OffsetKey, OffsetValue
from kraft.broker.group.requests import (
    CommitReply,
    CommitRequest,
    FetchedOffset,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    OffsetDeleteReply,
    OffsetDeleteRequest,
    OffsetToCommit,
    PartitionError,
    Ticket,
)
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import CoordinatorCall, ReadStableOffsets, SendReply
from kraft.wire.error_codes import ErrorCode


def commit(shard: Shard, request: CommitRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Write the offsets that may be committed; the reply is sent when the write is committed."""
    group = shard.groups.get(request.group)
    error = _commit_error(group, request)
    if error is not ErrorCode.NONE:
        call.reply(ticket, request.refused(error))
        return
    if group is not None and request.member_id in group.members:
        shard.reset_session(group, group.members[request.member_id], call.now.monotonic_ms)
    rows = []
    for row in request.offsets:
        too_long = len(row.metadata) > shard.settings.metadata_chars_max
        if not too_long:
            call.write(GroupLogEntry(OffsetKey(request.group, row.topic, row.partition), _value(request, row, call)))
        row_error = ErrorCode.OFFSET_METADATA_TOO_LARGE if too_long else ErrorCode.NONE
        rows.append(PartitionError(row.topic, row.partition, row_error))
    call.then(SendReply(ticket, request, CommitReply(tuple(rows))))


def _commit_error(group: ClassicGroup | None, request: CommitRequest) -> ErrorCode:
    """Return why a member, or a client that names no member, may not commit to this classic group."""
    if group is None:
        if request.generation < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if request.knows_missing_groups else ErrorCode.ILLEGAL_GENERATION
    if group.is_empty and request.generation < 0:
        return ErrorCode.NONE
    if request.generation < 0 and not request.member_id and request.instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.member_error(request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    in_between = group.state is GroupState.COMPLETING_REBALANCE
    return ErrorCode.REBALANCE_IN_PROGRESS if in_between else ErrorCode.NONE


def _value(request: CommitRequest, row: OffsetToCommit, call: CoordinatorCall) -> OffsetValue:
    now_ms = call.now.wall_ms
    if request.retention_ms >= 0:
        return OffsetValue(row.offset, NO_LEADER_EPOCH, row.metadata, now_ms, now_ms + request.retention_ms)
    return OffsetValue(row.offset, row.leader_epoch, row.metadata, now_ms, NO_TIMESTAMP, row.topic_id)


def fetch(shard: Shard, request: FetchOffsetsRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Return committed offsets at once or, if they must be stable, after all writes in flight."""
    if request.require_stable:
        call.then(ReadStableOffsets(ticket, request))
    else:
        call.reply(ticket, read_offsets(shard.versions.committed, request))


def read_offsets(state: DurableState, request: FetchOffsetsRequest) -> FetchOffsetsReply:
    """Return the requested offsets from this state; -1 for an offset that does not exist."""
    offsets = state.offsets_of(request.group)
    wanted = sorted(offsets) if request.partitions is None else request.partitions
    rows = []
    for topic, partition in wanted:
        found = offsets.get((topic, partition))
        rows.append(
            FetchedOffset(topic, partition)
            if found is None
            else FetchedOffset(topic, partition, found.offset, found.leader_epoch, found.metadata, found.topic_id)
        )
    return FetchOffsetsReply(ErrorCode.NONE, tuple(rows))


def delete_offsets(shard: Shard, request: OffsetDeleteRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Delete offsets of topics to which no member of the group subscribes."""
    group = shard.groups.get(request.group)
    error = _delete_error(group)
    if group is None or error is not ErrorCode.NONE:
        call.reply(ticket, OffsetDeleteReply(error))
        return
    offsets = shard.versions.newest.offsets_of(request.group)
    rows = []
    for topic, partition in request.partitions:
        is_in_use = not group.is_empty and group.is_subscribed_to(topic)
        rows.append(
            PartitionError(topic, partition, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_in_use else ErrorCode.NONE)
        )
        if not is_in_use and (topic, partition) in offsets:
            call.write(GroupLogEntry(OffsetKey(request.group, topic, partition), None))
            shard.counts.deleted_offsets += 1
    call.then(SendReply(ticket, request, OffsetDeleteReply(ErrorCode.NONE, tuple(rows))))


def _delete_error(group: ClassicGroup | None) -> ErrorCode:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not group.is_empty and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE
