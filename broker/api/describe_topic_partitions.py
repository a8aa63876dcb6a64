"""DescribeTopicPartitions: topics and their partitions in pages, with their eligible leader replicas (KIP-966).

Topics are sorted by name. A page has at most as many partitions as the client requests and
max.request.partition.size.limit allows. `next_cursor` is the first partition of the next page. A named topic that does
not exist gets the authorization error if the client may not describe it. A request without names gets only the topics
that the client may describe. The bytes of two partitions in the same state differ only in the partition number, so the
common bytes are encoded once (`metadata_partitions`).
Source: DescribeTopicPartitionsRequest 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kraft.broker.api.fetch.metadata_topic import METADATA_TOPIC_ID
from kraft.broker.api.metadata import INTERNAL_TOPICS
from kraft.broker.api.metadata_partitions import PartitionsWriter
from kraft.broker.serving.gates import AUTHORIZED_OPERATIONS_OMITTED, Operation, topic_resource
from kraft.broker.serving.request_versions import answer, kind, part, read, respond
from kraft.broker.serving.session import Session
from kraft.control.topics.names import METADATA_TOPIC, topic_name_problem
from kraft.image import MetadataImage, PartitionState, TopicImage
from kraft.image.partitions import NO_LEADER
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS
LIMIT_KEY = "max.request.partition.size.limit"


def handle_describe_topic_partitions(context: HandlerContext, request: Request, session: Session) -> None:
    """Answer with one page, from the newest image."""
    message = read(request)
    problem = _cursor_problem(message)
    if problem is not None:
        failed = tuple(_failed(topic.name, ErrorCode.INVALID_REQUEST) for topic in message.topics)
        answer(request, respond(KEY, topics=failed))
        return
    answer(request, _Page(context, session, message, request.api_version).build())


def _cursor_problem(message: Any) -> str | None:
    cursor = message.cursor
    if cursor is None:
        return None
    if cursor.partition_index < 0:
        return "a cursor's partition is not negative"
    if message.topics and cursor.topic_name not in {topic.name for topic in message.topics}:
        return "the cursor's topic is not among those that are asked for"
    return None


class _Page:
    """A DescribeTopicPartitions response that is being built."""

    def __init__(self, context: HandlerContext, session: Session, message: Any, version: int) -> None:
        self._context = context
        self._image: MetadataImage = context.image
        self._session = session
        self._named = bool(message.topics)
        names = {topic.name for topic in message.topics} if self._named else set(context.image.topics.names)
        self._names = sorted(names)
        self._start = 0
        if message.cursor is not None:
            self._names = [name for name in self._names if name >= message.cursor.topic_name]
            if self._names and self._names[0] == message.cursor.topic_name:
                self._start = message.cursor.partition_index
        limit = context.dynamic_configs.integer(LIMIT_KEY)
        self._left = max(1, min(limit, message.response_partition_limit))
        self._next: tuple[str, int] | None = None
        self._partitions = PartitionsWriter(KEY, version)

    def build(self) -> Any:
        """Return the complete response."""
        topics = tuple(self._topics())
        cursor = self._next
        following = None if cursor is None else part(KEY, "Cursor")(topic_name=cursor[0], partition_index=cursor[1])
        return respond(KEY, topics=topics, next_cursor=following)

    def _topics(self) -> Iterator[Any]:
        for name in self._names:
            start, self._start = self._start, 0
            if not self._context.gates.authorize_topic(self._session, Operation.DESCRIBE, name):
                if self._named:
                    yield _failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                continue
            topic = self._image.topics.get(name)
            is_metadata = name == METADATA_TOPIC and self._context.metadata_topic.may_read(self._session)
            if topic is None and not is_metadata:
                bad = topic_name_problem(name) is not None
                yield _failed(name, ErrorCode.INVALID_TOPIC_EXCEPTION if bad else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            if self._left == 0:
                self._next = (name, 0)
                return
            yield self._metadata_topic() if topic is None else self._described(topic, start)
            if self._next is not None:
                return

    def _metadata_topic(self) -> Any:
        """Describe the cluster's metadata log if the client may read it and the request names it. The log is never
        listed otherwise."""
        self._left -= 1
        alive = [broker_id for broker_id in self._image.broker_ids() if self._reaches(broker_id)]
        return part(KEY, "DescribeTopicPartitionsResponseTopic")(
            name=METADATA_TOPIC,
            topic_id=METADATA_TOPIC_ID,
            is_internal=True,
            partitions=(self._partition(0, self._context.metadata_topic.state(alive)),),
            topic_authorized_operations=AUTHORIZED_OPERATIONS_OMITTED,
        )

    def _described(self, topic: TopicImage, start: int) -> Any:
        """Return the topic's partitions from `start` on, up to the number that fits on the page."""
        end = min(topic.partition_count, start + self._left)
        self._left -= max(0, end - start)
        if end < topic.partition_count:
            self._next = (topic.name, end)
        return part(KEY, "DescribeTopicPartitionsResponseTopic")(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=self._partitions.some(topic, range(start, end), self._partition),
            topic_authorized_operations=self._context.gates.authorized_operations(
                self._session, topic_resource(topic.name)
            ),
        )

    def _partition(self, index: int, state: PartitionState) -> Any:
        """Describe one partition. As in Kafka, a partition without a leader has leader -1 and no error."""
        return kind(KEY, "DescribeTopicPartitionsResponsePartition")(
            error_code=ErrorCode.NONE,
            partition_index=index,
            leader_id=state.leader if self._reaches(state.leader) else NO_LEADER,
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.isr,
            eligible_leader_replicas=state.elr,
            last_known_elr=state.last_known_elr,
            offline_replicas=tuple(replica for replica in state.replicas if self._is_offline(replica, state)),
        )

    def _reaches(self, broker_id: int) -> bool:
        return self._context.endpoint(broker_id, self._session.listener) is not None

    def _is_offline(self, replica: int, state: PartitionState) -> bool:
        directory = state.directory_of(replica)
        if not self._reaches(replica):
            return True
        return directory is not None and not self._image.brokers[replica].has_directory(directory)


def _failed(name: str, error: ErrorCode) -> Any:
    return part(KEY, "DescribeTopicPartitionsResponseTopic")(
        error_code=error, name=name, is_internal=name in INTERNAL_TOPICS
    )
