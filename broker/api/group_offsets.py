"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete: authorize group and topics, call the coordinator, answer.

A topic that the client may not read gets TOPIC_AUTHORIZATION_FAILED, whether or not the topic exists. The response to a
request for all topics omits topics that the client may not describe. Offsets of a deleted topic are not returned for a
new topic with the same name (KAFKA-19154). From version 10 on, requests name topics by id. A topic id that this broker
does not know gets UNKNOWN_TOPIC_ID.
Source: OffsetCommitRequest 2 to 10, TxnOffsetCommitRequest 0 to 5, OffsetFetchRequest 1 to 10, OffsetDeleteRequest 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from kraft.broker.api.transactions import transaction_resource
from kraft.broker.coordinator.transactional_commits import CommitClient
from kraft.broker.group.requests import (
    NO_OFFSET,
    CommitReply,
    CommitRequest,
    FetchedOffset,
    FetchOffsetsReply,
    FetchOffsetsRequest,
    OffsetDeleteReply,
    OffsetDeleteRequest,
    OffsetToCommit,
    PartitionError,
    TxnCommitRequest,
)
from kraft.broker.serving.gates import Operation, Resource, ResourceType
from kraft.broker.serving.request_versions import answer, kind, part, read, respond
from kraft.broker.serving.session import Session
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages import milliseconds
from kraft.wire.messages.compiled_readers import compile_reader
from kraft.wire.messages.quirks import MessageDirection
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

COMMITS_WITH_RETENTION = range(2, 5)
FIRST_COMMIT_WITH_MISSING_GROUPS = 9
FIRST_TXN_COMMIT_WITH_ABORTABLE = 4
FIRST_TXN_COMMIT_THAT_ADDS = 5
FIRST_FETCH_WITH_GROUP_ERROR = 2
FIRST_FETCH_WITH_TOPIC_IDS = 10


def group_resource(group: str) -> Resource:
    return Resource(ResourceType.GROUP, group)


def _name_of(context: HandlerContext, topic: Any) -> str | None:
    """Return the name of a topic in a request; None for an id that this broker does not know."""
    return topic.name if topic.name is not None else context.image.topics.name_of(topic.topic_id)


# OffsetCommit

NamedTopics = Sequence[tuple[str | None, Any]]
"""The topics of a request as (name, topic) pairs; the name is None for an unknown topic id."""

RowKey = tuple[str | None, int]


def handle_offset_commit(context: HandlerContext, request: Request, session: Session) -> None:
    """Commit the accepted offsets, and answer when all of them are committed."""
    message, version = read(request), request.api_version
    topics = [(_name_of(context, topic), topic) for topic in message.topics]
    accepted, refused = _sorted_out(context, session, topics)
    commit = CommitRequest(
        group=message.group_id,
        generation=message.generation_id_or_member_epoch,
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        offsets=accepted,
        retention_ms=_retention_ms(request) if version in COMMITS_WITH_RETENTION else -1,
        knows_missing_groups=version >= FIRST_COMMIT_WITH_MISSING_GROUPS,
    )

    def reply(answered: CommitReply) -> None:
        errors: dict[RowKey, ErrorCode] = {(row.topic, row.partition): row.error for row in answered.rows}
        errors |= refused
        answer(request, respond(ApiKey.OFFSET_COMMIT, topics=_commit_topics(topics, lambda key: errors[key])))

    if not context.gates.authorize(session, Operation.READ, group_resource(message.group_id)):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        answer(request, respond(ApiKey.OFFSET_COMMIT, topics=_commit_topics(topics, lambda key: error)))
    elif accepted:
        context.groups.counts.commits += len(accepted)
        context.groups.submit(commit, partial(context.finish, request, reply))
    else:
        reply(CommitReply(()))


