"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets: administrators' requests about the start
offsets of a share group.

The group coordinator says which share partitions a group has, and permits a change only while the group is empty. The
share coordinators have the offsets. The lag of a share partition is the number of records from its start offset to the
high watermark of the partition that are not complete (KIP-1226).
Source: DescribeShareGroupOffsetsRequest 0 to 1, AlterShareGroupOffsetsRequest 0, DeleteShareGroupOffsetsRequest 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kraft.broker.api.groups.group_offsets import group_resource
from kraft.broker.api.groups.share_groups import NOT_SERVED, serves_share_groups
from kraft.broker.coordinator.share_group_states import ask_all
from kraft.broker.serving.gates import Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.broker.share_coordinator.records import NO_COUNT, NO_EPOCH, NO_OFFSET, ShareKey
from kraft.broker.share_coordinator.requests import (
    DeleteStateRequest,
    InitializeStateRequest,
    ReadSummaryRequest,
    StateReply,
)
from kraft.broker.share_group.requests import (
    PrepareAlterRequest,
    PrepareDeleteRequest,
    ShareDescribeReply,
    ShareDescribeRequest,
    ShareInitializedRequest,
    SharePreparedReply,
    StatesDeletedRequest,
)
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

DESCRIBE, ALTER, DELETE = (
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)
NO_LAG = -1
NOTHING_TO_DELETE = "There is no offset information to delete."

Place = tuple[UUID, int]


def _refusal(context: HandlerContext, session: Session, operation: Operation, group: str) -> ErrorCode:
    if not serves_share_groups(context):
        return ErrorCode.UNSUPPORTED_VERSION
    if not group:
        return ErrorCode.INVALID_GROUP_ID
    allowed = context.gates.authorize(session, operation, group_resource(group))
    return ErrorCode.NONE if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED


def _text(error: ErrorCode) -> str | None:
    return NOT_SERVED if error is ErrorCode.UNSUPPORTED_VERSION else None


def _told_id(context: HandlerContext, name: str, error: ErrorCode) -> UUID | None:
    """Return the id of a topic for a response in which the topic has this error. A client without permission must not
    learn whether there is such a topic."""
    topic = context.image.topics.get(name)
    return None if topic is None or error == ErrorCode.TOPIC_AUTHORIZATION_FAILED else topic.topic_id


# DescribeShareGroupOffsets


def handle_describe_share_group_offsets(context: HandlerContext, request: Request, session: Session) -> None:
    """Describe the start offsets of each group."""
    message = read(request)
    rows: list[Any] = [None] * len(message.groups)
    missing = len(rows)

    def described(number: int, row: Any) -> None:
        nonlocal missing
        rows[number] = row
        missing -= 1
        if not missing:
            context.finish(request, lambda: answer(request, respond(DESCRIBE, groups=rows)))

    if not rows:
        answer(request, respond(DESCRIBE, groups=()))
    for number, group in enumerate(message.groups):
        GroupOffsetsDescription(context, session, group, partial(described, number)).start()


