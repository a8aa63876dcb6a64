"""Which clients may commit and fetch the offsets of a consumer group.

| group or member | epoch of the request | verdict |
|---|---|---|
| no members | negative | accepted: no group management |
| unknown member | any | UNKNOWN_MEMBER_ID |
| known member | the member's | accepted |
| known member | newer than the member's | STALE_MEMBER_EPOCH |
| known member | older than the member's | accepted for partitions held since that epoch (KIP-1251) |
| member with the classic protocol | not the member's | ILLEGAL_GENERATION |

Source: OffsetCommitRequest 9, OffsetFetchRequest 9, KIP-848, KIP-1251, Kafka's ConsumerGroup.
"""

from __future__ import annotations

from uuid import UUID

from kraft.broker.consumer_group.records import CurrentMemberValue
from kraft.broker.consumer_group.state import ConsumerGroup
from kraft.broker.consumer_group.topics import TopicsView
from kraft.broker.group.requests import (
    NO_GENERATION,
    CommitRequest,
    FetchOffsetsRequest,
    OffsetToCommit,
    TxnCommitRequest,
)
from kraft.wire.error_codes import ErrorCode


def consumer_commit_error(
    group: ConsumerGroup, request: CommitRequest | TxnCommitRequest, row: OffsetToCommit, topics: TopicsView
) -> ErrorCode:
    """Return the error if this offset may not be committed to the group."""
    is_transactional = isinstance(request, TxnCommitRequest)
    if request.generation < 0 and not group.members:
        return ErrorCode.NONE
    if is_transactional and _names_no_member(request):
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    uses_classic = member.classic is not None
    if isinstance(request, CommitRequest) and not uses_classic and not request.knows_missing_groups:
        return ErrorCode.UNSUPPORTED_VERSION
    current = group.assignment_of(request.member_id)
    if request.generation == current.epoch:
        return ErrorCode.NONE
    if uses_classic:
        return ErrorCode.ILLEGAL_GENERATION
    if 0 <= request.generation < current.epoch and _has_held(current, request.generation, row, topics):
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if is_transactional else ErrorCode.STALE_MEMBER_EPOCH


def _names_no_member(request: CommitRequest | TxnCommitRequest) -> bool:
    return request.generation == NO_GENERATION and not request.member_id and request.instance_id is None


def _has_held(current: CurrentMemberValue, epoch: int, row: OffsetToCommit, topics: TopicsView) -> bool:
    """Return whether the member has held the partition without a break since this epoch or an earlier one."""
    topic_id = row.topic_id or _id_of(row.topic, topics)
    if topic_id is None:
        return False
    return any(
        held.get(topic_id, {}).get(row.partition, epoch + 1) <= epoch for held in (current.assigned, current.revoking)
    )


def _id_of(name: str, topics: TopicsView) -> UUID | None:
    topic = topics.get(name)
    return None if topic is None else topic.topic_id


def consumer_fetch_error(group: ConsumerGroup | None, request: FetchOffsetsRequest) -> ErrorCode:
    """Return the error if the client may not fetch the offsets of this group. A client that names no member may."""
    if group is None or (request.member_id is None and request.member_epoch < 0):
        return ErrorCode.NONE
    member = group.members.get(request.member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if request.member_epoch == group.assignment_of(request.member_id or "").epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
