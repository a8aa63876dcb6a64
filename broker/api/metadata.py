"""Metadata: brokers, topics, partitions, as the clients of one listener may see them.

A named topic that does not exist gets the authorization error if the client may not describe it. The response lists the
unfenced brokers that have the listener, and brokers that were fenced a moment ago (`kraft.broker.serving.departed`).

The request may create a missing topic. The response is UNKNOWN_TOPIC_OR_PARTITION until the topic exists, and also if
the topic can never be created, so that a client knows when to stop retrying. A leader whose process seems to have died
a moment ago is reported as LEADER_NOT_AVAILABLE; otherwise a client would keep this leader for a second.

The bytes of two partitions in the same state differ only in the partition number, so the common bytes are encoded once
(`metadata_partitions`). A response with very many partitions is built a few milliseconds at a time, from one image.
Source: MetadataRequest 0 to 13, KIP-4, KIP-516.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kraft.broker.api.fetch.metadata_topic import METADATA_TOPIC_ID
from kraft.broker.api.metadata_partitions import PartitionsWriter
from kraft.broker.serving.gates import AUTHORIZED_OPERATIONS_OMITTED, CLUSTER, Operation, topic_resource
from kraft.broker.serving.request_versions import answer, kind, read, respond
from kraft.broker.serving.session import Session
from kraft.broker.serving.turns import Steps
from kraft.control.topics.names import METADATA_TOPIC, topic_name_problem
from kraft.image import Endpoint, PartitionState, TopicImage
from kraft.image.partitions import NO_LEADER
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.compiled_readers import compile_reader
from kraft.wire.messages.quirks import MessageDirection
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
NO_TOPIC_ID = UUID(int=0)

FIRST_WITH_IDS = 12
FIRST_WITH_LISTENER_ERRORS = 6
WITH_CLUSTER_OPERATIONS = range(8, 11)

PARTITIONS_AT_ONCE_MAX = 10_000
"""Maximum number of partitions in a response that is built at once; a larger response is built in steps."""

STEP_TOPICS = 256
"""Maximum number of named topics in a response that is built at once; a larger response is built in steps."""

CHECKED_TOPICS_MAX = 16
CHECKED_PARTITIONS_MAX = 1_000
CHECKED_LEADERS_MAX = 16


def handle_metadata(context: HandlerContext, request: Request, session: Session) -> None:
    """Answer from the newest image, after a short check whether the leaders in the response are alive."""
    message = read(request)
    version = request.api_version
    asks_for_cluster = version in WITH_CLUSTER_OPERATIONS and _asks_for_cluster_operations(request)

    def reply(lost: frozenset[int]) -> None:
        made = _MetadataReply(context, request, session, message, lost)
        made.create_missing()
        if made.is_long or len(message.topics or ()) > STEP_TOPICS:
            context.continue_in_steps(request, reply_in_steps(made))
        else:
            respond_with(made)

    def reply_in_steps(made: _MetadataReply) -> Steps:
        yield from made.describe_topics()
        respond_with(made)

    def respond_with(made: _MetadataReply) -> None:
        response = made.build()
        if asks_for_cluster and context.gates.authorize_cluster(session, Operation.DESCRIBE):
            request.respond(*_with_cluster_operations(context, session, version, response))
        elif made.is_long:
            request.respond(*messages.encode_response_in_pieces(ApiKey.METADATA, version, response))
        else:
            answer(request, response)
            return
        request.connection.meter.count_answer(request.api_key, response)

    doubtful = _leaders(context, message)
    if doubtful:
        context.check_leaders(doubtful, partial(context.finish, request, reply))
    else:
        reply(frozenset())


def _leaders(context: HandlerContext, message: Any) -> frozenset[int]:
    """Return the leaders, other than this broker, of the topics in the request, if they are few. The broker checks that
    they are alive before the response names them."""
    topics = context.image.topics
    found: set[int] = set()
    if message.topics is None or len(message.topics) > CHECKED_TOPICS_MAX:
        return frozenset()
    for wanted in message.topics:
        topic = topics.get_by_id(wanted.topic_id) if wanted.name is None else topics.get(wanted.name)
        if topic is not None and topic.partition_count <= CHECKED_PARTITIONS_MAX:
            found.update(state.leader for _, state in topic.partitions())
    found -= {NO_LEADER, context.node_id}
    return frozenset(found) if len(found) <= CHECKED_LEADERS_MAX else frozenset()


# Versions 8 to 10 can also request the authorized operations on the cluster. Newer classes lack that field. So the old
# class reads it from the request, and its value is written into the encoded response, where it is the last field.


def _asks_for_cluster_operations(request: Request) -> bool:
    old = messages.versioned_class(ApiKey.METADATA, request.api_version, MessageDirection.REQUEST)
    asked, _ = compile_reader(old, old)(request.body, 0)
    return bool(asked.include_cluster_authorized_operations)


def _with_cluster_operations(context: HandlerContext, session: Session, version: int, response: Any) -> list[bytes]:
    pieces = messages.encode_response_in_pieces(ApiKey.METADATA, version, response)
    last = b"".join(pieces[-2:])  # the request may name both the topic's name and its id
    operations = context.gates.authorized_operations(session, CLUSTER).to_bytes(4, "big", signed=True)
    place = len(last) - (1 if messages.is_flexible(ApiKey.METADATA, version) else 0) - 4
    return [*pieces[:-2], last[:place] + operations + last[place + 4 :]]


class _MetadataReply:
    """A Metadata response that is being built."""

    def __init__(
        self, context: HandlerContext, request: Request, session: Session, message: Any, lost: frozenset[int]
    ) -> None:
        self.context = context
        self.session = session
        self.message = message
        self.version = request.api_version
        self.image = context.image
        self.topic_class = kind(ApiKey.METADATA, "MetadataResponseTopic")
        self.partition_class = kind(ApiKey.METADATA, "MetadataResponsePartition")
        listener = session.listener
        self.endpoints: dict[int, Endpoint] = {}
        for registration in self.image.sorted_brokers():
            endpoint = context.endpoint(registration.broker_id, listener)
            if endpoint is not None:
                self.endpoints[registration.broker_id] = endpoint
        self.lost = lost
        self.partitions = PartitionsWriter(ApiKey.METADATA, self.version)
        self.topics: list[Any] | None = None
        self.missing: dict[str, Any] = {}
        """The error of each named topic that does not exist."""
        self.is_long = self._is_long()
        """Whether the response has more partitions than one step of the loop should encode."""

    # very many partitions

    def _is_long(self) -> bool:
        left = PARTITIONS_AT_ONCE_MAX
        for topic in self._known_topics():
            left -= topic.partition_count
            if left < 0:
                return True
        return False

    def _known_topics(self) -> Iterable[TopicImage]:
        """Yield the existing topics that the request names, or all topics."""
        topics, wanted = self.image.topics, self.message.topics
        if wanted is None or (self.version == 0 and not wanted):
            return topics
        found = (topics.get_by_id(one.topic_id) if one.name is None else topics.get(one.name) for one in wanted)
        return {topic.topic_id: topic for topic in found if topic is not None}.values()

    def describe_topics(self) -> Steps:
        """Encode the partitions of all topics in the response, in steps; `build` then uses the encoded partitions."""
        if self.is_long:
            for topic in self._known_topics():
                if self._may(Operation.DESCRIBE, topic.name):
                    yield from self.partitions.write(topic, self._partition)
        topics = []
        for number, topic in enumerate(self._topics(), 1):
            topics.append(topic)
            if not number % STEP_TOPICS:
                yield
        self.topics = topics

    def build(self) -> Any:
        """Return the whole response, in the newest class."""
        return respond(
            ApiKey.METADATA,
            brokers=tuple(self._brokers()),
            cluster_id=self.context.cluster_id,
            controller_id=self._controller_id(),
            topics=self.topics if self.topics is not None else tuple(self._topics()),
        )

    def _controller_id(self) -> int:
        """Return the id of any live broker as that of the controller, because each broker forwards requests to the
        active controller."""
        if self.context.node_id in self.endpoints:
            return self.context.node_id
        return min(self.endpoints, default=-1)

    def _brokers(self) -> Iterator[Any]:
        described = kind(ApiKey.METADATA, "MetadataResponseBroker")
        alive = [self.image.brokers[broker_id] for broker_id in self.endpoints]
        for registration in (*alive, *self.context.departed.listed()):
            endpoint = registration.endpoint(self.session.listener)
            if endpoint is not None:
                yield described(
                    node_id=registration.broker_id, host=endpoint.host, port=endpoint.port, rack=registration.rack
                )

    # topics

    def _topics(self) -> Iterator[Any]:
        wanted = self.message.topics
        if wanted is None or (self.version == 0 and not wanted):
            yield from self._all_topics()
            return
        invalid = self._refusal(wanted)
        if invalid is not None:
            yield from (self._error(invalid, topic.name or "", None) for topic in wanted)
            return
        by_id = [topic.topic_id for topic in wanted if _is_id(topic.topic_id)]
        if by_id:
            yield from self._topics_by_id(by_id)
        else:
            yield from self._topics_by_name(dict.fromkeys(topic.name for topic in wanted))

    def _refusal(self, wanted: Iterable[Any]) -> ErrorCode | None:
        for topic in wanted:
            if (topic.name is None or _is_id(topic.topic_id)) and self.version < FIRST_WITH_IDS:
                return ErrorCode.INVALID_REQUEST
            if topic.name is None and not _is_id(topic.topic_id):
                return ErrorCode.INVALID_REQUEST
        return None

    def _all_topics(self) -> Iterator[Any]:
        for topic in self.image.topics:
            if self._may(Operation.DESCRIBE, topic.name):
                yield self._described(topic)

    def _topics_by_id(self, wanted: list[UUID]) -> Iterator[Any]:
        for topic_id in dict.fromkeys(wanted):
            topic = self.image.topics.get_by_id(topic_id)
            if topic_id == METADATA_TOPIC_ID and self.context.metadata_topic.may_read(self.session):
                yield self._metadata_topic()
            elif topic is None:
                yield self._error(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
            elif not self._may(Operation.DESCRIBE, topic.name):
                yield self._error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
            else:
                yield self._described(topic)

    def _topics_by_name(self, names: Iterable[str]) -> Iterator[Any]:
        for name in names:
            if name in self.missing:
                continue
            topic = self.image.topics.get(name)
            if topic is None or not self._may(Operation.DESCRIBE, name):
                yield self._error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, None)
            else:
                yield self._described(topic)
        yield from self.missing.values()

    def create_missing(self) -> None:
        """Choose the error of each named topic that does not exist, and start creating the topics that may be created.
        Creation starts at once, because a response that is built in steps is dropped when its client disconnects."""
        wanted = self.message.topics or ()
        if self._refusal(wanted) is not None or any(_is_id(topic.topic_id) for topic in wanted):
            return
        topics, names = self.image.topics, dict.fromkeys(topic.name for topic in wanted)
        missing = [name for name in names if topics.get(name) is None and self._may(Operation.DESCRIBE, name)]
        creates = (
            bool(missing)
            and self.message.allow_auto_topic_creation
            and self.context.dynamic_configs.boolean("auto.create.topics.enable")
        )
        may_create_all = creates and self.context.gates.authorize_cluster(self.session, Operation.CREATE)
        creatable: list[str] = []
        for name in missing:
            if name == METADATA_TOPIC and self.context.metadata_topic.may_read(self.session):
                self.missing[name] = self._metadata_topic()
            elif name == METADATA_TOPIC:
                self.missing[name] = self._error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, None)
            elif creates and not (may_create_all or self._may(Operation.CREATE, name)):
                self.missing[name] = self._error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, None)
            elif topic_name_problem(name) is not None:
                self.missing[name] = self._error(ErrorCode.INVALID_TOPIC_EXCEPTION, name, None)
            else:
                if creates:
                    creatable.append(name)
                self.missing[name] = self._error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, None)
        if creatable:
            self.context.create_topics(self.session, creatable)

    def _metadata_topic(self) -> Any:
        """Describe the cluster's metadata log if the client may read it and the request names it. The log is never
        listed otherwise."""
        return self.topic_class(
            error_code=ErrorCode.NONE,
            name=METADATA_TOPIC,
            topic_id=METADATA_TOPIC_ID,
            is_internal=True,
            partitions=(self._partition(0, self.context.metadata_topic.state(self.endpoints)),),
        )

    def _may(self, operation: Operation, name: str) -> bool:
        return self.context.gates.authorize_topic(self.session, operation, name)

    def _error(self, error: ErrorCode, name: str | None, topic_id: UUID | None) -> Any:
        return self.topic_class(
            error_code=error,
            name=name,
            topic_id=topic_id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=(),
        )

    def _described(self, topic: TopicImage) -> Any:
        operations = AUTHORIZED_OPERATIONS_OMITTED
        if self.message.include_topic_authorized_operations:
            operations = self.context.gates.authorized_operations(self.session, topic_resource(topic.name))
        return self.topic_class(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=self.partitions.of(topic, self._partition),
            topic_authorized_operations=operations,
        )

    # partitions

    def _partition(self, index: int, state: PartitionState) -> Any:
        error = self._partition_error(state)
        hides_dead = self.version == 0
        return self.partition_class(
            error_code=error,
            partition_index=index,
            leader_id=state.leader if state.leader in self.endpoints and state.leader not in self.lost else -1,
            leader_epoch=state.leader_epoch,
            replica_nodes=self._alive(state.replicas) if hides_dead else state.replicas,
            isr_nodes=self._alive(state.isr) if hides_dead else state.isr,
            offline_replicas=self._offline(state),
        )

    def _partition_error(self, state: PartitionState) -> ErrorCode:
        if state.leader not in self.endpoints:
            if not self.image.is_alive(state.leader) or self.version < FIRST_WITH_LISTENER_ERRORS:
                return ErrorCode.LEADER_NOT_AVAILABLE
            return ErrorCode.LISTENER_NOT_FOUND
        if state.leader in self.lost:
            return ErrorCode.LEADER_NOT_AVAILABLE
        if self.version == 0 and not all(replica in self.endpoints for replica in (*state.replicas, *state.isr)):
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return ErrorCode.NONE

    def _alive(self, replicas: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(replica for replica in replicas if replica in self.endpoints)

    def _offline(self, state: PartitionState) -> tuple[int, ...]:
        offline = []
        for replica in state.replicas:
            directory = state.directory_of(replica)
            if replica not in self.endpoints or (
                directory is not None and not self.image.brokers[replica].has_directory(directory)
            ):
                offline.append(replica)
        return tuple(offline)


def _is_id(topic_id: UUID | None) -> bool:
    return topic_id is not None and topic_id != NO_TOPIC_ID
