"""A group member's reaction to each error of its coordinator."""

from __future__ import annotations

import pytest

from kraft.client.core.membership import MemberIdentity, Reaction, reaction_to
from kraft.wire.error_codes import ErrorCode

ME = MemberIdentity("m-1", 7, "range")


@pytest.mark.parametrize(
    ("code", "reaction", "left"),
    [
        (ErrorCode.NONE, Reaction.NONE, ME),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Reaction.RETRY, ME),
        (ErrorCode.NOT_COORDINATOR, Reaction.FIND_COORDINATOR, ME),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Reaction.FIND_COORDINATOR, ME),
        (ErrorCode.REBALANCE_IN_PROGRESS, Reaction.REJOIN, ME),
        (ErrorCode.ILLEGAL_GENERATION, Reaction.FORGET_GENERATION, MemberIdentity("m-1")),
        (ErrorCode.UNKNOWN_MEMBER_ID, Reaction.FORGET_ID, MemberIdentity()),
        (ErrorCode.FENCED_INSTANCE_ID, Reaction.GIVE_UP, MemberIdentity()),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, Reaction.GIVE_UP, MemberIdentity()),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, Reaction.GIVE_UP, MemberIdentity()),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Reaction.GIVE_UP, MemberIdentity()),
    ],
)
def test_each_coordinator_error_gives_the_expected_reaction_and_member_identity(
    code: ErrorCode, reaction: Reaction, left: MemberIdentity
) -> None:
    assert reaction_to(code) is reaction
    assert ME.after(reaction) == left


def test_a_member_without_a_generation_is_not_in_the_group() -> None:
    assert ME.is_in_group
    assert not MemberIdentity("m-1").is_in_group