class GroupOffsetsDescription:
    """The description of one group: the wanted share partitions, then their states, then the ends of their logs. A
    request that names no topics gets those that the client may describe, as in Kafka."""

    def __init__(self, context: HandlerContext, session: Session, group: Any, described: Callable[[Any], None]) -> None:
        self._context = context
        self._session = session
        self._group = group
        self._described = described
        self._replies: dict[Place, StateReply] = {}
        self._names: dict[UUID, str] = {}
        self._wanted: dict[Place, None] = {}
        self._rows: list[tuple[str, int, ErrorCode]] = []
        """Wanted partitions that cannot be described."""

    def start(self) -> None:
        error = _refusal(self._context, self._session, Operation.DESCRIBE, self._group.group_id)
        if error is not ErrorCode.NONE:
            self._described(self._row(error, _text(error), ()))
        else:
            self._context.groups.submit(ShareDescribeRequest(self._group.group_id), self._found_group)

    def _found_group(self, reply: ShareDescribeReply) -> None:
        if reply.error is not ErrorCode.NONE:
            self._described(self._row(reply.error, reply.message, ()))
            return
        if self._group.topics is None:
            for topic in reply.initialized:
                if self._may_describe(topic.topic):
                    self._want(topic.topic, topic.partitions)
        else:
            for topic in self._group.topics:
                self._want(topic.topic_name, topic.partitions)
        if not self._wanted:
            self._finish({})
        for place in self._wanted:
            request = ReadSummaryRequest(ShareKey(self._group.group_id, *place))
            self._context.ask_share_coordinator(request, partial(self._read, place))

    def _may_describe(self, name: str) -> bool:
        return self._context.gates.authorize_topic(self._session, Operation.DESCRIBE, name)

    def _want(self, name: str, partitions: tuple[int, ...]) -> None:
        topic = self._context.image.topics.get(name)
        allowed = self._may_describe(name)
        for index in partitions:
            if not allowed:
                self._rows.append((name, index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif topic is None or topic.find(index) is None:
                self._rows.append((name, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                self._names[topic.topic_id] = name
                self._wanted[topic.topic_id, index] = None

    def _read(self, place: Place, reply: StateReply) -> None:
        self._replies[place] = reply
        if len(self._replies) == len(self._wanted):
            self._context.end_offsets.ask(list(self._wanted), self._finish)

    def _finish(self, ends: dict[Place, int]) -> None:
        row = part(DESCRIBE, "DescribeShareGroupOffsetsResponsePartition")
        topic_part = part(DESCRIBE, "DescribeShareGroupOffsetsResponseTopic")
        by_topic: dict[str, list[Any]] = {}
        for name, index, error in self._rows:
            by_topic.setdefault(name, []).append(row(partition_index=index, start_offset=NO_OFFSET, error_code=error))
        for place in self._wanted:
            reply = self._replies[place]
            state = reply.state
            by_topic.setdefault(self._names[place[0]], []).append(
                row(
                    partition_index=place[1],
                    start_offset=NO_OFFSET if state is None else state.start_offset,
                    leader_epoch=NO_EPOCH if state is None else state.leader_epoch,
                    lag=lag_of(reply, ends.get(place)),
                    error_code=reply.error,
                )
            )
        rows = []
        for name, partitions in by_topic.items():
            topic_id = _told_id(self._context, name, partitions[0].error_code)
            rows.append(topic_part(topic_name=name, topic_id=topic_id, partitions=partitions))
        self._described(self._row(ErrorCode.NONE, None, rows))

    def _row(self, error: ErrorCode, message: str | None, topics: Any) -> Any:
        make = part(DESCRIBE, "DescribeShareGroupOffsetsResponseGroup")
        return make(group_id=self._group.group_id, topics=topics, error_code=error, error_message=message)


def lag_of(reply: StateReply, end_offset: int | None) -> int:
    """Return the number of records that are not complete; -1 if it is not known."""
    state = reply.state
    if state is None or end_offset is None or state.start_offset == NO_OFFSET:
        return NO_LAG
    if state.delivery_complete_count == NO_COUNT:
        return NO_LAG
    return max(end_offset - state.start_offset - state.delivery_complete_count, 0)


# AlterShareGroupOffsets


def handle_alter_share_group_offsets(context: HandlerContext, request: Request, session: Session) -> None:
    """Set the start offsets of an empty group. The states of the partitions begin again at these offsets."""
    message = read(request)
    group = message.group_id
    errors: dict[tuple[str, int], ErrorCode] = {}
    offsets: dict[Place, int] = {}
    names: dict[Place, tuple[str, int]] = {}
    for topic in message.topics:
        known = context.image.topics.get(topic.topic_name)
        allowed = context.gates.authorize_topic(session, Operation.READ, topic.topic_name)
        for row in topic.partitions:
            name = (topic.topic_name, row.partition_index)
            if not allowed:
                errors[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None or known.find(row.partition_index) is None:
                errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif row.start_offset < 0:
                errors[name] = ErrorCode.INVALID_REQUEST
            else:
                place = (known.topic_id, row.partition_index)
                offsets[place], names[place] = row.start_offset, name

    def reply(error: ErrorCode = ErrorCode.NONE, text: str | None = None) -> None:
        context.finish(request, lambda: answer(request, _altered(context, message, errors, error, text)))

    def altered(state_epoch: int, found: dict[Place, ErrorCode]) -> None:
        errors.update((names[place], error) for place, error in found.items())
        done = tuple(place for place, error in found.items() if error is ErrorCode.NONE)
        context.groups.submit(ShareInitializedRequest(group, done, state_epoch), written)

    def written(last: SharePreparedReply) -> None:
        reply(last.error, last.message)

    def prepared(answered: SharePreparedReply) -> None:
        if answered.error is not ErrorCode.NONE:
            reply(answered.error, answered.message)
            return
        states = {
            place: InitializeStateRequest(ShareKey(group, *place), answered.state_epoch, offset)
            for place, offset in offsets.items()
        }
        ask_all(dict(states), context.ask_share_coordinator, partial(altered, answered.state_epoch))

    error = _refusal(context, session, Operation.READ, group)
    if error is not ErrorCode.NONE:
        reply(error, _text(error))
    elif not offsets:
        reply()
    else:
        places = tuple((topic_id, names[topic_id, index][0], index) for topic_id, index in offsets)
        context.groups.submit(PrepareAlterRequest(group, places), prepared)


def _altered(
    context: HandlerContext,
    message: Any,
    errors: dict[tuple[str, int], ErrorCode],
    error: ErrorCode,
    text: str | None,
) -> Any:
    if error is not ErrorCode.NONE:
        return respond(ALTER, error_code=error, error_message=text)
    topic_part = part(ALTER, "AlterShareGroupOffsetsResponseTopic")
    row = part(ALTER, "AlterShareGroupOffsetsResponsePartition")
    responses = []
    for topic in message.topics:
        partitions = [
            row(partition_index=one.partition_index, error_code=errors[topic.topic_name, one.partition_index])
            for one in topic.partitions
        ]
        topic_id = _told_id(context, topic.topic_name, partitions[0].error_code) if partitions else None
        responses.append(topic_part(topic_name=topic.topic_name, topic_id=topic_id, partitions=partitions))
    return respond(ALTER, responses=responses)


# DeleteShareGroupOffsets


def handle_delete_share_group_offsets(context: HandlerContext, request: Request, session: Session) -> None:
    """Delete the states of an empty group's share partitions in some topics."""
    message = read(request)
    group = message.group_id
    errors: dict[str, ErrorCode] = {}
    texts: dict[str, str] = {}
    topic_ids: dict[UUID, str] = {}
    for topic in message.topics:
        known = context.image.topics.get(topic.topic_name)
        if not context.gates.authorize_topic(session, Operation.READ, topic.topic_name):
            errors[topic.topic_name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif known is None:
            errors[topic.topic_name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            topic_ids[known.topic_id] = topic.topic_name

    def reply(error: ErrorCode = ErrorCode.NONE, text: str | None = None) -> None:
        context.finish(request, lambda: answer(request, _deleted(context, message, errors, texts, error, text)))

    def deleted(found: dict[Place, ErrorCode]) -> None:
        for (topic_id, _), error in found.items():
            if error is not ErrorCode.NONE:
                errors[topic_ids[topic_id]] = error
        done = frozenset(topic_id for topic_id, name in topic_ids.items() if name not in errors)
        context.groups.submit(StatesDeletedRequest(group, done), written)

    def written(last: SharePreparedReply) -> None:
        reply(last.error, last.message)

    def prepared(answered: SharePreparedReply) -> None:
        if answered.error is not ErrorCode.NONE:
            reply(answered.error, answered.message)
            return
        known = {topic_id for topic_id, _ in answered.partitions}
        for name in (name for topic_id, name in topic_ids.items() if topic_id not in known):
            errors[name], texts[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING_TO_DELETE
        if not known:
            reply()
        else:
            epoch = answered.state_epoch
            states = {place: DeleteStateRequest(ShareKey(group, *place), epoch) for place in answered.partitions}
            ask_all(dict(states), context.ask_share_coordinator, deleted)

    error = _refusal(context, session, Operation.DELETE, group)
    if error is not ErrorCode.NONE:
        reply(error, _text(error))
    elif not topic_ids:
        reply()
    else:
        context.groups.submit(PrepareDeleteRequest(group, frozenset(topic_ids)), prepared)


def _deleted(
    context: HandlerContext,
    message: Any,
    errors: dict[str, ErrorCode],
    texts: dict[str, str],
    error: ErrorCode,
    text: str | None,
) -> Any:
    if error is not ErrorCode.NONE:
        return respond(DELETE, error_code=error, error_message=text)
    row = part(DELETE, "DeleteShareGroupOffsetsResponseTopic")
    responses = []
    for topic in message.topics:
        topic_error = errors.get(topic.topic_name, ErrorCode.NONE)
        responses.append(
            row(
                topic_name=topic.topic_name,
                topic_id=_told_id(context, topic.topic_name, topic_error),
                error_code=topic_error,
                error_message=texts.get(topic.topic_name),
            )
        )
    return respond(DELETE, responses=responses)
