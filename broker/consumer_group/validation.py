"""Find errors in a heartbeat itself, which do not depend on the group.

Source: ConsumerGroupHeartbeatRequest 0 to 1, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kraft.broker.consumer_group.assignors.names import ASSIGNORS
from kraft.broker.consumer_group.requests import JOIN_EPOCH, LEAVE_STATIC_EPOCH, ConsumerHeartbeatRequest
from kraft.wire.error_codes import ErrorCode


class GroupRefusal(NamedTuple):
    """Why a request is refused: the error code, and a sentence for the client's log."""

    error: ErrorCode
    message: str


def heartbeat_error(request: ConsumerHeartbeatRequest, assignors: Sequence[str]) -> GroupRefusal | None:
    """Return the first error in the request itself, in Kafka's order; None if a coordinator may handle the request.
    `assignors` are the names that the broker allows."""
    for message in _problems(request):
        return GroupRefusal(ErrorCode.INVALID_REQUEST, message)
    assignor = request.server_assignor
    if assignor is not None and (assignor not in assignors or assignor not in ASSIGNORS):
        known = ", ".join(name for name in assignors if name in ASSIGNORS)
        message = f"ServerAssignor {assignor} is not supported. Supported assignors: {known}."
        return GroupRefusal(ErrorCode.UNSUPPORTED_ASSIGNOR, message)
    return None


def _problems(request: ConsumerHeartbeatRequest) -> Iterator[str]:
    if _is_blank(request.member_id):
        yield "MemberId can't be empty."
    if _is_blank(request.group):
        yield "GroupId can't be empty."
    if _is_blank(request.instance_id):
        yield "InstanceId can't be empty."
    if _is_blank(request.rack):
        yield "RackId can't be empty."
    if request.epoch < LEAVE_STATIC_EPOCH:
        yield "MemberEpoch is invalid."
    if request.epoch == JOIN_EPOCH:
        yield from _join_problems(request)
    if request.epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        yield "InstanceId can't be null."


def _is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def _join_problems(request: ConsumerHeartbeatRequest) -> Iterator[str]:
    """Yield what a join lacks. No topic names at all, or an empty expression, are a subscription too: a client whose
    pattern matches no topic joins with it."""
    if request.rebalance_timeout_ms is None:
        yield "RebalanceTimeoutMs must be provided in first request."
    if request.owned is None or request.owned:
        yield "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_names is None and request.subscribed_regex is None:
        yield "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
