"""The names of the timers of consumer groups."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class ConsumerTimerKind(Enum):
    SESSION = "a member was not heard of"
    REVOCATION = "the time to revoke partitions is over"
    CLASSIC_JOIN = "the time to join again with the classic protocol is over"
    CLASSIC_SYNC = "the time to ask for an assignment with the classic protocol is over"
    RESOLUTION = "topics are left to match with a regular expression"


class ConsumerTimer(NamedTuple):
    """The name of a timer; `member_id` is not used by RESOLUTION timers."""

    kind: ConsumerTimerKind
    group: str
    member_id: str = ""
