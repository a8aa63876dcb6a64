"""Handlers of ShareFetch and ShareAcknowledge: find the share session, acknowledge, then fetch.

Source: ShareFetchRequest 1 to 2, ShareAcknowledgeRequest 1 to 2, KIP-932, KIP-1206, KIP-1222, Kafka's KafkaApis and
SharePartitionManager.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from kraft.broker.api.groups.share_groups import serves_share_groups
from kraft.broker.api.share_fetch.pending_share_fetch import (
    LeaderHints,
    ShareFetchLimits,
    ShareFetchOperation,
    share_fetch_response,
)
from kraft.broker.api.share_fetch.share_acknowledgements import (
    AcknowledgeErrors,
    Acknowledgements,
    acknowledge_all,
    acknowledgements_of,
)
from kraft.broker.api.share_fetch.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    ShareMember,
    ShareSession,
    TopicIdPartition,
)
from kraft.broker.serving.gates import Operation, Resource, ResourceType
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

STRICT_MODE = 1
"""Acquire mode with which no more records than requested are acquired."""
MS_PER_SECOND = 1_000


def handle_share_fetch(context: HandlerContext, request: Request, session: Session) -> None:
    """Open, continue or end a share session, acknowledge what the request acknowledges, then acquire records."""
    message = read(request)
    member = ShareMember(message.group_id or "", message.member_id or "")
    wanted = acknowledgements_of(message.topics)
    limits = _limits(context, message)
    error = _refusal(context, session, member)
    if message.is_renew_ack and (limits.max_wait_ms or message.min_bytes or message.max_bytes or message.max_records):
        error = error or ErrorCode.INVALID_REQUEST
    kept = error or _session(context, request, member, message, wanted)
    if isinstance(kept, ErrorCode):
        answer(request, respond(ApiKey.SHARE_FETCH, error_code=kept))
        return
    may_renew = message.is_renew_ack and context.shares.settings_of(member.group).may_renew
    is_final = message.share_session_epoch == FINAL_EPOCH

    def acknowledged(errors: AcknowledgeErrors) -> None:
        if is_final:
            _close(context, member, kept)
            lock_ms = context.shares.settings_of(member.group).limits.lock_duration_ms
            answer(request, share_fetch_response(context, session, {}, errors, lock_ms=lock_ms))
        else:
            ShareFetchOperation(context, request, session, kept, limits, errors).start()

    then = partial(context.finish, request, acknowledged)
    acknowledge_all(context, session, member, wanted, may_renew=may_renew, then=then)


def _close(context: HandlerContext, member: ShareMember, kept: ShareSession) -> None:
    """Close a session, unless the member has opened another one meanwhile."""
    if kept.is_open:
        context.shares.close_session(member)


def _limits(context: HandlerContext, message: Any) -> ShareFetchLimits:
    max_wait_ms = int(message.max_wait.total_seconds() * MS_PER_SECOND)
    bytes_max = min(message.max_bytes, context.config.integer("fetch.max.bytes"))
    return ShareFetchLimits(
        max_wait_ms,
        min(message.min_bytes, bytes_max),
        bytes_max,
        message.max_records,
        message.batch_size,
        message.share_acquire_mode == STRICT_MODE,
    )


def _refusal(context: HandlerContext, session: Session, member: ShareMember) -> ErrorCode:
    """Return why the client may not use the group; NONE if it may."""
    if not serves_share_groups(context):
        return ErrorCode.UNSUPPORTED_VERSION
    if not member.group or not member.member:
        return ErrorCode.INVALID_REQUEST
    allowed = context.gates.authorize(session, Operation.READ, Resource(ResourceType.GROUP, member.group))
    return ErrorCode.NONE if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED


def _session(
    context: HandlerContext, request: Request, member: ShareMember, message: Any, wanted: Acknowledgements
) -> ShareSession | ErrorCode:
    """Return the session of the request, with the partitions that the request adds and forgets. A first request has no
    acknowledgements, because the member holds nothing yet. A long request may be handled after its connection has
    ended; it opens no session, because nothing would close that one."""
    sessions, epoch = context.shares.sessions, message.share_session_epoch
    if request.connection.is_closed:
        return ErrorCode.SHARE_SESSION_NOT_FOUND
    if epoch == INITIAL_EPOCH:
        if wanted:
            return ErrorCode.INVALID_REQUEST
        kept = sessions.open(member, request.connection.number)
    else:
        kept = sessions.resume(member, epoch)
    if not isinstance(kept, ErrorCode):
        kept.change(_partitions(message.topics), _forgotten(message.forgotten_topics_data))
    return kept


def _partitions(topics: Any) -> Iterator[TopicIdPartition]:
    return ((topic.topic_id, row.partition_index) for topic in topics if topic.topic_id for row in topic.partitions)


def _forgotten(topics: Any) -> Iterator[TopicIdPartition]:
    return ((topic.topic_id, index) for topic in topics if topic.topic_id for index in topic.partitions)


def handle_share_acknowledge(context: HandlerContext, request: Request, session: Session) -> None:
    """Acknowledge records within a share session. The final request ends the session."""
    message = read(request)
    member = ShareMember(message.group_id or "", message.member_id or "")
    epoch = message.share_session_epoch
    error = _refusal(context, session, member)
    if error is ErrorCode.NONE and epoch == INITIAL_EPOCH:
        error = ErrorCode.INVALID_SHARE_SESSION_EPOCH
    kept = error or context.shares.sessions.resume(member, epoch)
    if isinstance(kept, ErrorCode):
        answer(request, respond(ApiKey.SHARE_ACKNOWLEDGE, error_code=kept))
        return
    may_renew = message.is_renew_ack and context.shares.settings_of(member.group).may_renew

    def acknowledged(errors: AcknowledgeErrors) -> None:
        if epoch == FINAL_EPOCH:
            _close(context, member, kept)
        answer(request, _acknowledge_response(context, session, member, errors))

    then = partial(context.finish, request, acknowledged)
    wanted = acknowledgements_of(message.topics)
    acknowledge_all(context, session, member, wanted, may_renew=may_renew, then=then)


def _acknowledge_response(
    context: HandlerContext, session: Session, member: ShareMember, errors: AcknowledgeErrors
) -> Any:
    key = ApiKey.SHARE_ACKNOWLEDGE
    topic_part, row = part(key, "ShareAcknowledgeTopicResponse"), part(key, "PartitionData")
    leader_part, hints = part(key, "LeaderIdAndEpoch"), LeaderHints(context, session)
    by_topic: dict[Any, list[Any]] = {}
    for (topic_id, index), error in errors.items():
        hint = hints.of(topic_id, index, error)
        leader = leader_part(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
        by_topic.setdefault(topic_id, []).append(row(partition_index=index, error_code=error, current_leader=leader))
    fields: dict[str, Any] = {
        "responses": [topic_part(topic_id=topic_id, partitions=rows) for topic_id, rows in by_topic.items()],
        "node_endpoints": hints.endpoints(part(key, "NodeEndpoint")),
    }
    limits = context.shares.settings_of(member.group).limits
    return respond(key, acquisition_lock_timeout=timedelta(milliseconds=limits.lock_duration_ms), **fields)
