"""GroupCoordinator: the state machine of one offsets partition, as its driver calls it.

The driver calls `handle` for a request, `fire` for a timer, `stored` and `failed` for the rest of an earlier step. Each
returns a Step. After a step with entries the driver calls `appended`, or `failed` for the rest of the step, before the
next call. Calls come one at a time, in the order of the log. Nothing here waits, draws or reads a clock.
Source: docs/decisions/14-group-coordinator.md, Kafka's CoordinatorRuntime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from kraft.broker.group.classic_group import ClassicGroup
from kraft.broker.group.durable import DurableState
from kraft.broker.group.expiry import delete_group, expire, forget_topics
from kraft.broker.group.joining import join, not_replaced, replaced
from kraft.broker.group.membership import heartbeat, leave, session_over, shrink_if_too_large
from kraft.broker.group.offsets import commit, delete_offsets, fetch, read_offsets
from kraft.broker.group.rebalance import dismiss_requests, join_time_over, sync_time_over
from kraft.broker.group.records import Entry
from kraft.broker.group.requests import (
    CommitRequest,
    DeleteRequest,
    DescribeReply,
    DescribeRequest,
    ExpireRequest,
    FetchRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    ListedGroup,
    ListReply,
    ListRequest,
    OffsetDeleteRequest,
    Reply,
    Request,
    SyncRequest,
    Ticket,
    TopicsGoneRequest,
)
from kraft.broker.group.shard import GroupCounts, GroupSettings, Shard
from kraft.broker.group.step import (
    After,
    Answer,
    AssignmentStored,
    GoOn,
    Now,
    ReadStable,
    StaticMemberReplaced,
    Step,
    Turn,
)
from kraft.broker.group.syncing import assigned, not_assigned, sync
from kraft.broker.group.timers import TimerKind
from kraft.wire.error_codes import ErrorCode


class GroupCoordinator:
    """One partition's groups, from the end of loading to `unload`."""

    def __init__(
        self, settings: GroupSettings, state: DurableState, end_offset: int, counts: GroupCounts | None = None
    ) -> None:
        """`state`: what the log said below `end_offset`, all of it committed. `counts`: of all of a broker's."""
        self._shard = Shard(settings, state, end_offset, counts or GroupCounts())

    # for the driver

    @property
    def end_offset(self) -> int:
        """Log offset that the newest state has reached: where the next batch must go."""
        return self._shard.versions.end_offset

    @property
    def committed(self) -> DurableState:
        """What the log says below the high watermark."""
        return self._shard.versions.committed

    @property
    def newest(self) -> DurableState:
        """What the log says up to its end."""
        return self._shard.versions.newest

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """For looking at only."""
        return self._shard.groups

    @property
    def next_timer_ms(self) -> int | None:
        """When to call `fire`, on the monotonic clock; None for never."""
        return self._shard.timers.next_ms

    def begin(self, now: Now) -> Step:
        """The partition is loaded: every member has its full session time from here."""
        turn = Turn(now)
        for group in list(self._shard.groups.values()):
            for member in group.members.values():
                self._shard.reset_session(group, member, now.monotonic_ms)
            shrink_if_too_large(self._shard, group, turn)
        return turn.step()

    def appended(self, entries: Iterable[Entry], end_offset: int) -> None:
        """A step's entries stand in the log, which ends at `end_offset` now."""
        shard, entries = self._shard, tuple(entries)
        shard.versions.appended(shard.versions.newest.with_entries(entries), end_offset)
        for group_id in dict.fromkeys(entry.key.group for entry in entries):
            if group_id not in shard.groups:
                shard.groups[group_id] = ClassicGroup.loaded(group_id, shard.versions.newest.groups.get(group_id))
            shard.forget_if_gone(group_id)

    def advance(self, high_watermark: int) -> None:
        """The high watermark is here now."""
        self._shard.versions.advance(high_watermark)

    def handle(self, request: Request, ticket: Ticket, now: Now) -> Step:
        """One request."""
        turn = Turn(now)
        HANDLERS[type(request)](self._shard, request, ticket, turn)
        return turn.step()

    def fire(self, now: Now) -> Step | None:
        """One timer that is due; None if there is none."""
        timer = self._shard.timers.pop_due(now.monotonic_ms)
        if timer is None:
            return None
        turn = Turn(now)
        group = self._shard.groups.get(timer.group)
        if group is not None:
            if timer.kind is TimerKind.SESSION:
                session_over(self._shard, group, timer.member_id, turn)
            elif timer.kind is TimerKind.JOIN:
                join_time_over(self._shard, group, turn)
            else:
                sync_time_over(self._shard, group, turn)
        return turn.step()

    def stored(self, after: After, now: Now) -> Step:
        """The entries of the step that asked for this are committed (and so is everything older)."""
        turn = Turn(now)
        match after:
            case Answer(ticket, _, reply):
                turn.reply(ticket, reply)
            case GoOn(ticket, request):
                HANDLERS[type(request)](self._shard, request, ticket, turn)
            case AssignmentStored():
                assigned(self._shard, after, turn)
            case StaticMemberReplaced():
                replaced(self._shard, after, turn)
            case ReadStable(ticket, request):
                turn.reply(ticket, _read(self._shard, request))
        return turn.step()

    def failed(self, after: After, error: ErrorCode, now: Now) -> Step:
        """They were not appended, or it is not known in time whether they will be committed."""
        turn = Turn(now)
        match after:
            case Answer(ticket, request, _) | GoOn(ticket, request) | ReadStable(ticket, request):
                turn.reply(ticket, request.refused(error))
            case AssignmentStored():
                not_assigned(self._shard, after, error, turn)
            case StaticMemberReplaced():
                not_replaced(self._shard, after, error, turn)
        return turn.step()

    def unload(self, now: Now) -> Step:
        """Somebody else coordinates these groups now: all that is parked is answered, and nothing is known any more."""
        turn = Turn(now)
        for group in self._shard.groups.values():
            for member in group.members.values():
                dismiss_requests(member, turn, ErrorCode.NOT_COORDINATOR)
        self._shard.groups.clear()
        return turn.step()

    # for the driver's rounds

    def group_ids(self) -> list[str]:
        """Every group, for a round of `ExpireRequest`."""
        return list(self._shard.groups)

    def offset_count(self, group: str) -> int:
        """How many offsets the group has: what a look at it costs."""
        return len(self._shard.versions.newest.offsets_of(group))

    def topics_of(self, group: str) -> set[tuple[str, UUID | None]]:
        """Name and stored id of the topics of which the group has offsets, for a round of `TopicsGoneRequest`."""
        offsets = self._shard.versions.newest.offsets_of(group)
        return {(topic, value.topic_id) for (topic, _), value in offsets.items()}


