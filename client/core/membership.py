"""Membership in a classic group as a value: the member's identity, and what it does about each error of the
coordinator.

Source: Kafka's AbstractCoordinator, ConsumerCoordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

from kraft.wire.error_codes import ErrorCode

NO_GENERATION = -1


class Reaction(Enum):
    NONE = "go on"
    RETRY = "ask again, after a pause"
    FIND_COORDINATOR = "find the coordinator again; id and generation stay"
    REJOIN = "join again under the same id"
    FORGET_GENERATION = "what was held is lost; join again under the same id"
    FORGET_ID = "what was held is lost; join again as a new member"
    GIVE_UP = "what was held is lost; the application is told"


_REACTIONS = MappingProxyType(
    {
        Reaction.NONE: (ErrorCode.NONE,),
        Reaction.RETRY: (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        Reaction.FIND_COORDINATOR: (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NETWORK_EXCEPTION,
        ),
        Reaction.REJOIN: (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED),
        Reaction.FORGET_GENERATION: (ErrorCode.ILLEGAL_GENERATION,),
        Reaction.FORGET_ID: (ErrorCode.UNKNOWN_MEMBER_ID,),
    }
)
REACTIONS: Mapping[ErrorCode, Reaction] = MappingProxyType(
    {code: reaction for reaction, codes in _REACTIONS.items() for code in codes}
)
"""What is not in it is GIVE_UP."""


@dataclass(frozen=True, slots=True)
class Member:
    """This member as the coordinator knows it. `generation` is NO_GENERATION outside the group."""

    member_id: str = ""
    generation: int = NO_GENERATION
    protocol: str | None = None

    @property
    def is_in_group(self) -> bool:
        return self.generation != NO_GENERATION

    def after(self, reaction: Reaction) -> Member:
        """The member once it has drawn the consequence."""
        if reaction in (Reaction.FORGET_ID, Reaction.GIVE_UP):
            return Member()
        if reaction is Reaction.FORGET_GENERATION:
            return replace(self, generation=NO_GENERATION, protocol=None)
        return self


def reaction_to(code: ErrorCode) -> Reaction:
    return REACTIONS.get(code, Reaction.GIVE_UP)
