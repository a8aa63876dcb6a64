"""ListGroups, DescribeGroups, DeleteGroups: administrators' requests about the groups that this broker coordinates.

A client that may DESCRIBE the cluster gets all groups from ListGroups; every other client gets the groups that it may
describe. A group that does not exist, or is not a classic group, is described as "Dead", and before version 6 without
an error.
Source: ListGroupsRequest 0 to 5, DescribeGroupsRequest 0 to 6, DeleteGroupsRequest 0 to 2, KIP-518 (states), KIP-848
(types).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kraft.broker.api.group_offsets import group_resource
from kraft.broker.group.requests import (
    DeleteReply,
    DeleteRequest,
    DescribeReply,
    DescribeRequest,
    ListedGroup,
    ListReply,
)
from kraft.broker.serving.gates import AUTHORIZED_OPERATIONS_OMITTED, Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

FIRST_DESCRIBE_WITH_MISSING_GROUPS = 6


def handle_list_groups(context: HandlerContext, request: Request, session: Session) -> None:
    """List the groups that this broker coordinates. The response has an error if some groups are still being loaded."""
    message = read(request)
    states = {state.lower() for state in message.states_filter}
    types = {kind.lower() for kind in message.types_filter}
    sees_all = context.gates.authorize_cluster(session, Operation.DESCRIBE)
    row = part(ApiKey.LIST_GROUPS, "ListedGroup")

    def is_shown(one: ListedGroup) -> bool:
        if (states and one.state.lower() not in states) or (types and one.group_type not in types):
            return False
        return sees_all or context.gates.authorize(session, Operation.DESCRIBE, group_resource(one.group))

    def reply(answered: ListReply) -> None:
        rows = [
            row(group_id=one.group, protocol_type=one.protocol_type, group_state=one.state, group_type=one.group_type)
            for one in answered.groups
            if is_shown(one)
        ]
        answer(request, respond(ApiKey.LIST_GROUPS, error_code=answered.error, groups=rows))

    context.groups.list_groups(partial(context.finish, request, reply))


def handle_describe_groups(context: HandlerContext, request: Request, session: Session) -> None:
    """Describe each group with its members. The coordinator of the group answers for it."""
    message = read(request)
    rows: list[Any] = [None] * len(message.groups)
    missing = len(rows)

    def finish() -> None:
        answer(request, respond(ApiKey.DESCRIBE_GROUPS, groups=rows))

    def ask(number: int, group: str) -> None:
        def reply(answered: DescribeReply) -> None:
            nonlocal missing
            operations = AUTHORIZED_OPERATIONS_OMITTED
            if message.include_authorized_operations and answered.error is not ErrorCode.GROUP_AUTHORIZATION_FAILED:
                operations = context.gates.authorized_operations(session, group_resource(group))
            rows[number] = _described(request.api_version, group, answered, operations)
            missing -= 1
            if not missing:
                finish()

        if context.gates.authorize(session, Operation.DESCRIBE, group_resource(group)):
            context.groups.submit(DescribeRequest(group), partial(context.finish, request, reply))
        else:
            reply(DescribeReply(ErrorCode.GROUP_AUTHORIZATION_FAILED))

    if not rows:
        finish()
    for number, group in enumerate(message.groups):
        ask(number, group)


def _described(version: int, group: str, answered: DescribeReply, operations: int) -> Any:
    error, text = answered.error, answered.message
    if error is ErrorCode.GROUP_ID_NOT_FOUND and version < FIRST_DESCRIBE_WITH_MISSING_GROUPS:
        error, text = ErrorCode.NONE, None
    member_class = part(ApiKey.DESCRIBE_GROUPS, "DescribedGroupMember")
    members = [
        member_class(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata,
            member_assignment=member.assignment,
        )
        for member in answered.members
    ]
    return part(ApiKey.DESCRIBE_GROUPS, "DescribedGroup")(
        error_code=error,
        error_message=text,
        group_id=group,
        group_state=answered.state,
        protocol_type=answered.protocol_type,
        protocol_data=answered.protocol,
        members=members,
        authorized_operations=operations,
    )


def handle_delete_groups(context: HandlerContext, request: Request, session: Session) -> None:
    """Delete or reject each group independently."""
    message = read(request)
    names = list(dict.fromkeys(message.groups_names))
    rows: dict[str, Any] = {}
    row = part(ApiKey.DELETE_GROUPS, "DeletableGroupResult")

    def finish() -> None:
        answer(request, respond(ApiKey.DELETE_GROUPS, results=[rows[name] for name in names]))

    def ask(group: str) -> None:
        def reply(answered: DeleteReply) -> None:
            rows[group] = row(group_id=group, error_code=answered.error)
            if len(rows) == len(names):
                finish()

        if context.gates.authorize(session, Operation.DELETE, group_resource(group)):
            context.groups.submit(DeleteRequest(group), partial(context.finish, request, reply))
        else:
            reply(DeleteReply(ErrorCode.GROUP_AUTHORIZATION_FAILED))

    if not names:
        finish()
    for name in names:
        ask(name)
