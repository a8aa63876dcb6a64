"""Membership in a group as a value: the member's identity, and its reaction to each error of the coordinator.

Source: Kafka's AbstractCoordinator, ConsumerCoordinator, KIP-848.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from kraft.wire.error_codes import ErrorCode

NO_GENERATION = -1


class Reaction(Enum):
    NONE = "continue"
    RETRY = "retry after a backoff"
    FIND_COORDINATOR = "find the coordinator again; keep member id and generation"
    REJOIN = "rejoin with the same member id"
    FORGET_GENERATION = "all partitions are lost; rejoin with the same member id"
    FORGET_ID = "all partitions are lost; rejoin as a new member"
    GIVE_UP = "all partitions are lost; raise the error in the application"


_REACTIONS = MappingProxyType(
    {
        Reaction.NONE: (ErrorCode.NONE,),
        Reaction.RETRY: (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.UNSTABLE_OFFSET_COMMIT,
            ErrorCode.STALE_MEMBER_EPOCH,
        ),
        Reaction.FIND_COORDINATOR: (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NETWORK_EXCEPTION,
        ),
        Reaction.REJOIN: (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED),
        Reaction.FORGET_GENERATION: (ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_MEMBER_EPOCH),
        Reaction.FORGET_ID: (ErrorCode.UNKNOWN_MEMBER_ID,),
    }
)
REACTIONS: Mapping[ErrorCode, Reaction] = MappingProxyType(
    {code: reaction for reaction, codes in _REACTIONS.items() for code in codes}
)
"""Reaction to each error of the coordinator. The reaction to all other errors is GIVE_UP."""


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """This member as the coordinator identifies it. `generation` is NO_GENERATION while it is not in the group. In a
    consumer group (KIP-848), it is the member epoch."""

    member_id: str = ""
    generation: int = NO_GENERATION
    protocol: str | None = None
    is_member_epoch: bool = False

    @property
    def is_in_group(self) -> bool:
        return self.generation != NO_GENERATION

    def after(self, reaction: Reaction) -> MemberIdentity:
        """Return the identity that the member has after this reaction."""
        if reaction in (Reaction.FORGET_ID, Reaction.GIVE_UP):
            return MemberIdentity()
        if reaction is Reaction.FORGET_GENERATION:
            return replace(self, generation=NO_GENERATION, protocol=None)
        return self


def reaction_to(code: ErrorCode) -> Reaction:
    return REACTIONS.get(code, Reaction.GIVE_UP)
