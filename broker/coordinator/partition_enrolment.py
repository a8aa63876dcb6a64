"""PartitionEnrolment: ask transaction coordinators whether partitions are part of a transaction, or add them to it.

The leader of a partition asks before it appends the first batch of a transaction (KIP-890). Questions to one broker are
batched, with one request in flight per broker. A coordinator on this broker is called directly. While the coordinator
still completes the producer's last transaction, a question that adds partitions is repeated for a short time.

Invariants: each question is answered once. At most one question per transactional id waits for each broker. A later
question of the same producer joins the waiting one, so that batches that a client has pipelined are appended in their
order. For the same reason a later addition joins one that waits for its repetition, and an answer also applies to a
waiting addition of the same partitions. A question with a newer epoch displaces the waiting one.
Source: KIP-890, AddPartitionsToTxnRequest 4 to 5, Kafka's AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kraft.broker.coordinator.internal_topics import TRANSACTION_TOPIC
from kraft.broker.serving.request_versions import request_part
from kraft.broker.shard.placement import partition_of
from kraft.broker.txn.records import TopicPartition
from kraft.broker.txn.requests import AddRequest, ErrorReply, VerifyReply, VerifyRequest
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.serving.loop import Loop
    from kraft.config import NodeConfig
    from kraft.image import MetadataImage

KEY = ApiKey.ADD_PARTITIONS_TO_TXN
VERSION = 5
TRANSACTIONS_PER_REQUEST_MAX = 1_000
NO_LEADER = -1

EnrolmentRequest = AddRequest | VerifyRequest
EnrolmentErrors = Mapping[TopicPartition, ErrorCode]
"""Requested partition → its error code. NONE means that the partition is part of the transaction."""
OnEnrolled = Callable[[EnrolmentErrors], None]
SendRequest = Callable[[int, int, int, Any, Callable[[Any], None]], None]
"""Function that sends a request: (broker id, API key, version, request, callback). The callback gets the response, or
None if there is none."""


class Question:
    """A request to a coordinator, and the callers that wait for its response, each with its requested partitions."""

    __slots__ = ("began_ms", "request", "waiting")

    def __init__(self, request: EnrolmentRequest, answered: OnEnrolled, now_ms: int) -> None:
        self.request = request
        self.began_ms = now_ms
        self.waiting: list[tuple[frozenset[TopicPartition], OnEnrolled]] = [(request.partitions, answered)]

    @property
    def adds(self) -> bool:
        return isinstance(self.request, AddRequest)

    def is_joined_by(self, newer: Question) -> bool:
        """Return whether one response of the coordinator can answer this question and the newer one."""
        mine, other = self.request, newer.request
        return type(mine) is type(other) and mine[:3] == other[:3]

    def join(self, newer: Question) -> None:
        """Merge the newer question into this one: request the partitions of both, and answer the callers of both."""
        self.request = self.request._replace(partitions=self.request.partitions | newer.request.partitions)
        self.waiting += newer.waiting

    def answer(self, errors: EnrolmentErrors) -> None:
        for partitions, answered in self.waiting:
            answered({partition: errors.get(partition, ErrorCode.NETWORK_EXCEPTION) for partition in partitions})

    def refuse(self, error: ErrorCode) -> None:
        self.answer(dict.fromkeys(self.request.partitions, error))


class CoordinatorQueue:
    """The questions to the coordinators on one broker: those in flight and those that wait."""

    __slots__ = ("asked", "is_busy", "waiting")

    def __init__(self) -> None:
        self.is_busy = False
        self.asked: set[str] = set()
        """Transactional ids of questions that a coordinator on this broker has not answered yet."""
        self.waiting: dict[str, Question] = {}
        """Transactional id → the question that waits for the request in flight."""


class PartitionEnrolment:
    """The questions of one broker to transaction coordinators. No public method is a coroutine."""

    def __init__(
        self,
        config: NodeConfig,
        loop: Loop,
        newest_image: Callable[[], MetadataImage],
        *,
        send: SendRequest,
        ask_here: Callable[[EnrolmentRequest, Callable[[Any], None]], None],
    ) -> None:
        """`send` sends a request to another broker. `ask_here` is `TransactionCoordinators.submit` of this broker."""
        self._node_id = config.node_id
        self._retry_ms = config.integer("add.partitions.to.txn.retry.backoff.ms")
        self._retry_ms_max = config.integer("add.partitions.to.txn.retry.backoff.max.ms")
        self._loop = loop
        self._newest_image = newest_image
        self._send = send
        self._ask_here = ask_here
        self._queues: dict[int, CoordinatorQueue] = {}
        self._asleep: dict[str, Question] = {}
        """Transactional id → the question that waits for its next try."""

    def ask(self, request: EnrolmentRequest, answered: OnEnrolled) -> None:
        """Call `answered` with the error code of each partition, now or later."""
        self._ask(Question(request, answered, self._loop.clock.monotonic_ms()))

    def _ask(self, question: Question) -> None:
        asleep = self._asleep.get(question.request.transactional_id)
        if asleep is not None and asleep.is_joined_by(question):
            asleep.join(question)
            return
        broker_id = self._coordinator_of(question.request.transactional_id)
        if broker_id == NO_LEADER:
            question.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif broker_id == self._node_id:
            self._ask_in_turn(question)
        else:
            queue = self._queues.setdefault(broker_id, CoordinatorQueue())
            _enqueue(queue, question)
            self._send_next(broker_id, queue)

    def _ask_in_turn(self, question: Question) -> None:
        """Ask the coordinator on this broker, with one question per transactional id at a time. Questions that arrive
        during that time are joined into the next one."""
        queue = self._queues.setdefault(self._node_id, CoordinatorQueue())
        name = question.request.transactional_id
        if name in queue.asked:
            _enqueue(queue, question)
            return

        def on_reply(reply: ErrorReply | VerifyReply) -> None:
            queue.asked.discard(name)
            self._answered(queue, question, _errors_here(question, reply))
            following = queue.waiting.get(name)
            if following is not None and name not in queue.asked:
                del queue.waiting[name]
                self._ask(following)

        queue.asked.add(name)
        self._ask_here(question.request, on_reply)

    def _coordinator_of(self, transactional_id: str) -> int:
        topic = self._newest_image().topics.get(TRANSACTION_TOPIC)
        if topic is None:
            return NO_LEADER
        return topic.partition(partition_of(transactional_id, topic.partition_count)).leader

    def _send_next(self, broker_id: int, queue: CoordinatorQueue) -> None:
        """Send the questions that wait for this broker, unless a request is in flight."""
        if queue.is_busy or not queue.waiting:
            return
        names = list(queue.waiting)[:TRANSACTIONS_PER_REQUEST_MAX]
        asked = [queue.waiting.pop(name) for name in names]
        queue.is_busy = True

        def on_outcome(response: Any) -> None:
            queue.is_busy = False
            found = None if response is None else _errors_by_id(response)
            top_level = ErrorCode.NETWORK_EXCEPTION if response is None else ErrorCode.of(int(response.error_code))
            for question in asked:
                if top_level is ErrorCode.NONE and found is not None:
                    self._answered(queue, question, found.get(question.request.transactional_id, {}))
                else:
                    self._answered(queue, question, dict.fromkeys(question.request.partitions, top_level))
            self._send_next(broker_id, queue)

        self._send(broker_id, KEY, VERSION, _request(asked), on_outcome)

    def _answered(self, queue: CoordinatorQueue, question: Question, errors: EnrolmentErrors) -> None:
        """Answer a question, or repeat it soon if the coordinator still completes the producer's last transaction. An
        answer also applies to a waiting question that adds the same partitions, and a repetition includes it."""
        name = question.request.transactional_id
        is_busy = question.adds and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
        left_ms = question.began_ms + self._retry_ms_max - self._loop.clock.monotonic_ms()
        if is_busy and left_ms >= self._retry_ms:
            if name in queue.waiting and question.is_joined_by(queue.waiting[name]):
                question.join(queue.waiting.pop(name))
            self._asleep[name] = question
            self._loop.start_task(self._ask_again, question)
            return
        question.answer(errors)
        following = queue.waiting.get(name)
        if following is None or not question.adds or not question.is_joined_by(following):
            return
        if all(errors.get(one) is ErrorCode.NONE for one in following.request.partitions):
            queue.waiting.pop(name).answer(errors)

    async def _ask_again(self, question: Question) -> None:
        await self._loop.clock.sleep_ms(self._retry_ms)
        if self._asleep.get(question.request.transactional_id) is question:
            del self._asleep[question.request.transactional_id]
        self._ask(question)
        self._loop.request_pass()


def _enqueue(queue: CoordinatorQueue, newer: Question) -> None:
    """Queue a question behind the request in flight. If a question of the same transactional id waits already, join it,
    displace it, or reject the newer one."""
    name = newer.request.transactional_id
    older = queue.waiting.get(name)
    is_same_id = older is not None and older.request.producer_id == newer.request.producer_id
    if older is None:
        queue.waiting[name] = newer
    elif older.is_joined_by(newer):
        older.join(newer)
    elif is_same_id and newer.request.producer_epoch < older.request.producer_epoch:
        newer.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
    else:
        is_fenced = is_same_id and newer.request.producer_epoch > older.request.producer_epoch
        queue.waiting[name] = newer
        older.refuse(ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION)


def _errors_here(question: Question, reply: ErrorReply | VerifyReply) -> EnrolmentErrors:
    """Return the error code of each partition, from a reply of the coordinator on this broker."""
    errors = dict.fromkeys(question.request.partitions, reply.error)
    if isinstance(reply, VerifyReply) and reply.error is ErrorCode.NONE:
        errors |= dict.fromkeys(reply.missing, ErrorCode.TRANSACTION_ABORTABLE)
    return errors


def _request(questions: Iterable[Question]) -> Any:
    transaction = request_part(KEY, "AddPartitionsToTxnTransaction")
    topic = request_part(KEY, "AddPartitionsToTxnTopic")
    transactions = []
    for question in questions:
        request = question.request
        topics: dict[str, list[int]] = {}
        for name, index in sorted(request.partitions):
            topics.setdefault(name, []).append(index)
        transactions.append(
            transaction(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                verify_only=not question.adds,
                topics=[topic(name=name, partitions=found) for name, found in topics.items()],
            )
        )
    return messages.build(messages.request_class(KEY), transactions=transactions)


def _errors_by_id(response: Any) -> dict[str, EnrolmentErrors]:
    """Return the error codes in a response: transactional id → partition → error code."""
    return {
        found.transactional_id: {
            (topic.name, row.partition_index): ErrorCode.of(int(row.partition_error_code))
            for topic in found.topic_results
            for row in topic.results_by_partition
        }
        for found in response.results_by_transaction
    }
