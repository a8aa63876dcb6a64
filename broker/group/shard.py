"""Shard: the state of one offsets partition while this broker coordinates it. The rules are in the other modules."""

from __future__ import annotations

from dataclasses import dataclass

from kraft.broker.group.classic_group import ClassicGroup, Member
from kraft.broker.group.durable import DurableState, StateVersions
from kraft.broker.group.timers import Timer, TimerKind, Timers

REMOVAL_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The group.… and offset… keys. Times in ms."""

    initial_rebalance_delay_ms: int = 3_000
    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    members_max: int = 2**31 - 1
    metadata_chars_max: int = 4_096
    retention_ms: int = 7 * 24 * 3_600_000
    first_join_timeout_ms: int = 300_000
    """How long a member may wait in its first join: its connection may have ended unnoticed (KAFKA-7610)."""
    removal_bytes_max: int = REMOVAL_BYTES_MAX
    """What one batch removes of a group, about: the rest goes with the next."""


@dataclass(slots=True)
class GroupCounts:
    """What the coordinators of one broker count, for metrics. Counts only rise."""

    commits: int = 0
    """Offsets that were handed on to be committed."""
    expired_offsets: int = 0
    deleted_offsets: int = 0
    """Of topics that were deleted, or on request."""
    completed_rebalances: int = 0
    """Join phases that ended."""


class Shard:
    """`groups`: every group that the log or a member knows. `versions`: what the log says."""

    __slots__ = ("counts", "groups", "settings", "timers", "versions")

    def __init__(self, settings: GroupSettings, state: DurableState, end_offset: int, counts: GroupCounts) -> None:
        self.settings = settings
        self.counts = counts
        self.versions = StateVersions(state, end_offset)
        self.timers = Timers()
        self.groups: dict[str, ClassicGroup] = {}
        for group_id in sorted({*state.groups, *state.offsets}):
            self.groups[group_id] = ClassicGroup.loaded(group_id, state.groups.get(group_id))

    def reset_session(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        """The member was heard of."""
        timer = Timer(TimerKind.SESSION, group.group_id, member.member_id)
        self.timers.set(timer, now_ms + member.session_timeout_ms)

    def forget_session(self, group: ClassicGroup, member_id: str) -> None:
        self.timers.cancel(Timer(TimerKind.SESSION, group.group_id, member_id))

    def forget_if_gone(self, group_id: str) -> None:
        """Drop a group of which nothing is left in the log, and in which nobody is."""
        group, state = self.groups.get(group_id), self.versions.newest
        if group is not None and group.is_idle and group_id not in state.groups and group_id not in state.offsets:
            del self.groups[group_id]
