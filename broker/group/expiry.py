"""Removal of expired offsets, of offsets of deleted topics, and of whole groups.

Invariants: removals of a group that fit into one batch are one atomic write, and the group's own record goes last, with
its last offset. More removals go batch after batch. Each batch waits until the one before is committed and looks at the
group again, since members may commit in between. Offsets of a group in a rebalance stay (KAFKA-13636).
Source: KIP-211, Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraft.broker.group.classic_group import ClassicGroup, GroupState
from kraft.broker.group.durable import TopicPartition
from kraft.broker.group.rebalance import dismiss
from kraft.broker.group.records import NO_TIMESTAMP, Entry, GroupKey, OffsetKey, OffsetValue
from kraft.broker.group.requests import DeleteReply, DeleteRequest, ExpireRequest, Ticket, TopicsGoneRequest
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import Answer, GoOn, Turn
from kraft.wire.error_codes import ErrorCode

REMOVAL_BYTES = 30
"""A record that removes an offset, without the names in its key."""


def delete_group(shard: Shard, request: DeleteRequest, ticket: Ticket, turn: Turn) -> None:
    """Forget a group that is empty, with all its offsets and the member ids that were given out."""
    group = shard.groups.get(request.group)
    if group is None or not group.is_empty:
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else ErrorCode.NON_EMPTY_GROUP
        turn.reply(ticket, DeleteReply(error))
        return
    is_all = _remove(shard, request, sorted(shard.versions.newest.offsets_of(request.group)), ticket, turn)
    shard.counts.deleted_offsets += len(turn.entries)
    if is_all:
        for member_id in list(group.pending_join):
            dismiss(shard, group, member_id, turn, ErrorCode.UNKNOWN_MEMBER_ID)
        turn.write(Entry(GroupKey(request.group), None))
        turn.then(Answer(ticket, request, DeleteReply(ErrorCode.NONE)))


def _remove(
    shard: Shard,
    request: DeleteRequest | ExpireRequest | TopicsGoneRequest,
    offsets: Iterable[TopicPartition],
    ticket: Ticket,
    turn: Turn,
) -> bool:
    """Forget these offsets of the group, at least one. False if the request must go on with those for which the batch
    has no room; the group's own record always has."""
    name_bytes = len(request.group.encode()) + REMOVAL_BYTES
    room = shard.settings.removal_bytes_max - name_bytes
    for topic, partition in offsets:
        room -= name_bytes + len(topic)
        if room < 0 and turn.entries:
            turn.then(GoOn(ticket, request))
            return False
        turn.write(Entry(OffsetKey(request.group, topic, partition), None))
    return True


def expire(shard: Shard, request: ExpireRequest, ticket: Ticket, turn: Turn) -> None:
    """Forget the group's offsets that are past their time, and the group if nothing is left of it."""
    group = shard.groups.get(request.group)
    if group is None:
        return
    retention_ms, now_ms = shard.settings.retention_ms, turn.now.wall_ms
    offsets = shard.versions.newest.offsets_of(request.group)
    over = sorted(key for key, value in offsets.items() if _is_over(group, key[0], value, now_ms, retention_ms))
    is_all = _remove(shard, request, over, ticket, turn) and len(over) == len(offsets)
    shard.counts.expired_offsets += len(turn.entries)
    if is_all and group.is_idle and request.group in shard.versions.newest.groups:
        turn.write(Entry(GroupKey(request.group), None))


def _is_over(group: ClassicGroup, topic: str, value: OffsetValue, now_ms: int, retention_ms: int) -> bool:
    is_unsubscribed = group.subscribed is not None and topic not in group.subscribed
    if not group.is_empty and not (group.state is GroupState.STABLE and is_unsubscribed):
        return False
    if value.expire_timestamp != NO_TIMESTAMP:
        return now_ms >= value.expire_timestamp
    since_ms = value.commit_timestamp
    if group.is_empty and group.protocol_type is not None and group.state_timestamp != NO_TIMESTAMP:
        since_ms = group.state_timestamp
    return now_ms - since_ms >= retention_ms


def forget_topics(shard: Shard, request: TopicsGoneRequest, ticket: Ticket, turn: Turn) -> None:
    """Forget the group's offsets of topics that were deleted; a topic that was created again under the name is not
    one of them."""
    offsets = shard.versions.newest.offsets_of(request.group)
    gone = sorted(key for key, value in offsets.items() if (key[0], value.topic_id) in request.topics)
    _remove(shard, request, gone, ticket, turn)
    shard.counts.deleted_offsets += len(turn.entries)
