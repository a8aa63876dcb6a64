"""GroupCoordinator: the state machine of one offsets partition, as its driver calls it.

The driver calls `handle` for a request and `fire` for a timer. When the entries of an earlier step are committed (or
failed), it passes the remaining work of that step to `stored` (or `failed`). Each call returns a CoordinatorStep. After
a step with entries, the driver calls `appended` before the next call; if the append failed, it passes the remaining
work to `failed` instead.

Calls come one at a time, in the order of the log. Nothing here waits, draws random numbers or reads a clock.
Source: docs/decisions/14-group-coordinator.md, Kafka's CoordinatorRuntime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from kraft.broker.consumer_group.records import ConsumerGroupValue, ConsumerLogEntry
from kraft.broker.consumer_group.requests import ConsumerDescribeRequest, ConsumerHeartbeatRequest
from kraft.broker.consumer_group.timers import ConsumerTimer
from kraft.broker.consumer_group.topics import TopicsView
from kraft.broker.group.classic_group import ClassicGroup
from kraft.broker.group.consumer_groups import (
    begin_consumer_groups,
    consumer_heartbeat,
    consumer_timer_failed,
    consumer_timer_fired,
    consumer_write_failed,
    describe_consumer_group,
    list_consumer_groups,
    read_description,
)
from kraft.broker.group.durable import DurableState, StateEntry
from kraft.broker.group.expiry import delete_group, expire, forget_topics
from kraft.broker.group.joining import join, replaced, static_replacement_failed
from kraft.broker.group.membership import heartbeat, leave, session_timed_out, shrink_if_too_large
from kraft.broker.group.migrating import begin_downgraded_group, begin_downgraded_groups, forget_classic_group
from kraft.broker.group.offsets import (
    commit,
    commit_in_transaction,
    delete_offsets,
    end_transaction,
    fetch,
    read_offsets,
)
from kraft.broker.group.rebalance import join_timed_out, reject_parked_requests, sync_timed_out
from kraft.broker.group.requests import (
    CommitRequest,
    DeleteRequest,
    DescribeReply,
    DescribeRequest,
    ExpireRequest,
    FetchOffsetsRequest,
    GroupHeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    ListedGroup,
    ListReply,
    ListRequest,
    MarkerRequest,
    OffsetDeleteRequest,
    Reply,
    Request,
    SyncRequest,
    Ticket,
    TopicsGoneRequest,
    TxnCommitRequest,
)
from kraft.broker.group.shard import GroupCounts, GroupSettings, Shard
from kraft.broker.group.share_groups import (
    begin_share_groups,
    describe_group_of_shares,
    heartbeat_in_share_group,
    list_share_groups,
    prepare_alteration,
    prepare_deletion,
    raise_share_epoch,
    read_share_description,
    share_initialization_failed,
    share_states_deleted,
    share_states_initialized,
    share_timer_failed,
    share_timer_fired,
)
from kraft.broker.group.step import (
    After,
    AssignmentStored,
    ConsumerTimerFired,
    ContinueRequest,
    CoordinatorCall,
    CoordinatorStep,
    DeleteShareStates,
    GroupDowngraded,
    InitializeShareStates,
    ReadStableOffsets,
    SendReply,
    ShareTimerFired,
    StaticMemberReplaced,
    Written,
)
from kraft.broker.group.syncing import assigned, assignments_failed, sync
from kraft.broker.group.timers import TimerKind
from kraft.broker.shard.now import Now
from kraft.broker.shard.transactional import StagedEntry, TransactionEnd, entries_in_log
from kraft.broker.share_group.records import ShareGroupLogEntry, ShareGroupValue
from kraft.broker.share_group.requests import (
    PrepareAlterRequest,
    PrepareDeleteRequest,
    RaiseEpochRequest,
    ShareDescribeRequest,
    ShareHeartbeatRequest,
    ShareInitializedRequest,
    StatesDeletedRequest,
)
from kraft.broker.share_group.timers import ShareSessionTimer
from kraft.wire.error_codes import ErrorCode


class GroupCoordinator:
    """The groups of one offsets partition, from the end of loading until `unload`."""

    def __init__(
        self, settings: GroupSettings, state: DurableState, end_offset: int, counts: GroupCounts | None = None
    ) -> None:
        """`state` is the state loaded from the log below `end_offset`, all of it committed. All coordinators of a
        broker share `counts`."""
        self._shard = Shard(settings, state, end_offset, counts or GroupCounts())

    # for the driver

    @property
    def end_offset(self) -> int:
        """Log end offset up to which the newest state includes records; the next batch must be appended there."""
        return self._shard.versions.end_offset

    @property
    def committed(self) -> DurableState:
        """The state below the high watermark."""
        return self._shard.versions.committed

    @property
    def newest(self) -> DurableState:
        """The state up to the end of the log."""
        return self._shard.versions.newest

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """The classic groups by id; callers must not change the mapping."""
        return self._shard.groups

    def topics_changed(self, topics: TopicsView) -> None:
        """Take the newest topics of the cluster, before the first request and after every change of a topic."""
        self._shard.topics = topics

    @property
    def next_timer_ms(self) -> int | None:
        """Monotonic time in ms at which to call `fire`; None if no timer is set."""
        return self._shard.timers.next_ms

    def begin(self, now: Now) -> CoordinatorStep:
        """Begin when the partition is loaded: the full session timeout of every member starts now."""
        call = CoordinatorCall(now)
        for group in list(self._shard.groups.values()):
            for member in group.members.values():
                self._shard.reset_session(group, member, now.monotonic_ms)
            shrink_if_too_large(self._shard, group, call)
        begin_consumer_groups(self._shard, call)
        begin_share_groups(self._shard, call)
        begin_downgraded_groups(self._shard, call)
        return call.step()

    def appended(self, entries: Iterable[Written], end_offset: int) -> None:
        """Record that a step's entries were appended to the log, which now ends at `end_offset`."""
        shard = self._shard
        found: tuple[StateEntry, ...] = tuple(
            entry for written in entries for entry in entries_in_log(written, end_offset)
        )
        groups = dict.fromkeys(group for entry in found for group in self._groups_of(entry))
        shard.versions.appended(shard.versions.newest.with_entries(found), end_offset)
        consumers, shares = shard.versions.newest.consumers, shard.versions.newest.shares
        for entry in found:
            if isinstance(entry, ConsumerLogEntry):
                shard.counts.consumer_rebalances += isinstance(entry.value, ConsumerGroupValue)
            elif isinstance(entry, ShareGroupLogEntry):
                shard.counts.share_rebalances += isinstance(entry.value, ShareGroupValue)
        for group_id in groups:
            if group_id in consumers or group_id in shares:
                forget_classic_group(shard, group_id)
                continue
            if group_id not in shard.groups:
                shard.memories.pop(group_id, None)
                shard.share_memories.pop(group_id, None)
                shard.groups[group_id] = ClassicGroup.loaded(group_id, shard.versions.newest.groups.get(group_id))
            shard.forget_if_gone(group_id)

    def _groups_of(self, entry: StateEntry) -> Iterable[str]:
        """Return the ids of the groups that an entry changes."""
        if isinstance(entry, TransactionEnd):
            return self._shard.versions.newest.staged.groups_of(entry.producer_id)
        return (entry.entry.key.group if isinstance(entry, StagedEntry) else entry.key.group,)

    def advance(self, high_watermark: int) -> None:
        """Apply a new high watermark."""
        self._shard.versions.advance(high_watermark)

    def handle(self, request: Request, ticket: Ticket, now: Now) -> CoordinatorStep:
        """Handle one request."""
        call = CoordinatorCall(now)
        HANDLERS[type(request)](self._shard, request, ticket, call)
        return call.step()

    def fire(self, now: Now) -> CoordinatorStep | None:
        """Fire one due timer. Return None if none is due."""
        timer = self._shard.timers.pop_due(now.monotonic_ms)
        if timer is None:
            return None
        call = CoordinatorCall(now)
        if isinstance(timer, ConsumerTimer):
            consumer_timer_fired(self._shard, timer, call)
            return call.step()
        if isinstance(timer, ShareSessionTimer):
            share_timer_fired(self._shard, timer, call)
            return call.step()
        group = self._shard.groups.get(timer.group)
        if group is not None:
            if timer.kind is TimerKind.SESSION:
                session_timed_out(self._shard, group, timer.member_id, call)
            elif timer.kind is TimerKind.JOIN:
                join_timed_out(self._shard, group, call)
            else:
                sync_timed_out(self._shard, group, call)
        return call.step()

    def stored(self, after: After, now: Now) -> CoordinatorStep:
        """Do the work that remains from a step, now that the entries of the step and all older ones are committed."""
        call = CoordinatorCall(now)
        match after:
            case SendReply(ticket, _, reply):
                call.reply(ticket, reply)
            case ContinueRequest(ticket, request):
                HANDLERS[type(request)](self._shard, request, ticket, call)
            case AssignmentStored():
                assigned(self._shard, after, call)
            case StaticMemberReplaced():
                replaced(self._shard, after, call)
            case GroupDowngraded(group_id):
                begin_downgraded_group(self._shard, group_id, call)
            case ReadStableOffsets(ticket, request):
                call.reply(ticket, _read(self._shard, request))
            case InitializeShareStates() | DeleteShareStates():
                call.share_states.append(after)
        return call.step()

    def failed(self, after: After, error: ErrorCode, now: Now) -> CoordinatorStep:
        """Do the work that remains from a step whose entries were not appended, or were not committed in time."""
        call = CoordinatorCall(now)
        match after:
            case (
                SendReply(ticket, request, _)
                | ContinueRequest(ticket, request)
                | ReadStableOffsets(ticket, request)
                | DeleteShareStates(ticket, request, _, _)
            ):
                if isinstance(request, (ConsumerHeartbeatRequest, JoinRequest)):
                    consumer_write_failed(self._shard, request.group)
                call.reply(ticket, request.refused(error))
            case ConsumerTimerFired():
                consumer_timer_failed(self._shard, after, call)
            case ShareTimerFired():
                share_timer_failed(self._shard, after, call)
            case InitializeShareStates(initialization):
                share_initialization_failed(self._shard, initialization)
            case GroupDowngraded(group_id):
                begin_downgraded_group(self._shard, group_id, call)
            case AssignmentStored():
                assignments_failed(self._shard, after, error, call)
            case StaticMemberReplaced():
                static_replacement_failed(self._shard, after, error, call)
        return call.step()

    def late(self, after: After, error: ErrorCode, now: Now) -> CoordinatorStep | None:
        """Return None, which makes the driver call `failed`: for groups, a batch that is not committed in time has
        failed."""
        return None

    def unload(self, now: Now) -> CoordinatorStep:
        """Answer all parked requests and drop all state, because another broker coordinates these groups now."""
        call = CoordinatorCall(now)
        for group in self._shard.groups.values():
            for member in group.members.values():
                reject_parked_requests(member, call, ErrorCode.NOT_COORDINATOR)
        self._shard.groups.clear()
        return call.step()

    # for the periodic rounds over all groups

    def group_ids(self) -> list[str]:
        """Return every group id, for the requests of a round."""
        newest = self._shard.versions.newest
        return [*self._shard.groups, *newest.consumers, *newest.shares]

    def offset_count(self, group: str) -> int:
        """Return the group's number of offsets, which is the cost of examining the group."""
        newest = self._shard.versions.newest
        return len(newest.offsets_of(group)) + len(newest.staged_of(group))

    def topics_of(self, group: str) -> set[tuple[str, UUID | None]]:
        """Return the (name, stored id) of each topic for which the group has offsets, or states of share partitions,
        for a TopicsGoneRequest."""
        shares = self._shard.versions.newest.shares.get(group)
        if shares is not None:
            return {(name, topic_id) for topic_id, name in shares.states.topics().items()}
        ids = self._shard.topic_ids_of(group)
        return {(topic, topic_id) for (topic, _), found in ids.items() for topic_id in found}


