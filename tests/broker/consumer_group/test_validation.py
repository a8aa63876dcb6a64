"""Errors in a heartbeat itself, which every broker finds before it looks for the group."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kraft.broker.consumer_group.requests import ConsumerHeartbeatRequest
from kraft.broker.group.admission import request_refusal
from kraft.broker.group.requests import GroupHeartbeatReply, GroupHeartbeatRequest, LeaveRequest
from kraft.broker.group.shard import GroupSettings
from kraft.wire.error_codes import ErrorCode

JOIN: dict[str, Any] = {
    "group": "g",
    "member_id": "m",
    "epoch": 0,
    "rebalance_timeout_ms": 1,
    "subscribed_names": ("t",),
    "owned": {},
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": ""},
        {"member_id": ""},
        {"epoch": -3},
        {"epoch": -2},
        {"rebalance_timeout_ms": None},
        {"owned": None},
        {"owned": {UUID(int=1): frozenset({0})}},
        {"subscribed_names": None},
        {"subscribed_names": (), "subscribed_regex": ""},
        {"instance_id": ""},
        {"rack": ""},
        {"server_assignor": ""},
    ],
)
def test_an_invalid_heartbeat_is_refused_with_a_reason(wrong: dict[str, Any]) -> None:
    reply = request_refusal(ConsumerHeartbeatRequest(**{**JOIN, **wrong}), GroupSettings())
    assert reply is not None
    assert reply.error is ErrorCode.INVALID_REQUEST  # type: ignore[union-attr]
    assert reply.message  # type: ignore[union-attr]


@pytest.mark.parametrize("assignor", ["sticky", "Range"])
def test_an_unknown_assignor_is_refused_with_the_known_ones(assignor: str) -> None:
    request = ConsumerHeartbeatRequest(**{**JOIN, "server_assignor": assignor})
    reply = request_refusal(request, GroupSettings())
    assert reply is not None
    assert reply.error is ErrorCode.UNSUPPORTED_ASSIGNOR  # type: ignore[union-attr]
    assert "uniform, range" in reply.message  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"subscribed_names": None, "subscribed_regex": "t"},
        {"server_assignor": "range"},
        {"epoch": 5, "owned": None, "subscribed_names": None, "rebalance_timeout_ms": None},
        {"epoch": -1, "owned": None, "subscribed_names": None, "rebalance_timeout_ms": None},
        {"epoch": -2, "instance_id": "i"},
    ],
)
def test_a_valid_heartbeat_goes_to_the_coordinator(fields: dict[str, Any]) -> None:
    assert request_refusal(ConsumerHeartbeatRequest(**{**JOIN, **fields}), GroupSettings()) is None


def test_a_classic_request_is_checked_as_before() -> None:
    refused = request_refusal(GroupHeartbeatRequest("", 1, "m"), GroupSettings())
    assert refused == GroupHeartbeatReply(ErrorCode.INVALID_GROUP_ID)
    assert request_refusal(LeaveRequest("g", ()), GroupSettings()) is None
