"""The names of the timers of share groups."""

from __future__ import annotations

from typing import NamedTuple


class ShareSessionTimer(NamedTuple):
    """The name of the timer that fires when a member was not heard of for its session timeout."""

    group: str
    member_id: str
