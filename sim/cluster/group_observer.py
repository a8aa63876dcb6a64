"""Observes a group on the network: what its members send to their coordinator, and the responses. Nothing is read from
the client's state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from kraft.sim.check.group_members import CommitSent, GroupResponseSent, MemberJoined, MembershipRequested
from kraft.sim.cluster.wire_observer import StreamDirection
from kraft.sim.world.endpoint import FakeEndpoint
from kraft.sim.world.streams import Stream
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey, is_flexible, response_header_version
from kraft.wire.error_codes import ErrorCode

_HEAD = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")
ANSWERED = (ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT, ApiKey.JOIN_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT)
JOIN_EPOCH = 0
ASKED = (*ANSWERED, ApiKey.LEAVE_GROUP)


class GroupObserver:
    """Observes the requests and responses of the group members on these hosts. `leadership_of(host)` identifies a
    coordinator and the period in which it leads its partition."""

    def __init__(
        self,
        members: Iterable[str],
        tell: Callable[[Any], None],
        now_ms: Callable[[], int],
        leadership_of: Callable[[str], object],
    ) -> None:
        self._members = frozenset(members)
        self._tell = tell
        self._now_ms = now_ms
        self._leadership_of = leadership_of
        self._directions: dict[Stream, StreamDirection] = {}
        self._asked: dict[tuple[Stream, int], tuple[ApiKey, int]] = {}
        """(stream of the requests, correlation id) → key and version of a request whose response is observed."""

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
        if key in ANSWERED:
            self._asked[stream, correlation_id] = (key, version)
        if key in (ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP):
            self._tell(MembershipRequested(member))
        if key not in (ApiKey.OFFSET_COMMIT, ApiKey.CONSUMER_GROUP_HEARTBEAT):
            return
        body = frame[_HEAD.size + max(0, client_id_size) + is_flexible(key, version) :]
        request = messages.decode_request(key, version, body)
        if key is ApiKey.CONSUMER_GROUP_HEARTBEAT:
            if request.member_epoch <= JOIN_EPOCH:
                self._tell(MembershipRequested(member))
        else:
            offsets = {
                (str(topic.name), int(row.partition_index)): int(row.committed_offset)
                for topic in request.topics
                for row in topic.partitions
            }
            self._tell(CommitSent(member, int(request.generation_id_or_member_epoch), offsets))

    def _answer(self, requests: Stream, node: str, member: str, frame: memoryview) -> None:
        (correlation_id,) = _CORRELATION.unpack_from(frame, 0)
        asked = self._asked.pop((requests, correlation_id), None)
        if asked is None:
            return
        key, version = asked
        answer = messages.decode_response(
            key, version, frame[_CORRELATION.size + response_header_version(key, version) :]
        )
        if key is ApiKey.JOIN_GROUP:
            if _code(answer.error_code) is ErrorCode.NONE:
                self._tell(MemberJoined(member, int(answer.generation_id)))
            return
        is_heartbeat = key is not ApiKey.OFFSET_COMMIT
        if key is ApiKey.CONSUMER_GROUP_HEARTBEAT and _code(answer.error_code) is ErrorCode.NONE:
            self._tell(MemberJoined(member, int(answer.member_epoch)))
        codes = [answer.error_code] if is_heartbeat else [p.error_code for t in answer.topics for p in t.partitions]
        error = next((code for code in map(_code, codes) if code is not ErrorCode.NONE), ErrorCode.NONE)
        self._tell(GroupResponseSent(member, is_heartbeat, error, self._leadership_of(node), self._now_ms()))


def _code(code: Any) -> ErrorCode:
    return ErrorCode.of(int(code))
