"""Errors in a group request itself, which take precedence over NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.broker.group.admission import request_error
from kraft.broker.group.requests import (
    CommitRequest,
    DeleteRequest,
    DescribeRequest,
    FetchOffsetsRequest,
    GroupHeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    ListRequest,
    OffsetDeleteRequest,
    SyncRequest,
)
from kraft.broker.group.shard import GroupSettings
from kraft.wire.error_codes import ErrorCode

SETTINGS = GroupSettings(session_timeout_ms_min=6_000, session_timeout_ms_max=1_800_000)


def join(group: str, session_timeout_ms: int = 10_000) -> JoinRequest:
    return JoinRequest(group, "", None, "client", "/host", session_timeout_ms, 30_000, "consumer", (), "1")


@pytest.mark.parametrize(
    "request_of",
    [
        join,
        lambda group: SyncRequest(group, 1, "m"),
        lambda group: GroupHeartbeatRequest(group, 1, "m"),
        lambda group: LeaveRequest(group, ()),
        lambda group: OffsetDeleteRequest(group, ()),
    ],
)
def test_a_group_member_request_without_a_group_id_gets_invalid_group_id(request_of: Any) -> None:
    assert request_error(request_of(""), SETTINGS) is ErrorCode.INVALID_GROUP_ID
    assert request_error(request_of("g"), SETTINGS) is ErrorCode.NONE


@pytest.mark.parametrize(
    "request_of_the_empty_group",
    [
        CommitRequest("", -1, "", None, ()),
        FetchOffsetsRequest("", None),
        DescribeRequest(""),
        DeleteRequest(""),
        ListRequest(),
    ],
)
def test_the_empty_group_id_may_be_used_to_commit_fetch_describe_and_delete(request_of_the_empty_group: Any) -> None:
    assert request_error(request_of_the_empty_group, SETTINGS) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("session_timeout_ms", "error"),
    [
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, ErrorCode.NONE),
        (1_800_000, ErrorCode.NONE),
        (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_a_join_group_with_a_session_timeout_out_of_range_is_rejected(
    session_timeout_ms: int, error: ErrorCode
) -> None:
    assert request_error(join("g", session_timeout_ms), SETTINGS) is error
    assert request_error(join("", session_timeout_ms), SETTINGS) is ErrorCode.INVALID_GROUP_ID
