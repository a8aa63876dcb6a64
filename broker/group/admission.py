"""Find errors in a request itself, which do not depend on which broker coordinates its group.

Every broker makes these checks before it looks up the group. A client with a wrong setting must get the error for its
setting, not NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS, after which it would retry.
Source: Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

from kraft.broker.consumer_group.requests import ConsumerHeartbeatRequest
from kraft.broker.consumer_group.validation import heartbeat_error
from kraft.broker.group.requests import (
    GroupHeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    OffsetDeleteRequest,
    Reply,
    Request,
    SyncRequest,
)
from kraft.broker.group.shard import GroupSettings
from kraft.broker.share_group.requests import ShareHeartbeatRequest, share_heartbeat_error
from kraft.wire.error_codes import ErrorCode

NEED_A_GROUP_ID = (JoinRequest, SyncRequest, GroupHeartbeatRequest, LeaveRequest, OffsetDeleteRequest)
"""Types of requests that need a group id. Other requests also accept the empty group id, because consumers without a
group used to commit under it."""


def request_refusal(request: Request, settings: GroupSettings) -> Reply:
    """Return the reply to a request that has an error in itself; None if a coordinator may handle the request."""
    if isinstance(request, ConsumerHeartbeatRequest):
        refusal = heartbeat_error(request, settings.settings_of(request.group).assignors)
        return None if refusal is None else request.refused(*refusal)
    if isinstance(request, ShareHeartbeatRequest):
        problem = share_heartbeat_error(request)
        return None if problem is None else request.refused(*problem)
    error = request_error(request, settings)
    return None if error is ErrorCode.NONE else request.refused(error)


def request_error(request: Request, settings: GroupSettings) -> ErrorCode:
    """Return the error in the request itself, in Kafka's order of checks; NONE if a coordinator may handle the
    request."""
    if isinstance(request, NEED_A_GROUP_ID) and not request.group:
        return ErrorCode.INVALID_GROUP_ID
    if isinstance(request, JoinRequest):
        timeout_ms = request.session_timeout_ms
        if not settings.session_timeout_ms_min <= timeout_ms <= settings.session_timeout_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE
