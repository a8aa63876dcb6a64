"""Errors that a request has by itself, whichever broker coordinates its group.

Every broker looks for them before it looks for the group: a client with a wrong setting must see its own error, not
NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS, after which it would ask again.
Source: Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

from kraft.broker.group.requests import (
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    OffsetDeleteRequest,
    Request,
    SyncRequest,
)
from kraft.broker.group.shard import GroupSettings
from kraft.wire.error_codes import ErrorCode

NEED_A_GROUP_ID = (JoinRequest, SyncRequest, HeartbeatRequest, LeaveRequest, OffsetDeleteRequest)
"""The others take the empty group id too: consumers without a group used to commit under it."""


def request_error(request: Request, settings: GroupSettings) -> ErrorCode:
    """Return the error of the request itself, in Kafka's order of checks; NONE if it may go to its coordinator."""
    if isinstance(request, NEED_A_GROUP_ID) and not request.group:
        return ErrorCode.INVALID_GROUP_ID
    if isinstance(request, JoinRequest):
        timeout_ms = request.session_timeout_ms
        if not settings.session_timeout_ms_min <= timeout_ms <= settings.session_timeout_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE
