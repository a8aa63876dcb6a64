"""DescribeTransactions, ListTransactions: describe the transactional ids that this broker coordinates.

ListTransactions omits ids that the client may not describe. Its filters are states, producer ids, the time for which a
transaction has been open, and a regular expression that must match the whole id.
Source: DescribeTransactionsRequest 0, ListTransactionsRequest 0 to 2, KIP-664, KIP-994, KIP-1152.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kraft.broker.api.transactions import transaction_resource
from kraft.broker.regular_expressions import Expression, InvalidExpression, Match, compile_expression
from kraft.broker.serving.gates import Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.broker.serving.turns import Steps
from kraft.broker.txn.records import TransactionValue
from kraft.broker.txn.requests import DescribeTransactionReply, DescribeTransactionRequest, ListTransactionsReply
from kraft.broker.txn.states import LABELS, TransactionState
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.compiled_writers import EncodedStructs
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

ANY_DURATION = -1
PATTERN_CHARACTERS_MAX = 1_000
"""Maximum length of a pattern for transactional ids."""
LISTED_PER_STEP = 200
"""Transactional ids that ListTransactions filters and encodes in one step."""
INSTRUCTIONS_PER_STEP = 10_000
"""Instructions of the pattern that ListTransactions executes in one step, about. An id may have 32,767 characters."""
CHARACTERS_PER_INSTRUCTION = 8
"""Characters of ids that count as much as one instruction: the pattern needs none for most characters."""
Listed = tuple[str, TransactionValue]
STATES = frozenset({*LABELS.values(), "PrepareEpochFence"})
"""The states that a ListTransactions filter may name, as in Kafka. No id of this broker is ever in PrepareEpochFence.
"""


# DescribeTransactions


def handle_describe_transactions(context: HandlerContext, request: Request, session: Session) -> None:
    """Describe each transactional id; its coordinator answers for it. Topics that the client may not describe are
    omitted."""
    names = read(request).transactional_ids
    rows: list[Any] = [None] * len(names)
    missing = len(rows)

    def finish(number: int, reply: DescribeTransactionReply) -> None:
        nonlocal missing
        rows[number] = _described(context, session, names[number], reply)
        missing -= 1
        if not missing:
            answer(request, respond(ApiKey.DESCRIBE_TRANSACTIONS, transaction_states=rows))

    if not rows:
        answer(request, respond(ApiKey.DESCRIBE_TRANSACTIONS, transaction_states=()))
    for number, name in enumerate(names):
        if not context.gates.authorize(session, Operation.DESCRIBE, transaction_resource(name)):
            finish(number, DescribeTransactionReply(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        elif not name:
            finish(number, DescribeTransactionReply(ErrorCode.INVALID_REQUEST))
        else:
            context.transactions.submit(
                DescribeTransactionRequest(name), partial(context.finish, request, finish, number)
            )


def _described(context: HandlerContext, session: Session, name: str, reply: DescribeTransactionReply) -> Any:
    row = part(ApiKey.DESCRIBE_TRANSACTIONS, "TransactionState")
    value = reply.value
    if value is None:
        return row(transactional_id=name, error_code=reply.error)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(value.partitions):
        if context.gates.authorize_topic(session, Operation.DESCRIBE, topic):
            topics.setdefault(topic, []).append(index)
    topic_part = part(ApiKey.DESCRIBE_TRANSACTIONS, "TopicData")
    return row(
        transactional_id=name,
        transaction_state=value.state.label,
        transaction_timeout=value.timeout_ms,
        transaction_start_time=value.start_ms,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        topics=[topic_part(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


# ListTransactions


def handle_list_transactions(context: HandlerContext, request: Request, session: Session) -> None:
    """List the ids that pass all filters. The response is an error while a partition is being loaded."""
    message = read(request)
    unknown = tuple(state for state in message.state_filters if state not in STATES)

    def refuse(error: ErrorCode) -> None:
        answer(request, respond(ApiKey.LIST_TRANSACTIONS, error_code=error, transaction_states=()))

    try:
        chosen = ListFilter(message, context.loop.clock.wall_ms())
    except InvalidExpression:
        refuse(ErrorCode.INVALID_REGULAR_EXPRESSION)
        return

    def is_described(name: str) -> bool:
        return context.gates.authorize(session, Operation.DESCRIBE, transaction_resource(name))

    def reply(answered: ListTransactionsReply) -> None:
        if answered.error is not ErrorCode.NONE:
            refuse(answered.error)
        else:
            context.continue_in_steps(
                request, _answer_in_steps(request, answered.transactions, chosen, is_described, unknown)
            )

    context.transactions.list_transactions(partial(context.finish, request, reply))


def _answer_in_steps(
    request: Request,
    transactions: Sequence[Listed],
    chosen: ListFilter,
    is_described: Callable[[str], bool],
    unknown: Sequence[str],
) -> Steps:
    """Answer with the transactions that pass the filter and may be described. A coordinator may have a hundred
    thousand, so they are filtered and encoded some at a time."""
    row = part(ApiKey.LIST_TRANSACTIONS, "TransactionState")
    write = messages.struct_writer(ApiKey.LIST_TRANSACTIONS, request.api_version, "transaction_states")
    pieces: list[bytes] = []
    count = 0
    for first in range(0, len(transactions), LISTED_PER_STEP):
        yield
        parts: list[bytes] = []
        for name, value in transactions[first : first + LISTED_PER_STEP]:
            passes = yield from chosen.passes(name, value)
            if passes and is_described(name):
                told = row(transactional_id=name, producer_id=value.producer_id, transaction_state=value.state.label)
                write(parts.append, told)
                count += 1
        pieces.append(b"".join(parts))
    states = EncodedStructs(count, pieces, request.api_version)
    answer(request, respond(ApiKey.LIST_TRANSACTIONS, unknown_state_filters=unknown, transaction_states=states))


class ListFilter:
    """The filters of one request: the pattern, and the others. As in Kafka, the duration counts from the start of the
    last transaction, which may be complete; an id without one passes."""

    def __init__(self, message: Any, wall_ms: int) -> None:
        """Raises InvalidExpression."""
        pattern = message.transactional_id_pattern
        if pattern and len(pattern) > PATTERN_CHARACTERS_MAX:
            reason = f"longer than {PATTERN_CHARACTERS_MAX} characters"
            raise InvalidExpression(pattern, PATTERN_CHARACTERS_MAX, reason)
        self._expression: Expression | None = compile_expression(pattern) if pattern else None
        self._left = INSTRUCTIONS_PER_STEP
        """Instructions that may still be executed in the present step."""
        self._states, self._producer_ids = frozenset(message.state_filters), frozenset(message.producer_id_filters)
        self._duration_ms: int = message.duration_filter
        self._wall_ms = wall_ms

    def passes(self, name: str, value: TransactionValue) -> Generator[None, None, bool]:
        """Return whether a transactional id passes. Each `yield` ends a step."""
        if not self._passes_others(value):
            return False
        expression = self._expression
        if expression is None:
            return True
        match = Match(expression, name)
        self._left -= len(name) // CHARACTERS_PER_INSTRUCTION
        while match.result is None:
            if self._left <= 0:
                yield
                self._left = INSTRUCTIONS_PER_STEP
            executed = expression.steps
            match.advance(self._left)
            self._left -= expression.steps - executed
        return match.result

    def _passes_others(self, value: TransactionValue) -> bool:
        if value.state is TransactionState.DEAD:
            return False
        if self._producer_ids and value.producer_id not in self._producer_ids:
            return False
        if self._states and value.state.label not in self._states:
            return False
        return self._duration_ms <= ANY_DURATION or self._wall_ms - value.start_ms > self._duration_ms
