"""Committed offsets: check which clients may commit, write the offsets, and read them.

Invariants: all accepted offsets of a request are one atomic write. Nothing above the high watermark is returned. An
offset is not compared with the log of its partition. Offsets of a transaction are staged, and the transaction's marker
applies or drops them.
Source: Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from kraft.broker.consumer_group.state import ConsumerGroup
from kraft.broker.consumer_group.subscriptions import subscribed_topics
from kraft.broker.group.classic_group import ClassicGroup, GroupState
from kraft.broker.group.consumer_offsets import consumer_commit_error, consumer_fetch_error
from kraft.broker.group.durable import DurableState
from kraft.broker.group.records import NO_LEADER_EPOCH, NO_TIMESTAMP, GroupLogEntry, OffsetKey, OffsetValue
from kraft.broker.group.requests import (
    NO_GENERATION,
    CommitReply,
    CommitRequest,
    FetchedOffset,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    MarkerReply,
    MarkerRequest,
    OffsetDeleteReply,
    OffsetDeleteRequest,
    OffsetToCommit,
    PartitionError,
    Ticket,
    TxnCommitRequest,
)
from kraft.broker.group.shard import Shard
from kraft.broker.group.staged import NOTHING_STAGED
from kraft.broker.group.step import CoordinatorCall, ReadStableOffsets, SendReply
from kraft.broker.shard.transactional import MarkerBatch, TransactionalBatch
from kraft.wire.error_codes import ErrorCode


def commit(shard: Shard, request: CommitRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Write the offsets that may be committed; the reply is sent when the batch is committed."""
    group = shard.groups.get(request.group)
    consumers = None if group is not None else shard.versions.newest.consumers.get(request.group)
    error = _share_group_error(shard, request)
    if error is ErrorCode.NONE and consumers is None:
        error = _commit_error(group, request)
    if error is not ErrorCode.NONE:
        call.reply(ticket, request.refused(error))
        return
    if group is not None and request.member_id in group.members:
        shard.reset_session(group, group.members[request.member_id], call.now.monotonic_ms)
    entries, reply = _sorted_out(shard, request, consumers, request.retention_ms, call)
    for entry in entries:
        call.write(entry)
    call.then(SendReply(ticket, request, reply))


def _sorted_out(
    shard: Shard,
    request: CommitRequest | TxnCommitRequest,
    consumers: ConsumerGroup | None,
    retention_ms: int,
    call: CoordinatorCall,
) -> tuple[list[GroupLogEntry], CommitReply]:
    """Return the entries for the valid offsets, and the reply. An offset that its member of a consumer group may not
    commit, or whose metadata text is too long, gets an error and no entry."""
    entries, rows = [], []
    for row in request.offsets:
        error = ErrorCode.NONE
        if consumers is not None:
            error = consumer_commit_error(consumers, request, row, shard.topics)
        if error is ErrorCode.NONE and len(row.metadata) > shard.settings.metadata_chars_max:
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        if error is ErrorCode.NONE:
            key = OffsetKey(request.group, row.topic, row.partition)
            entries.append(GroupLogEntry(key, _value(retention_ms, row, call)))
        rows.append(PartitionError(row.topic, row.partition, error))
    return entries, CommitReply(tuple(rows))


