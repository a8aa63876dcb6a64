"""Observes a group on the network: what its members send to their coordinator, and the responses. Nothing is read from
the client's state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kraft.image.topics import TopicsImage
from kraft.sim.check.consumer_groups.answers import CommitAnswered, CommitRequested, HeartbeatAccepted
from kraft.sim.check.group_members import CommitSent, GroupResponseSent, MemberJoined, MembershipRequested
from kraft.sim.cluster.shape import node_of
from kraft.sim.cluster.wire_observer import StreamDirection
from kraft.sim.world.endpoint import FakeEndpoint
from kraft.sim.world.streams import Stream
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey, is_flexible, response_header_version
from kraft.wire.error_codes import ErrorCode

_HEAD = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")
ANSWERED = (ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT, ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT)
ASKED = (*ANSWERED, ApiKey.LEAVE_GROUP)
DECODED = (ApiKey.OFFSET_COMMIT, ApiKey.CONSUMER_GROUP_HEARTBEAT)


class _Asked(NamedTuple):
    """A request that was sent at `at_ms`; `number` is its number among all that the members sent, and `request` is None
    unless it is needed."""

    key: ApiKey
    version: int
    number: int
    at_ms: int
    request: Any


class GroupObserver:
    """Observes the requests and responses of the group members on these hosts. `leadership_of(host)` identifies a
    coordinator and the period in which it leads its partition."""

    def __init__(
        self,
        members: Iterable[str],
        tell: Callable[[Any], None],
        now_ms: Callable[[], int],
        leadership_of: Callable[[str], object],
        topics: Callable[[], TopicsImage],
    ) -> None:
        self._members = frozenset(members)
        self._tell = tell
        self._now_ms = now_ms
        self._leadership_of = leadership_of
        self._topics = topics
        self._sent = 0
        """Number of requests that were sent."""
        self._directions: dict[Stream, StreamDirection] = {}
        self._asked: dict[tuple[Stream, int], _Asked] = {}
        """(stream of the requests, correlation id) → a request whose response is observed."""

    def sending(self, endpoint: FakeEndpoint, data: bytes) -> None:
        """Observe the complete frames in sent bytes."""
        source, target = endpoint.outgoing.source.name, endpoint.outgoing.target.name
        if source in self._members:
            for frame in self._frames(endpoint.outgoing, data):
                self._request(endpoint.outgoing, source, frame)
        elif target in self._members:
            for frame in self._frames(endpoint.outgoing, data):
                self._answer(endpoint.incoming, source, target, frame)

    def _frames(self, stream: Stream, data: bytes) -> Iterable[memoryview]:
        direction = self._directions.get(stream)
        if direction is None:
            direction = self._directions[stream] = StreamDirection()
        return direction.frames(data)

    def _request(self, stream: Stream, member: str, frame: memoryview) -> None:
        number, version, correlation_id, client_id_size = _HEAD.unpack_from(frame, 0)
        if number not in ASKED:
            return
        key = ApiKey(number)
        self._sent += 1
        request: Any = None
        if key in DECODED:
            body = frame[_HEAD.size + max(0, client_id_size) + is_flexible(key, version) :]
            request = messages.decode_request(key, version, body)
        if key in ANSWERED:
            self._asked[stream, correlation_id] = _Asked(key, version, self._sent, self._now_ms(), request)
        if key is ApiKey.OFFSET_COMMIT:
            self._commit(member, request)
        elif key in (ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP) or (request is not None and request.member_epoch <= 0):
            self._tell(MembershipRequested(member))

    def _commit(self, member: str, request: Any) -> None:
        offsets = {
            (str(topic.name), int(row.partition_index)): int(row.committed_offset)
            for topic in request.topics
            for row in topic.partitions
        }
        epoch = int(request.generation_id_or_member_epoch)
        self._tell(CommitSent(member, epoch, offsets))
        topics = self._topics()
        found = (topics.get(name) for name, _ in offsets)
        ids = {topic.name: topic.topic_id for topic in found if topic is not None}
        group, member_id = str(request.group_id), str(request.member_id)
        self._tell(CommitRequested(self._sent, group, member_id, epoch, offsets, ids))

    def _answer(self, requests: Stream, node: str, member: str, frame: memoryview) -> None:
        (correlation_id,) = _CORRELATION.unpack_from(frame, 0)
        asked = self._asked.pop((requests, correlation_id), None)
        if asked is None:
            return
        key, version = asked.key, asked.version
        answer = messages.decode_response(
            key, version, frame[_CORRELATION.size + response_header_version(key, version) :]
        )
        if key is ApiKey.JOIN_GROUP:
            if _code(answer.error_code) is ErrorCode.NONE:
                self._tell(MemberJoined(member, int(answer.generation_id)))
            return
        if key is ApiKey.OFFSET_COMMIT:
            codes = {
                (str(topic.name), int(row.partition_index)): _code(row.error_code)
                for topic in answer.topics
                for row in topic.partitions
            }
            accepted = frozenset(partition for partition, code in codes.items() if code is ErrorCode.NONE)
            self._tell(CommitAnswered(asked.number, str(asked.request.group_id), accepted))
            found = list(codes.values())
        else:
            found = [_code(answer.error_code)]
        error = next((code for code in found if code is not ErrorCode.NONE), ErrorCode.NONE)
        if key is ApiKey.CONSUMER_GROUP_HEARTBEAT and error is ErrorCode.NONE:
            self._heartbeat_accepted(node, member, asked.request, answer)
        is_leave = asked.request is not None and key is not ApiKey.OFFSET_COMMIT and asked.request.member_epoch < 0
        is_heartbeat = key is not ApiKey.OFFSET_COMMIT and not is_leave
        times = (asked.at_ms, self._now_ms())
        self._tell(GroupResponseSent(member, is_heartbeat, error, self._leadership_of(node), *times))

    def _heartbeat_accepted(self, node: str, member: str, request: Any, answer: Any) -> None:
        epoch = int(answer.member_epoch)
        if epoch > 0:
            self._tell(MemberJoined(member, epoch))
        assigned = None
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            assigned = frozenset((topic.topic_id, int(index)) for topic in topics for index in topic.partitions)
        group, member_id = str(request.group_id), str(request.member_id or answer.member_id)
        self._tell(HeartbeatAccepted(node_of(node) or 0, group, member_id, epoch, assigned))


def _code(code: Any) -> ErrorCode:
    return ErrorCode.of(int(code))