def _read_stable(shard: Shard, request: Request, ticket: Ticket, call: CoordinatorCall) -> None:
    call.then(ReadStableOffsets(ticket, request))


def _read(shard: Shard, request: Request) -> Reply:
    if isinstance(request, FetchOffsetsRequest):
        return read_offsets(shard.versions.committed, request)
    if isinstance(request, ConsumerDescribeRequest):
        return read_description(shard, request)
    if isinstance(request, ShareDescribeRequest):
        return read_share_description(shard, request)
    if isinstance(request, DescribeRequest):
        group = shard.groups.get(request.group)
        if group is not None:
            return group.describe()
        committed = shard.versions.committed
        is_other = request.group in committed.consumers or request.group in committed.shares
        problem = "is not a classic group" if is_other else "not found"
        return DescribeReply(ErrorCode.GROUP_ID_NOT_FOUND, "Dead", message=f"Group {request.group} {problem}.")
    groups = (*_listed_classic_groups(shard), *list_consumer_groups(shard), *list_share_groups(shard))
    return ListReply(ErrorCode.NONE, groups)


def _listed_classic_groups(shard: Shard) -> list[ListedGroup]:
    """Return the classic groups of the committed state. Those that are becoming consumer groups are still among them,
    those that were consumer groups are not yet."""
    committed, newest = shard.versions.committed, shard.versions.newest
    classic = [group for group_id, group in shard.groups.items() if group_id not in committed.consumers]
    for group_id in newest.consumers if newest is not committed else ():
        is_classic = group_id in committed.groups or group_id in committed.offsets
        if is_classic and group_id not in committed.consumers:
            classic.append(ClassicGroup.loaded(group_id, committed.groups.get(group_id)))
    return [ListedGroup(group.group_id, group.protocol_type or "", group.state.value) for group in classic]


HANDLERS: Mapping[type, Callable[[Shard, Any, Ticket, CoordinatorCall], None]] = MappingProxyType(
    {
        JoinRequest: join,
        SyncRequest: sync,
        GroupHeartbeatRequest: heartbeat,
        LeaveRequest: leave,
        CommitRequest: commit,
        TxnCommitRequest: commit_in_transaction,
        MarkerRequest: end_transaction,
        FetchOffsetsRequest: fetch,
        OffsetDeleteRequest: delete_offsets,
        DeleteRequest: delete_group,
        DescribeRequest: _read_stable,
        ListRequest: _read_stable,
        ExpireRequest: expire,
        TopicsGoneRequest: forget_topics,
        ConsumerHeartbeatRequest: consumer_heartbeat,
        ConsumerDescribeRequest: describe_consumer_group,
        ShareHeartbeatRequest: heartbeat_in_share_group,
        ShareDescribeRequest: describe_group_of_shares,
        ShareInitializedRequest: share_states_initialized,
        PrepareAlterRequest: prepare_alteration,
        PrepareDeleteRequest: prepare_deletion,
        StatesDeletedRequest: share_states_deleted,
        RaiseEpochRequest: raise_share_epoch,
    }
)
"""Type of request → the function that handles such a request."""