def commit_in_transaction(shard: Shard, request: TxnCommitRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Stage the offsets that may be committed; the reply is sent when their batch is committed."""
    group = shard.groups.get(request.group)
    consumers = None if group is not None else shard.versions.newest.consumers.get(request.group)
    error = _share_group_error(shard, request)
    if error is ErrorCode.NONE and consumers is None:
        error = _txn_commit_error(group, request)
    if error is not ErrorCode.NONE:
        call.reply(ticket, request.refused(error))
        return
    entries, reply = _sorted_out(shard, request, consumers, -1, call)
    if entries:
        batch = TransactionalBatch(request.producer_id, request.producer_epoch, tuple(entries), request.verification)
        call.write(batch)  # fmt: skip
    call.then(SendReply(ticket, request, reply))


def _txn_commit_error(group: ClassicGroup | None, request: TxnCommitRequest) -> ErrorCode:
    """Return the error if a producer may not commit offsets to this classic group. Versions 0 to 2 name no member; such
    requests are accepted in every state of the group."""
    if group is None:
        return ErrorCode.NONE if request.generation < 0 else ErrorCode.ILLEGAL_GENERATION
    names_none = request.generation == NO_GENERATION and not request.member_id and request.instance_id is None
    if names_none or (group.is_empty and request.generation < 0):
        return ErrorCode.NONE
    error = group.member_error(request.member_id, request.instance_id)
    if error is ErrorCode.NONE and request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def end_transaction(shard: Shard, request: MarkerRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Write a marker, also if its producer has staged no offsets."""
    call.write(
        MarkerBatch(
            request.producer_id,
            request.producer_epoch,
            request.coordinator_epoch,
            request.is_commit,
            request.transaction_version,
        )
    )
    call.then(SendReply(ticket, request, MarkerReply(ErrorCode.NONE)))


def _share_group_error(shard: Shard, request: CommitRequest | TxnCommitRequest) -> ErrorCode:
    """Return GROUP_ID_NOT_FOUND for a share group, which keeps no offsets here."""
    is_share_group = request.group in shard.versions.newest.shares
    return ErrorCode.GROUP_ID_NOT_FOUND if is_share_group else ErrorCode.NONE


def _commit_error(group: ClassicGroup | None, request: CommitRequest) -> ErrorCode:
    """Return the error if a member, or a client that names no member, may not commit to this classic group."""
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


def _value(retention_ms: int, row: OffsetToCommit, call: CoordinatorCall) -> OffsetValue:
    now_ms = call.now.wall_ms
    if retention_ms >= 0:
        return OffsetValue(row.offset, NO_LEADER_EPOCH, row.metadata, now_ms, now_ms + retention_ms)
    return OffsetValue(row.offset, row.leader_epoch, row.metadata, now_ms, NO_TIMESTAMP, row.topic_id)


def fetch(shard: Shard, request: FetchOffsetsRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Reply with committed offsets: at once, or after all writes in flight if the client requires stable offsets."""
    if request.require_stable:
        call.then(ReadStableOffsets(ticket, request))
    else:
        call.reply(ticket, read_offsets(shard.versions.committed, request))


def read_offsets(state: DurableState, request: FetchOffsetsRequest) -> FetchOffsetsReply:
    """Return the requested offsets from this state, or -1 for an offset that does not exist. If the client requires
    stable offsets, return an error for each one that an open transaction may replace."""
    error = consumer_fetch_error(state.consumers.get(request.group), request)
    if error is not ErrorCode.NONE:
        return FetchOffsetsReply(error)
    offsets = state.offsets_of(request.group)
    unstable = state.staged_of(request.group) if request.require_stable else NOTHING_STAGED
    wanted = sorted({*offsets, *unstable}) if request.partitions is None else request.partitions
    rows = []
    for topic, partition in wanted:
        found = offsets.get((topic, partition))
        if (topic, partition) in unstable:
            rows.append(FetchedOffset(topic, partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT))
        elif found is None:
            rows.append(FetchedOffset(topic, partition))
        else:
            rows.append(
                FetchedOffset(topic, partition, found.offset, found.leader_epoch, found.metadata, found.topic_id)
            )
    return FetchOffsetsReply(ErrorCode.NONE, tuple(rows))


def delete_offsets(shard: Shard, request: OffsetDeleteRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Delete offsets of topics to which no member of the group subscribes."""
    group, newest = shard.groups.get(request.group), shard.versions.newest
    consumers = newest.consumers.get(request.group)
    error = ErrorCode.NONE if consumers is not None else _delete_error(group)
    if error is not ErrorCode.NONE:
        call.reply(ticket, OffsetDeleteReply(error))
        return
    subscribed = frozenset() if consumers is None else subscribed_topics(consumers)
    offsets, staged = newest.offsets_of(request.group), newest.staged_of(request.group)
    rows = []
    for topic, partition in request.partitions:
        is_in_use = topic in subscribed or (group is not None and not group.is_empty and group.is_subscribed_to(topic))
        rows.append(
            PartitionError(topic, partition, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_in_use else ErrorCode.NONE)
        )
        if not is_in_use and ((topic, partition) in offsets or (topic, partition) in staged):
            call.write(GroupLogEntry(OffsetKey(request.group, topic, partition), None))
            shard.counts.deleted_offsets += 1
    call.then(SendReply(ticket, request, OffsetDeleteReply(ErrorCode.NONE, tuple(rows))))


def _delete_error(group: ClassicGroup | None) -> ErrorCode:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not group.is_empty and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE
