"""Remove expired offsets, offsets of deleted topics, and whole groups.

Invariants: removals of a group that fit into one batch are one atomic write. The group's record is removed last,
together with its last offset. Otherwise the removals are written in several batches. Each further batch waits until the
previous one is committed and then checks the group again, since members may commit in between. Offsets of a group in a
rebalance are not removed (KAFKA-13636). A partition's offset does not expire while a staged offset exists for it, and
neither does the group (KAFKA-19163). Removals for any other reason drop the staged offsets too.
Source: KIP-211, Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft.broker.consumer_group.leaving import removal
from kraft.broker.consumer_group.state import ConsumerGroup
from kraft.broker.consumer_group.subscriptions import subscribed_topics
from kraft.broker.group.classic_group import ClassicGroup, GroupState
from kraft.broker.group.durable import GroupOffsets
from kraft.broker.group.rebalance import remove_member
from kraft.broker.group.records import NO_TIMESTAMP, GroupKey, GroupLogEntry, OffsetKey, OffsetValue
from kraft.broker.group.requests import DeleteReply, DeleteRequest, ExpireRequest, Ticket, TopicsGoneRequest
from kraft.broker.group.shard import Shard
from kraft.broker.group.share_groups import forget_topics_of_shares, must_delete_states
from kraft.broker.group.staged import GroupStaged, TopicPartition
from kraft.broker.group.step import ContinueRequest, CoordinatorCall, SendReply
from kraft.broker.share_group.state import ShareGroup, share_group_removal
from kraft.wire.error_codes import ErrorCode

REMOVAL_BYTES = 30
"""Size of a record that removes an offset, without the names in its key."""


def delete_group(shard: Shard, request: DeleteRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Delete an empty group, with all its offsets and issued member ids."""
    group, newest = shard.groups.get(request.group), shard.versions.newest
    consumers, shares = newest.consumers.get(request.group), newest.shares.get(request.group)
    error = _delete_error(group, consumers, shares)
    if error is not ErrorCode.NONE:
        call.reply(ticket, DeleteReply(error))
        return
    if shares is not None:
        _delete_share_group(shard, shares, request, ticket, call)
        return
    offsets = sorted({*newest.offsets_of(request.group), *newest.staged_of(request.group)})
    is_all = _remove(shard, request, offsets, ticket, call)
    shard.counts.deleted_offsets += len(call.entries)
    if is_all:
        if group is not None:
            for member_id in list(group.pending_join):
                remove_member(shard, group, member_id, call, ErrorCode.UNKNOWN_MEMBER_ID)
            call.write(GroupLogEntry(GroupKey(request.group), None))
        _remove_consumer_group(request.group, consumers, call)
        call.then(SendReply(ticket, request, DeleteReply(ErrorCode.NONE)))


def _delete_share_group(
    shard: Shard, shares: ShareGroup, request: DeleteRequest, ticket: Ticket, call: CoordinatorCall
) -> None:
    """Remove an empty share group, once the states of its share partitions are deleted."""
    if must_delete_states(shard, shares, request, ticket, call):
        return
    for entry in share_group_removal(request.group, shares):
        call.write(entry)
    call.then(SendReply(ticket, request, DeleteReply(ErrorCode.NONE)))


def _delete_error(group: ClassicGroup | None, consumers: ConsumerGroup | None, shares: ShareGroup | None) -> ErrorCode:
    if shares is not None:
        return ErrorCode.NON_EMPTY_GROUP if shares.members else ErrorCode.NONE
    if group is None and consumers is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    is_empty = not consumers.members if consumers is not None else group is None or group.is_empty
    return ErrorCode.NONE if is_empty else ErrorCode.NON_EMPTY_GROUP


def _remove_consumer_group(group_id: str, consumers: ConsumerGroup | None, call: CoordinatorCall) -> None:
    """Remove the records of an empty consumer group."""
    if consumers is not None:
        for entry in removal(group_id, consumers):
            call.write(entry)


def _remove(
    shard: Shard,
    request: DeleteRequest | ExpireRequest | TopicsGoneRequest,
    offsets: Iterable[TopicPartition],
    ticket: Ticket,
    call: CoordinatorCall,
) -> bool:
    """Remove these offsets of the group, at least one. Return False if the batch has no room for all of them; the
    request must then continue with the remaining offsets. The group's record always has room."""
    name_bytes = len(request.group.encode()) + REMOVAL_BYTES
    room = shard.settings.removal_bytes_max - name_bytes
    for topic, partition in offsets:
        room -= name_bytes + len(topic)
        if room < 0 and call.entries:
            call.then(ContinueRequest(ticket, request))
            return False
        call.write(GroupLogEntry(OffsetKey(request.group, topic, partition), None))
    return True


def expire(shard: Shard, request: ExpireRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Remove the group's expired offsets, and also the group if it then has no offsets and no members."""
    group, newest = shard.groups.get(request.group), shard.versions.newest
    consumers = newest.consumers.get(request.group)
    if group is None and consumers is None:
        return
    retention_ms, now_ms = shard.settings.retention_ms, call.now.wall_ms
    offsets, staged = newest.offsets_of(request.group), newest.staged_of(request.group)
    if consumers is not None:
        over = _over_in_consumer_group(consumers, offsets, staged, now_ms, retention_ms)
    else:
        assert group is not None
        over = sorted(
            key
            for key, value in offsets.items()
            if key not in staged and _is_over(group, key[0], value, now_ms, retention_ms)
        )
    is_all = _remove(shard, request, over, ticket, call) and len(over) == len(offsets) and not staged
    shard.counts.expired_offsets += len(call.entries)
    if is_all and group is not None and group.is_idle and request.group in newest.groups:
        call.write(GroupLogEntry(GroupKey(request.group), None))
    if is_all and consumers is not None and not consumers.members:
        _remove_consumer_group(request.group, consumers, call)


def _over_in_consumer_group(
    consumers: ConsumerGroup, offsets: GroupOffsets, staged: GroupStaged, now_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """Return the partitions of a consumer group whose offsets expire: those of topics without a subscriber whose time
    since the commit is over."""
    subscribed = subscribed_topics(consumers)
    return sorted(
        key
        for key, value in offsets.items()
        if key not in staged
        and key[0] not in subscribed
        and _is_old(value, value.commit_timestamp, now_ms, retention_ms)
    )


def _is_over(group: ClassicGroup, topic: str, value: OffsetValue, now_ms: int, retention_ms: int) -> bool:
    is_unsubscribed = group.subscribed is not None and topic not in group.subscribed
    if not group.is_empty and not (group.state is GroupState.STABLE and is_unsubscribed):
        return False
    since_ms = value.commit_timestamp
    if group.is_empty and group.protocol_type is not None and group.state_timestamp != NO_TIMESTAMP:
        since_ms = group.state_timestamp
    return _is_old(value, since_ms, now_ms, retention_ms)


def _is_old(value: OffsetValue, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    """Return whether the time of an offset is over: the one that its commit asked for, otherwise `retention_ms`."""
    if value.expire_timestamp != NO_TIMESTAMP:
        return now_ms >= value.expire_timestamp
    return now_ms - since_ms >= retention_ms


def forget_topics(shard: Shard, request: TopicsGoneRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Remove the group's offsets of deleted topics, but not those of a new topic with the same name. A removal drops
    the partition's staged offsets too, so it waits while one of them is for the new topic. A share group forgets which
    states the topics had; the share coordinators delete these states themselves."""
    if request.group in shard.versions.newest.shares:
        forget_topics_of_shares(shard, request, call)
        return
    gone = sorted(
        (topic, partition)
        for (topic, partition), ids in shard.topic_ids_of(request.group).items()
        if all((topic, topic_id) in request.topics for topic_id in ids)
    )
    _remove(shard, request, gone, ticket, call)
    shard.counts.deleted_offsets += len(call.entries)