def _read_stable(shard: Shard, request: Request, ticket: Ticket, turn: Turn) -> None:
    turn.then(ReadStable(ticket, request))


def _read(shard: Shard, request: Request) -> Reply:
    if isinstance(request, FetchRequest):
        return read_offsets(shard.versions.committed, request)
    if isinstance(request, DescribeRequest):
        group = shard.groups.get(request.group)
        return DescribeReply(ErrorCode.GROUP_ID_NOT_FOUND, "Dead") if group is None else group.describe()
    return ListReply(
        ErrorCode.NONE,
        tuple(
            ListedGroup(group.group_id, group.protocol_type or "", group.state.value) for group in shard.groups.values()
        ),
    )


HANDLERS: Mapping[type, Callable[[Shard, Any, Ticket, Turn], None]] = MappingProxyType(
    {
        JoinRequest: join,
        SyncRequest: sync,
        HeartbeatRequest: heartbeat,
        LeaveRequest: leave,
        CommitRequest: commit,
        FetchRequest: fetch,
        OffsetDeleteRequest: delete_offsets,
        DeleteRequest: delete_group,
        DescribeRequest: _read_stable,
        ListRequest: _read_stable,
        ExpireRequest: expire,
        TopicsGoneRequest: forget_topics,
    }
)
"""What is asked → the rule that answers."""