def _sorted_out(
    context: HandlerContext, session: Session, topics: NamedTopics
) -> tuple[tuple[OffsetToCommit, ...], dict[RowKey, ErrorCode]]:
    """Return the offsets that may be committed, and the errors of all other offsets in the request."""
    accepted: list[OffsetToCommit] = []
    refused: dict[RowKey, ErrorCode] = {}
    for name, topic in topics:
        if name is None:
            refused.update({(None, row.partition_index): ErrorCode.UNKNOWN_TOPIC_ID for row in topic.partitions})
            continue
        may_read = context.gates.authorize_topic(session, Operation.READ, name)
        image = context.image.topics.get(name)
        for row in topic.partitions:
            index = row.partition_index
            if not may_read:
                refused[name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif image is None or image.find(index) is None:
                refused[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                metadata = row.committed_metadata or ""
                accepted.append(
                    OffsetToCommit(
                        name, index, row.committed_offset, row.committed_leader_epoch, metadata, image.topic_id
                    )
                )
    return tuple(accepted), refused


def _commit_topics(topics: NamedTopics, error_of: Callable[[RowKey], ErrorCode]) -> list[Any]:
    topic_class = part(ApiKey.OFFSET_COMMIT, "OffsetCommitResponseTopic")
    row_class = kind(ApiKey.OFFSET_COMMIT, "OffsetCommitResponsePartition")
    return [
        topic_class(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                row_class(partition_index=row.partition_index, error_code=error_of((name, row.partition_index)))
                for row in topic.partitions
            ],
        )
        for name, topic in topics
    ]


def _retention_ms(request: Request) -> int:
    """Return the retention time that a client may request in versions 2 to 4. Newer message classes lack the field, so
    the request is decoded with the old class."""
    old = messages.versioned_class(ApiKey.OFFSET_COMMIT, request.api_version, MessageDirection.REQUEST)
    asked, _ = compile_reader(old, old)(request.body, 0)
    return milliseconds(asked.retention_time)


# TxnOffsetCommit


def handle_txn_offset_commit(context: HandlerContext, request: Request, session: Session) -> None:
    """Stage the accepted offsets for a transaction, and answer when all of them are committed to the log."""
    message, version = read(request), request.api_version
    accepted, refused = _sorted_out(context, session, [(topic.name, topic) for topic in message.topics])
    commit = TxnCommitRequest(
        group=message.group_id,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        generation=message.generation_id,
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        offsets=accepted,
    )

    def reply(answered: CommitReply) -> None:
        errors: dict[RowKey, ErrorCode] = {(row.topic, row.partition): row.error for row in answered.rows}
        errors |= refused
        answer(request, _staged(message, lambda key: errors[key]))

    if not context.gates.authorize(session, Operation.WRITE, transaction_resource(message.transactional_id)):
        answer(request, _staged(message, lambda key: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    elif not context.gates.authorize(session, Operation.READ, group_resource(message.group_id)):
        answer(request, _staged(message, lambda key: ErrorCode.GROUP_AUTHORIZATION_FAILED))
    elif accepted:
        context.groups.counts.commits += len(accepted)
        client = CommitClient(version >= FIRST_TXN_COMMIT_THAT_ADDS, version >= FIRST_TXN_COMMIT_WITH_ABORTABLE)
        ticket = partial(context.finish, request, reply)
        context.transactional_commits.submit(message.transactional_id, commit, client, ticket)
    else:
        reply(CommitReply(()))


def _staged(message: Any, error_of: Callable[[RowKey], ErrorCode]) -> Any:
    topic_class = part(ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommitResponseTopic")
    row_class = kind(ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommitResponsePartition")
    topics = [
        topic_class(
            name=topic.name,
            partitions=[
                row_class(partition_index=row.partition_index, error_code=error_of((topic.name, row.partition_index)))
                for row in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return respond(ApiKey.TXN_OFFSET_COMMIT, topics=topics)


# OffsetFetch


class _RequestedTopic(NamedTuple):
    """A topic of an OffsetFetch response. `name` is None if the request has an unknown id, `topic_id` is None if the
    request has an unknown name."""

    name: str | None
    topic_id: UUID | None
    partitions: Sequence[int]


def handle_offset_fetch(context: HandlerContext, request: Request, session: Session) -> None:
    """Fetch the offsets of each group from the group's own partition of the offsets topic. The response is sent when
    the results of all groups have arrived."""
    message = read(request)
    rows: list[Any] = [None] * len(message.groups)
    missing = len(rows)

    def finish() -> None:
        answer(request, respond(ApiKey.OFFSET_FETCH, groups=rows))

    def ask(number: int, group: Any) -> None:
        wanted = None if group.topics is None else [_wanted(context, topic) for topic in group.topics]

        def reply(answered: FetchOffsetsReply) -> None:
            nonlocal missing
            rows[number] = _fetched_group(context, session, request.api_version, group.group_id, wanted, answered)
            missing -= 1
            if not missing:
                finish()

        if not context.gates.authorize(session, Operation.DESCRIBE, group_resource(group.group_id)):
            reply(FetchOffsetsReply(ErrorCode.GROUP_AUTHORIZATION_FAILED))
            return
        partitions = None
        if wanted is not None:
            partitions = [(one.name, index) for one in wanted if one.name is not None for index in one.partitions]
        fetch = FetchOffsetsRequest(
            group.group_id, partitions, message.require_stable, group.member_id, group.member_epoch
        )
        context.groups.submit(fetch, partial(context.finish, request, reply))

    if not rows:
        finish()
    for number, group in enumerate(message.groups):
        ask(number, group)


def _wanted(context: HandlerContext, topic: Any) -> _RequestedTopic:
    name = _name_of(context, topic)
    image = context.image.topics.get(name) if name is not None else None
    topic_id = topic.topic_id if image is None else image.topic_id
    return _RequestedTopic(name, topic_id, topic.partition_indexes)


def _all_topics(context: HandlerContext, answered: FetchOffsetsReply, *, with_ids: bool) -> list[_RequestedTopic]:
    """Return every topic for which the group has an offset. If the response names topics by id, omit deleted topics."""
    found: dict[str, list[int]] = {}
    for row in answered.rows:
        found.setdefault(row.topic, []).append(row.partition)
    images = {name: context.image.topics.get(name) for name in found}
    return [
        _RequestedTopic(name, None if image is None else image.topic_id, found[name])
        for name, image in images.items()
        if image is not None or not with_ids
    ]


def _fetched_group(
    context: HandlerContext,
    session: Session,
    version: int,
    group: str,
    wanted: list[_RequestedTopic] | None,
    answered: FetchOffsetsReply,
) -> Any:
    group_class = part(ApiKey.OFFSET_FETCH, "OffsetFetchResponseGroup")
    is_all = wanted is None
    if answered.error is not ErrorCode.NONE and (version >= FIRST_FETCH_WITH_GROUP_ERROR or is_all):
        return group_class(group_id=group, error_code=answered.error)
    if wanted is None:
        wanted = _all_topics(context, answered, with_ids=version >= FIRST_FETCH_WITH_TOPIC_IDS)
    found = {(row.topic, row.partition): row for row in answered.rows}
    topic_class = kind(ApiKey.OFFSET_FETCH, "OffsetFetchResponseTopics")
    topics = []
    for one in wanted:
        error = answered.error
        if one.name is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif not context.gates.authorize_topic(session, Operation.DESCRIBE, one.name):
            if is_all:
                continue
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        rows = tuple(_fetched(one, found, error))
        topics.append(topic_class(name=one.name, topic_id=one.topic_id, partitions=rows))
    return group_class(group_id=group, topics=topics)


def _fetched(wanted: _RequestedTopic, found: dict[tuple[str, int], FetchedOffset], error: ErrorCode) -> Iterable[Any]:
    row_class = kind(ApiKey.OFFSET_FETCH, "OffsetFetchResponsePartitions")
    for index in wanted.partitions:
        name = wanted.name or ""
        row = found.get((name, index))
        if row is not None and error is ErrorCode.NONE and row.error is not ErrorCode.NONE:
            yield row_class(
                partition_index=index,
                committed_offset=NO_OFFSET,
                committed_leader_epoch=-1,
                metadata="",
                error_code=row.error,
            )
            continue
        is_reported = row is not None and (wanted.topic_id is None or row.topic_id in (None, wanted.topic_id))
        if row is None or not is_reported or error is not ErrorCode.NONE:
            row = FetchedOffset(name, index)
        yield row_class(
            partition_index=index,
            committed_offset=row.offset,
            committed_leader_epoch=row.leader_epoch,
            metadata=row.metadata,
            error_code=error,
        )


# OffsetDelete


def handle_offset_delete(context: HandlerContext, request: Request, session: Session) -> None:
    """Delete offsets. The client needs DELETE on the group and READ on each topic."""
    message = read(request)
    refused: list[PartitionError] = []
    accepted: list[tuple[str, int]] = []
    for topic in message.topics:
        may_read = context.gates.authorize_topic(session, Operation.READ, topic.name)
        image = context.image.topics.get(topic.name)
        for row in topic.partitions:
            if not may_read:
                refused.append(PartitionError(topic.name, row.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif image is None or image.find(row.partition_index) is None:
                refused.append(PartitionError(topic.name, row.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            else:
                accepted.append((topic.name, row.partition_index))

    def reply(answered: OffsetDeleteReply) -> None:
        topics = []
        if answered.error is ErrorCode.NONE:
            topics = _deleted_topics([*answered.rows, *refused])
        answer(request, respond(ApiKey.OFFSET_DELETE, error_code=answered.error, topics=topics))

    if context.gates.authorize(session, Operation.DELETE, group_resource(message.group_id)):
        deletion = OffsetDeleteRequest(message.group_id, tuple(accepted))
        context.groups.submit(deletion, partial(context.finish, request, reply))
    else:
        reply(OffsetDeleteReply(ErrorCode.GROUP_AUTHORIZATION_FAILED))


def _deleted_topics(rows: list[PartitionError]) -> list[Any]:
    topic_class = part(ApiKey.OFFSET_DELETE, "OffsetDeleteResponseTopic")
    row_class = part(ApiKey.OFFSET_DELETE, "OffsetDeleteResponsePartition")
    by_topic: dict[str, list[Any]] = {}
    for row in rows:
        by_topic.setdefault(row.topic, []).append(row_class(partition_index=row.partition, error_code=row.error))
    return [topic_class(name=topic, partitions=found) for topic, found in by_topic.items()]
