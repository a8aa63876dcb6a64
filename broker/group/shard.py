"""Shard: the state of one offsets partition while this broker coordinates it. The other modules have the functions that
change it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from kraft.broker.consumer_group.memory import GroupMemory
from kraft.broker.consumer_group.settings import SettingsOf, default_settings
from kraft.broker.consumer_group.timers import ConsumerTimer
from kraft.broker.consumer_group.topics import NoTopics, TopicsView
from kraft.broker.group.classic_group import ClassicGroup, Member
from kraft.broker.group.durable import DurableState, StateVersions
from kraft.broker.group.staged import TopicPartition
from kraft.broker.group.timers import Timer, TimerKind
from kraft.broker.shard.timers import Timers
from kraft.broker.share_group.initialization import ShareMemory
from kraft.broker.share_group.requests import ShareMembershipSettings
from kraft.broker.share_group.timers import ShareSessionTimer

REMOVAL_BYTES_MAX = 256 * 1024


def default_share_settings(group: str) -> ShareMembershipSettings:
    """Return Kafka's defaults, for every share group."""
    return ShareMembershipSettings()


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of group coordinators, from the keys `group.…` and `offset…`. Times in ms."""

    initial_rebalance_delay_ms: int = 3_000
    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    members_max: int = 2**31 - 1
    metadata_chars_max: int = 4_096
    retention_ms: int = 7 * 24 * 3_600_000
    first_join_timeout_ms: int = 300_000
    """Maximum time that a member's first JoinGroup is parked; its connection may have ended unnoticed (KAFKA-7610)."""
    removal_bytes_max: int = REMOVAL_BYTES_MAX
    """Approximate maximum size in bytes of a group's removals in one batch; further removals go into the next batch."""
    settings_of: SettingsOf = default_settings
    """The settings of each consumer group."""
    share_settings_of: Callable[[str], ShareMembershipSettings] = default_share_settings
    """The settings of each share group."""


@dataclass(slots=True)
class GroupCounts:
    """Counters of all coordinators of one broker, for metrics."""

    commits: int = 0
    """Number of offsets in commit requests, whether or not the write succeeded."""
    expired_offsets: int = 0
    deleted_offsets: int = 0
    """Number of offsets removed on request or because their topic was deleted."""
    completed_rebalances: int = 0
    """Number of completed join phases of classic groups."""
    consumer_rebalances: int = 0
    """Number of times that the epoch of a consumer group rose."""
    share_rebalances: int = 0
    """Number of times that the epoch of a share group rose."""


class Shard:
    """The state of one coordinated offsets partition. `groups` has every group with records in the log or with members,
    except consumer groups, which are in the states. `versions` has the states computed from the log. `topics` are the
    newest topics of the cluster; `memories` has what is remembered of consumer groups besides their records."""

    __slots__ = ("counts", "groups", "memories", "settings", "share_memories", "timers", "topics", "versions")

    def __init__(self, settings: GroupSettings, state: DurableState, end_offset: int, counts: GroupCounts) -> None:
        self.settings = settings
        self.counts = counts
        self.versions = StateVersions(state, end_offset)
        self.timers: Timers[Timer | ConsumerTimer | ShareSessionTimer] = Timers()
        self.topics: TopicsView = NoTopics()
        self.memories: dict[str, GroupMemory] = {}
        self.share_memories: dict[str, ShareMemory] = {}
        self.groups: dict[str, ClassicGroup] = {}
        for group_id in sorted(
            {*state.groups, *state.offsets, *state.staged.groups} - set(state.consumers) - set(state.shares)
        ):
            self.groups[group_id] = ClassicGroup.loaded(group_id, state.groups.get(group_id))

    def reset_session(self, group: ClassicGroup, member: Member, now_ms: int) -> None:
        """Restart the session timeout, because the member has sent a request."""
        timer = Timer(TimerKind.SESSION, group.group_id, member.member_id)
        self.timers.set(timer, now_ms + member.session_timeout_ms)

    def forget_session(self, group: ClassicGroup, member_id: str) -> None:
        self.timers.cancel(Timer(TimerKind.SESSION, group.group_id, member_id))

    def topic_ids_of(self, group: str) -> dict[TopicPartition, list[UUID | None]]:
        """Return the stored topic ids of the committed and the staged offsets of each partition."""
        state = self.versions.newest
        found: dict[TopicPartition, list[UUID | None]] = {
            key: [value.topic_id] for key, value in state.offsets_of(group).items()
        }
        for key, rows in state.staged_of(group).items():
            found.setdefault(key, []).extend(row.value.topic_id for row in rows)
        return found

    def forget_if_gone(self, group_id: str) -> None:
        """Drop a group that has neither records in the log nor members."""
        group, state = self.groups.get(group_id), self.versions.newest
        is_stored = group_id in state.groups or group_id in state.offsets or group_id in state.staged.groups
        if group is not None and group.is_idle and not is_stored:
            del self.groups[group_id]
