"""ShareGroupHeartbeat and ShareGroupDescribe: authorize, translate, and pass the request to the coordinator.

Both are answered with UNSUPPORTED_VERSION while the feature share.version is at level 0. `assigned_groups` says which
rights they need.
Source: ShareGroupHeartbeatRequest 1, ShareGroupDescribeRequest 1, KIP-932.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft.broker.api.groups.assigned_groups import GroupProtocol, describe_groups, encode_assignment, submit_heartbeat
from kraft.broker.serving.request_versions import part, read
from kraft.broker.serving.session import Session
from kraft.broker.share_group.requests import (
    DescribedShareMember,
    ShareDescribeReply,
    ShareDescribeRequest,
    ShareHeartbeatRequest,
)
from kraft.image.image import SHARE_FEATURE
from kraft.wire.api_keys import ApiKey
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

DESCRIBE = ApiKey.SHARE_GROUP_DESCRIBE
FIRST_LEVEL_WITH_SHARE_GROUPS = 1
NOT_SERVED = "This cluster does not serve share groups: it needs the feature share.version at level 1."


def serves_share_groups(context: HandlerContext) -> bool:
    """Return whether share groups are on."""
    return context.image.features.get(SHARE_FEATURE, 0) >= FIRST_LEVEL_WITH_SHARE_GROUPS


def handle_share_group_heartbeat(context: HandlerContext, request: Request, session: Session) -> None:
    """Take a member's heartbeat: it joins, gets what it is assigned, or leaves."""
    message = read(request)
    beat = ShareHeartbeatRequest(
        group=message.group_id,
        member_id=message.member_id,
        epoch=message.member_epoch,
        client_id=session.client_id,
        client_host=f"/{session.client_address}",
        rack=message.rack_id,
        subscribed_names=message.subscribed_topic_names,
    )
    submit_heartbeat(SHARE, context, request, session, beat)


def handle_share_group_describe(context: HandlerContext, request: Request, session: Session) -> None:
    """Describe each share group with its members. The coordinator of the group answers for it."""
    describe_groups(SHARE, context, request, session)


def _member(member: DescribedShareMember) -> Any:
    return part(DESCRIBE, "Member")(
        member_id=member.member_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_names,
        assignment=encode_assignment(DESCRIBE, member.assignment),
    )


SHARE = GroupProtocol(
    ApiKey.SHARE_GROUP_HEARTBEAT,
    DESCRIBE,
    serves_share_groups,
    NOT_SERVED,
    ShareDescribeRequest,
    ShareDescribeReply,
    lambda member: member.assignment,
    _member,
)
