"""Committed offsets: who may commit, what is written, what is read.

Invariants: all that a request may commit is one atomic write. Nothing above the high watermark is returned. An offset
is not compared with any log.
Source: Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from kraft.broker.group.classic_group import ClassicGroup, GroupState
from kraft.broker.group.durable import DurableState
from kraft.broker.group.records import NO_LEADER_EPOCH, NO_TIMESTAMP, Entry, OffsetKey, OffsetValue
from kraft.broker.group.requests import (
    CommitReply,
    CommitRequest,
    FetchedOffset,
    FetchReply,
    FetchRequest,
    OffsetDeleteReply,
    OffsetDeleteRequest,
    OffsetToCommit,
    PartitionError,
    Ticket,
)
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import Answer, ReadStable, Turn
from kraft.wire.error_codes import ErrorCode


def commit(shard: Shard, request: CommitRequest, ticket: Ticket, turn: Turn) -> None:
    """Write what may be committed; the answer leaves when it is safe."""
    group = shard.groups.get(request.group)
    error = _commit_error(group, request)
    if error is not ErrorCode.NONE:
        turn.reply(ticket, request.refused(error))
        return
    if group is not None and request.member_id in group.members:
        shard.reset_session(group, group.members[request.member_id], turn.now.monotonic_ms)
    rows = []
    for row in request.offsets:
        too_long = len(row.metadata) > shard.settings.metadata_chars_max
        if not too_long:
            turn.write(Entry(OffsetKey(request.group, row.topic, row.partition), _value(request, row, turn)))
        row_error = ErrorCode.OFFSET_METADATA_TOO_LARGE if too_long else ErrorCode.NONE
        rows.append(PartitionError(row.topic, row.partition, row_error))
    turn.then(Answer(ticket, request, CommitReply(tuple(rows))))


def _commit_error(group: ClassicGroup | None, request: CommitRequest) -> ErrorCode:
    """Return why a member, or a client that names none, may not commit to this classic group."""
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


def _value(request: CommitRequest, row: OffsetToCommit, turn: Turn) -> OffsetValue:
    now_ms = turn.now.wall_ms
    if request.retention_ms >= 0:
        return OffsetValue(row.offset, NO_LEADER_EPOCH, row.metadata, now_ms, now_ms + request.retention_ms)
    return OffsetValue(row.offset, row.leader_epoch, row.metadata, now_ms, NO_TIMESTAMP, row.topic_id)


def fetch(shard: Shard, request: FetchRequest, ticket: Ticket, turn: Turn) -> None:
    """Read what is committed, at once; or, if it must be stable, after all that is being written."""
    if request.require_stable:
        turn.then(ReadStable(ticket, request))
    else:
        turn.reply(ticket, read_offsets(shard.versions.committed, request))


def read_offsets(state: DurableState, request: FetchRequest) -> FetchReply:
    """The offsets in this state; what is not there has offset -1."""
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
    return FetchReply(ErrorCode.NONE, tuple(rows))


def delete_offsets(shard: Shard, request: OffsetDeleteRequest, ticket: Ticket, turn: Turn) -> None:
    """Forget offsets of topics that nobody in the group subscribes to."""
    group = shard.groups.get(request.group)
    error = _delete_error(group)
    if group is None or error is not ErrorCode.NONE:
        turn.reply(ticket, OffsetDeleteReply(error))
        return
    offsets = shard.versions.newest.offsets_of(request.group)
    rows = []
    for topic, partition in request.partitions:
        is_in_use = not group.is_empty and group.is_subscribed_to(topic)
        rows.append(
            PartitionError(topic, partition, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_in_use else ErrorCode.NONE)
        )
        if not is_in_use and (topic, partition) in offsets:
            turn.write(Entry(OffsetKey(request.group, topic, partition), None))
            shard.counts.deleted_offsets += 1
    turn.then(Answer(ticket, request, OffsetDeleteReply(ErrorCode.NONE, tuple(rows))))


def _delete_error(group: ClassicGroup | None) -> ErrorCode:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not group.is_empty and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE
