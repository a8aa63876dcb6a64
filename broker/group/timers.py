"""The names of the timers of a group: sessions, and the two phases of a rebalance."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class TimerKind(Enum):
    SESSION = "a member was not heard of"
    JOIN = "the time to join the next generation is over"
    SYNC = "the time to ask for an assignment is over"


class Timer(NamedTuple):
    """The name of a timer; `member_id` is used only by SESSION timers."""

    kind: TimerKind
    group: str
    member_id: str = ""
