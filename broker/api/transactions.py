"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn: authorize, call the transaction coordinator, answer.

AddPartitionsToTxn up to version 3 comes from producers and names one transaction. From version 4 on it comes from
brokers and may name several transactions. It then adds partitions, or only verifies that they are part of a
transaction. If one partition of a transaction is rejected, none of them is added. Clients that do not know
PRODUCER_FENCED get INVALID_PRODUCER_EPOCH.
Source: AddPartitionsToTxnRequest 0 to 5, AddOffsetsToTxnRequest 0 to 4, EndTxnRequest 0 to 5, KIP-588, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kraft.broker.coordinator.internal_topics import OFFSETS_TOPIC
from kraft.broker.partition.partition import INTERNAL_TOPICS
from kraft.broker.serving.gates import Operation, Resource, ResourceType
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.broker.shard.placement import partition_of
from kraft.broker.txn.records import TopicPartition
from kraft.broker.txn.requests import AddRequest, EndReply, EndRequest, ErrorReply, VerifyReply, VerifyRequest
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

FIRST_WITH_PRODUCER_FENCED = 2
"""First version of the three APIs whose clients know PRODUCER_FENCED."""
FIRST_ADD_OF_BROKERS = 4
FIRST_ADD_WITH_ABORTABLE = 5
FIRST_END_THAT_BUMPS = 5

PartitionErrors = Mapping[TopicPartition, ErrorCode]


def transaction_resource(transactional_id: str) -> Resource:
    return Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)


def error_for(version: int, first_with_fenced: int, error: ErrorCode) -> ErrorCode:
    """Return the error code that clients of this version know for this error."""
    is_unknown = version < first_with_fenced and error is ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error


# AddPartitionsToTxn


def handle_add_partitions_to_txn(context: HandlerContext, request: Request, session: Session) -> None:
    """Add or verify the partitions of each transaction, and answer when the results of all transactions are there."""
    message = read(request)
    is_of_brokers = request.api_version >= FIRST_ADD_OF_BROKERS
    if is_of_brokers and not context.gates.authorize_cluster(session, Operation.CLUSTER_ACTION):
        refused = respond(ApiKey.ADD_PARTITIONS_TO_TXN, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        answer(request, refused)
        return
    transactions = message.transactions
    results: list[Any] = [None] * len(transactions)
    missing = len(results)

    def finish(number: int, errors: PartitionErrors) -> None:
        nonlocal missing
        results[number] = _added(transactions[number].transactional_id, errors)
        missing -= 1
        if not missing:
            answer(request, respond(ApiKey.ADD_PARTITIONS_TO_TXN, results_by_transaction=results))

    if not transactions:
        answer(request, respond(ApiKey.ADD_PARTITIONS_TO_TXN))
    for number, transaction in enumerate(transactions):
        _add(context, request, session, transaction, partial(finish, number))


def _add(
    context: HandlerContext,
    request: Request,
    session: Session,
    transaction: Any,
    finish: Callable[[PartitionErrors], None],
) -> None:
    partitions = frozenset((topic.name, index) for topic in transaction.topics for index in topic.partitions)
    refused = _refused(context, request, session, transaction.transactional_id, partitions)
    if refused:
        finish(refused)
        return
    identity = (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, partitions)

    def added(reply: ErrorReply) -> None:
        error = error_for(request.api_version, FIRST_WITH_PRODUCER_FENCED, reply.error)
        finish(dict.fromkeys(partitions, error))

    def verified(reply: VerifyReply) -> None:
        is_known = request.api_version >= FIRST_ADD_WITH_ABORTABLE
        missing = ErrorCode.TRANSACTION_ABORTABLE if is_known else ErrorCode.INVALID_TXN_STATE
        finish({one: missing if one in reply.missing else reply.error for one in partitions})

    if transaction.verify_only:
        context.transactions.submit(VerifyRequest(*identity), partial(context.finish, request, verified))
    else:
        context.transactions.submit(AddRequest(*identity), partial(context.finish, request, added))


def _refused(
    context: HandlerContext,
    request: Request,
    session: Session,
    transactional_id: str,
    partitions: frozenset[TopicPartition],
) -> PartitionErrors:
    """Return an error for every partition if one of them is rejected; otherwise return nothing."""
    gates, is_of_client = context.gates, request.api_version < FIRST_ADD_OF_BROKERS
    if is_of_client and not gates.authorize(session, Operation.WRITE, transaction_resource(transactional_id)):
        return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    def error(partition: TopicPartition) -> ErrorCode:
        topic = context.image.topics.get(partition[0])
        is_closed = is_of_client and (
            partition[0] in INTERNAL_TOPICS or not gates.authorize_topic(session, Operation.WRITE, partition[0])
        )
        if is_closed:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic is None or topic.find(partition[1]) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    errors = {partition: error(partition) for partition in partitions}
    if not any(errors.values()):
        return {}
    return {one: code or ErrorCode.OPERATION_NOT_ATTEMPTED for one, code in errors.items()}


def _added(transactional_id: str, errors: PartitionErrors) -> Any:
    """Return the response row of one transaction, with its topics sorted by name."""
    topic_part = part(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxnTopicResult")
    row = part(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxnPartitionResult")
    topics: dict[str, list[Any]] = {}
    for (topic, index), error in sorted(errors.items()):
        topics.setdefault(topic, []).append(row(partition_index=index, partition_error_code=error))
    results = [topic_part(name=name, results_by_partition=rows) for name, rows in topics.items()]
    return part(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxnResult")(
        transactional_id=transactional_id, topic_results=results
    )


# AddOffsetsToTxn


def handle_add_offsets_to_txn(context: HandlerContext, request: Request, session: Session) -> None:
    """Add the partition of `__consumer_offsets` that stores the group's offsets to the transaction."""
    message = read(request)

    def reply(answered: ErrorReply) -> None:
        error = error_for(request.api_version, FIRST_WITH_PRODUCER_FENCED, answered.error)
        answer(request, respond(ApiKey.ADD_OFFSETS_TO_TXN, error_code=error))

    if not context.gates.authorize(session, Operation.WRITE, transaction_resource(message.transactional_id)):
        reply(ErrorReply(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return
    if not context.gates.authorize(session, Operation.READ, Resource(ResourceType.GROUP, message.group_id)):
        reply(ErrorReply(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        return
    topic = context.image.topics.get(OFFSETS_TOPIC)
    if topic is None:
        context.create_topics(session, [OFFSETS_TOPIC])
        reply(ErrorReply(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    partition = (OFFSETS_TOPIC, partition_of(message.group_id, topic.partition_count))
    add = AddRequest(message.transactional_id, message.producer_id, message.producer_epoch, frozenset((partition,)))
    context.transactions.submit(add, partial(context.finish, request, reply))


# EndTxn


def handle_end_txn(context: HandlerContext, request: Request, session: Session) -> None:
    """Commit or abort the transaction, and answer when the decision is committed. Markers are written after that."""
    message, version = read(request), request.api_version

    def reply(answered: EndReply) -> None:
        error = error_for(version, FIRST_WITH_PRODUCER_FENCED, answered.error)
        response = respond(
            ApiKey.END_TXN,
            error_code=error,
            producer_id=answered.producer_id,
            producer_epoch=answered.producer_epoch,
        )
        answer(request, response)

    if not context.gates.authorize(session, Operation.WRITE, transaction_resource(message.transactional_id)):
        reply(EndReply(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return
    end = EndRequest(
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        is_commit=message.committed,
        bumps_epoch=version >= FIRST_END_THAT_BUMPS,
    )
    context.transactions.submit(end, partial(context.finish, request, reply))
