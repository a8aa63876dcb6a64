"""FindCoordinator: return the broker that coordinates a group or a transactional id.

The request creates the internal topic that stores the group or id, if the topic does not exist. The response is
COORDINATOR_NOT_AVAILABLE until the topic exists and the leader of its partition is known to be alive; then the client
retries. A client may retry only after a second, while the coordinator is often available after a tenth of a second. So
the broker holds the request for a while before it answers COORDINATOR_NOT_AVAILABLE.
Source: FindCoordinatorRequest 0 to 6, KIP-699 (batches), docs/decisions/14-group-coordinator.md.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kraft.broker.coordinator.internal_topics import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from kraft.broker.serving.gates import Operation, Resource, ResourceType
from kraft.broker.serving.purgatory import Parked
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.broker.shard.placement import partition_of
from kraft.image.partitions import NO_LEADER
from kraft.seam.ids import decode_uuid
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

GROUP_KEYS = 0
TRANSACTION_KEYS = 1
SHARE_KEYS = 2
FIRST_VERSION_WITH_SHARE_KEYS = 6
NO_NODE = -1
WAIT_MS_MAX = 500
"""Maximum milliseconds that a request waits until the coordinator is known. Later requests on its connection wait too.
"""


def handle_find_coordinator(context: HandlerContext, request: Request, session: Session) -> None:
    """Answer from the newest image, after a short check whether the leaders in it are alive. If a coordinator has no
    live leader, wait for newer images."""
    PendingFindCoordinator(context, request, session).check()


class CoordinatedKind(NamedTuple):
    """A type of key in the request: the type of resource, the internal topic that stores it, and the error for a client
    without permission."""

    resource: ResourceType
    topic: str
    unauthorized: ErrorCode


KINDS = MappingProxyType(
    {
        GROUP_KEYS: CoordinatedKind(ResourceType.GROUP, OFFSETS_TOPIC, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        TRANSACTION_KEYS: CoordinatedKind(
            ResourceType.TRANSACTIONAL_ID, TRANSACTION_TOPIC, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        ),
        SHARE_KEYS: CoordinatedKind(ResourceType.CLUSTER, SHARE_TOPIC, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    }
)
REASONS = MappingProxyType(
    {ErrorCode.INVALID_REQUEST: "key types are 0 (group), 1 (transactional id) and 2 (group:topicId:partition)"}
)


class PendingFindCoordinator(Parked):
    """A pending FindCoordinator request. It is answered when each coordinator is either known or cannot be determined,
    and at its deadline at the latest. It is checked again when a newer image is published (`image_changed`)."""

    delayed_operation = "FindCoordinator"
    __slots__ = ("_context", "_is_over", "_key_type", "_keys", "_leaders", "_request", "_session")

    def __init__(self, context: HandlerContext, request: Request, session: Session) -> None:
        message = read(request)
        self.bucket = -1
        self._context = context
        self._request = request
        self._session = session
        self._key_type = message.key_type
        self._keys = tuple(message.coordinator_keys)
        self._leaders: dict[str, int | ErrorCode] = {}
        self._is_over = False

    def check(self) -> None:
        """Find the coordinators' brokers in the newest image, and check whether their processes are alive."""
        self._leaders = {key: self._leader(key) for key in self._keys}
        if ErrorCode.COORDINATOR_NOT_AVAILABLE in self._leaders.values() and not self._is_over:
            self._wait()
            return
        doubtful = frozenset(found for found in self._leaders.values() if not isinstance(found, ErrorCode))
        if doubtful - {self._context.node_id}:
            self._context.check_leaders(doubtful - {self._context.node_id}, self._checked)
        else:
            self._answer(frozenset())

    def _checked(self, lost: frozenset[int]) -> None:
        if lost and not self._is_over:
            self._wait()
        else:
            self._context.finish(self._request, self._answer, lost)

    def _wait(self) -> None:
        deadlines, clock = self._context.loop.deadlines, self._context.loop.clock
        if self.bucket < 0:
            deadlines.add(self, clock.monotonic_ms() + WAIT_MS_MAX)
        self._context.groups.watchers[self] = None

    def image_changed(self) -> None:
        self._context.finish(self._request, self.check)

    def expire(self) -> None:
        self._is_over = True
        watchers = self._context.groups.watchers
        if self in watchers:
            del watchers[self]
            self._context.finish(self._request, self.check)

    def _leader(self, key: str) -> int | ErrorCode:
        """Return the broker that coordinates this key, or the reason why no broker can be named."""
        context = self._context
        kind = KINDS.get(self._key_type)
        if kind is None or (self._key_type == SHARE_KEYS and not self._is_share_key(key)):
            return ErrorCode.INVALID_REQUEST
        if kind.resource is ResourceType.CLUSTER:
            if not context.gates.authorize_cluster(self._session, Operation.CLUSTER_ACTION):
                return kind.unauthorized
        elif not context.gates.authorize(self._session, Operation.DESCRIBE, Resource(kind.resource, key)):
            return kind.unauthorized
        topic = context.image.topics.get(kind.topic)
        if topic is None:
            context.create_topics(self._session, [kind.topic])
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        leader = topic.partition(partition_of(key, topic.partition_count)).leader
        if leader == NO_LEADER or context.endpoint(leader, self._session.listener) is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return leader

    def _is_share_key(self, key: str) -> bool:
        """Return whether the key names a group, a topic id and a partition, in a version that has such keys. A group
        may contain colons."""
        group, _, rest = key.rpartition(":")
        group, _, topic_id = group.rpartition(":")
        is_known_version = self._request.api_version >= FIRST_VERSION_WITH_SHARE_KEYS
        return is_known_version and bool(group) and decode_uuid(topic_id) is not None and rest.isdecimal()

    def _answer(self, lost: frozenset[int]) -> None:
        self._context.loop.deadlines.remove(self)
        rows = [self._row(key, self._leaders[key], lost) for key in self._keys]
        answer(self._request, respond(ApiKey.FIND_COORDINATOR, coordinators=rows))

    def _row(self, key: str, found: int | ErrorCode, lost: frozenset[int]) -> Any:
        row = part(ApiKey.FIND_COORDINATOR, "Coordinator")
        if not isinstance(found, ErrorCode):
            endpoint = None if found in lost else self._context.endpoint(found, self._session.listener)
            if endpoint is not None:
                return row(key=key, node_id=found, host=endpoint.host, port=endpoint.port)
            found = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return row(key=key, node_id=NO_NODE, port=-1, error_code=found, error_message=REASONS.get(found))
