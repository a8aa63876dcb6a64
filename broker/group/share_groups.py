"""Share groups, as a part of the group coordinator.

The decisions are in `kraft.broker.share_group`. This module finds the group, writes the entries of an operation as one
batch, sends the reply when the batch is committed, and sets timers. A step may ask the driver to begin or to delete the
states of share partitions at the share coordinator. Source: KIP-932, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kraft.broker.consumer_group.requests import JOIN_EPOCH
from kraft.broker.group.requests import DeleteRequest, ListedGroup, Ticket, TopicsGoneRequest
from kraft.broker.group.shard import Shard
from kraft.broker.group.step import (
    CoordinatorCall,
    DeleteShareStates,
    InitializeShareStates,
    ReadStableOffsets,
    SendReply,
    ShareTimerFired,
)
from kraft.broker.share_group.heartbeat import (
    ShareSurroundings,
    describe_share_group,
    fence_share_member,
    share_heartbeat,
)
from kraft.broker.share_group.initialization import (
    ShareInitialization,
    ShareMemory,
    begin_alteration,
    begin_deletion,
    finish_deletion,
    finish_initialization,
    forget_states,
    raise_epoch,
)
from kraft.broker.share_group.requests import (
    SHARE_TYPE,
    PrepareAlterRequest,
    PrepareDeleteRequest,
    RaiseEpochRequest,
    ShareDescribeReply,
    ShareDescribeRequest,
    ShareHeartbeatRequest,
    ShareInitializedRequest,
    SharePreparedReply,
    StatesDeletedRequest,
)
from kraft.broker.share_group.state import EMPTY_SHARE_GROUP, ShareDraft, ShareGroup
from kraft.broker.share_group.timers import ShareSessionTimer
from kraft.wire.error_codes import ErrorCode

TIMER_RETRY_MS = 500


def heartbeat_in_share_group(
    shard: Shard, request: ShareHeartbeatRequest, ticket: Ticket, call: CoordinatorCall
) -> None:
    """Handle a heartbeat of a share group's member, and answer when everything that it changes is committed."""
    group_id = request.group
    group = shard.versions.newest.shares.get(group_id)
    if group is None and (request.epoch != JOIN_EPOCH or _has_other_type(shard, group_id)):
        call.reply(ticket, request.refused(*_not_found(shard, group_id)))
        return
    draft = ShareDraft(group_id, EMPTY_SHARE_GROUP if group is None else group)
    memory = shard.share_memories.get(group_id) or ShareMemory()
    settings = shard.settings.share_settings_of(group_id)
    reply, initialization = share_heartbeat(draft, request, ShareSurroundings(shard.topics, settings, memory, call.now))
    if reply.error is not ErrorCode.NONE:
        call.reply(ticket, reply)
        return
    shard.share_memories[group_id] = memory
    _write(draft, call)
    call.then(SendReply(ticket, request, reply))
    if initialization is not None:
        call.then(InitializeShareStates(initialization))
    if request.member_id in draft.group.members:
        timer = ShareSessionTimer(group_id, request.member_id)
        shard.timers.set(timer, call.now.monotonic_ms + settings.session_timeout_ms)


def _has_other_type(shard: Shard, group_id: str) -> bool:
    return group_id in shard.groups or group_id in shard.versions.newest.consumers


def _not_found(shard: Shard, group_id: str) -> tuple[ErrorCode, str]:
    """Return why there is no share group with this id."""
    problem = "is not a share group" if _has_other_type(shard, group_id) else "not found"
    return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {problem}."


def _write(draft: ShareDraft, call: CoordinatorCall) -> None:
    for entry in draft.entries:
        call.write(entry)


def share_states_initialized(
    shard: Shard, request: ShareInitializedRequest, ticket: Ticket, call: CoordinatorCall
) -> None:
    """Write that share partitions of a group are initialized, so that the next heartbeats assign them."""
    group = shard.versions.newest.shares.get(request.group)
    if group is None:
        call.reply(ticket, request.refused(*_not_found(shard, request.group)))
        return
    draft, memory = ShareDraft(request.group, group), shard.share_memories.get(request.group)
    is_current = memory is None or request.state_epoch >= memory.deleted_epoch
    """Whether no deletion has begun since."""
    if is_current and finish_initialization(draft, request.partitions):
        _write(draft, call)
    call.then(SendReply(ticket, request, SharePreparedReply(ErrorCode.NONE)))


def share_initialization_failed(shard: Shard, initialization: ShareInitialization) -> None:
    """Let the next heartbeat ask the share coordinator as if the refused one had not been sent."""
    memory = shard.share_memories.get(initialization.group)
    if memory is not None:
        memory.asked_ms = initialization.asked_before_ms


def raise_share_epoch(shard: Shard, request: RaiseEpochRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Continue the group in a newer epoch than that of a state, and begin its initializations again with the next
    heartbeat."""
    group = shard.versions.newest.shares.get(request.group)
    if group is not None:
        draft = ShareDraft(request.group, group)
        raise_epoch(draft, request.state_epoch)
        _write(draft, call)
        shard.share_memories.setdefault(request.group, ShareMemory()).asked_ms = None
    call.then(SendReply(ticket, request, SharePreparedReply(ErrorCode.NONE)))


# offsets


def prepare_alteration(shard: Shard, request: PrepareAlterRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Begin to alter the offsets of an empty group. Members that join meanwhile begin the same states only if the
    alteration has not finished after the retry interval."""
    draft = _draft_of_empty_group(shard, request, ticket, call)
    if draft is not None:
        shard.share_memories.setdefault(draft.group_id, ShareMemory()).asked_ms = call.now.monotonic_ms
        begin_alteration(draft, request.partitions, shard.topics)
        _write(draft, call)
        places = tuple((topic_id, number) for topic_id, _, number in request.partitions)
        call.then(SendReply(ticket, request, SharePreparedReply(ErrorCode.NONE, None, draft.group.epoch, places)))


def prepare_deletion(shard: Shard, request: PrepareDeleteRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Begin to delete the offsets of an empty group in some topics."""
    draft = _draft_of_empty_group(shard, request, ticket, call)
    if draft is not None:
        places = _begin_deletion(shard, draft, request.topic_ids, call)
        call.then(SendReply(ticket, request, SharePreparedReply(ErrorCode.NONE, None, draft.group.epoch, places)))


def _begin_deletion(
    shard: Shard, draft: ShareDraft, topic_ids: Iterable[UUID], call: CoordinatorCall
) -> tuple[tuple[UUID, int], ...]:
    """Write what is being deleted, and return it. Initializations that were asked for before do not count any more."""
    places = begin_deletion(draft, topic_ids, shard.topics)
    _write(draft, call)
    shard.share_memories.setdefault(draft.group_id, ShareMemory()).deleted_epoch = draft.group.epoch
    return places


def share_states_deleted(shard: Shard, request: StatesDeletedRequest, ticket: Ticket, call: CoordinatorCall) -> None:
    """Write that the states of some topics are deleted."""
    group = shard.versions.newest.shares.get(request.group)
    draft = ShareDraft(request.group, EMPTY_SHARE_GROUP if group is None else group)
    finish_deletion(draft, request.topic_ids)
    _write(draft, call)
    call.then(SendReply(ticket, request, SharePreparedReply(ErrorCode.NONE)))


def _draft_of_empty_group(
    shard: Shard, request: PrepareAlterRequest | PrepareDeleteRequest, ticket: Ticket, call: CoordinatorCall
) -> ShareDraft | None:
    """Return a draft of the group, or None if its offsets may not be changed; then the request is answered."""
    group = shard.versions.newest.shares.get(request.group)
    if group is None:
        refused = request.refused(*_not_found(shard, request.group))
    elif group.members:
        message = f"Share group {request.group} has {len(group.members)} members; its offsets cannot change."
        refused = request.refused(ErrorCode.NON_EMPTY_GROUP, message)
    else:
        return ShareDraft(request.group, group)
    call.reply(ticket, refused)
    return None


# timers


def begin_share_groups(shard: Shard, call: CoordinatorCall) -> None:
    """Set the timers of all members of a loaded partition: the full time of each starts now."""
    for group_id, group in sorted(shard.versions.newest.shares.items()):
        timeout_ms = shard.settings.share_settings_of(group_id).session_timeout_ms
        for member_id in sorted(group.members):
            shard.timers.set(ShareSessionTimer(group_id, member_id), call.now.monotonic_ms + timeout_ms)


def share_timer_fired(shard: Shard, timer: ShareSessionTimer, call: CoordinatorCall) -> None:
    """Fence a member that was not heard of."""
    group = shard.versions.newest.shares.get(timer.group)
    if group is not None and timer.member_id in group.members:
        draft = ShareDraft(timer.group, group)
        fence_share_member(draft, timer.member_id, shard.topics)
        _write(draft, call)
        call.then(ShareTimerFired(timer, group))


def share_timer_failed(shard: Shard, fired: ShareTimerFired, call: CoordinatorCall) -> None:
    """Let the timer fire again if the log refused its records. If they were appended and only their commit takes long,
    the member is gone; it may have joined again meanwhile."""
    if shard.versions.newest.shares.get(fired.timer.group) is fired.group:
        shard.timers.set(fired.timer, call.now.monotonic_ms + TIMER_RETRY_MS)


# reading and deleting


def describe_group_of_shares(
    shard: Shard, request: ShareDescribeRequest, ticket: Ticket, call: CoordinatorCall
) -> None:
    """Describe a group after all writes in flight are committed."""
    call.then(ReadStableOffsets(ticket, request))


def read_share_description(shard: Shard, request: ShareDescribeRequest) -> ShareDescribeReply:
    """Return the description of a share group from the committed state."""
    group = shard.versions.committed.shares.get(request.group)
    if group is not None:
        return describe_share_group(group, shard.topics)
    return request.refused(*_not_found(shard, request.group))


def list_share_groups(shard: Shard) -> list[ListedGroup]:
    """Return the share groups of the committed state."""
    return [
        ListedGroup(group_id, SHARE_TYPE, group.state.value, SHARE_TYPE)
        for group_id, group in shard.versions.committed.shares.items()
    ]


def forget_topics_of_shares(shard: Shard, request: TopicsGoneRequest, call: CoordinatorCall) -> None:
    """Write that a share group has no states of deleted topics any more."""
    draft = ShareDraft(request.group, shard.versions.newest.shares[request.group])
    forget_states(draft, {topic_id for _, topic_id in request.topics})
    _write(draft, call)


def must_delete_states(
    shard: Shard, group: ShareGroup, request: DeleteRequest, ticket: Ticket, call: CoordinatorCall
) -> bool:
    """Return whether the states of the group's share partitions must be deleted before the group. They are first
    written as being deleted, so that a member which joins meanwhile gets none of them before it has a state again. The
    driver deletes them, and then submits the request again."""
    states, draft = group.states, ShareDraft(request.group, group)
    is_begun = request.states_deleted and not states.initialized and not states.initializing
    topic_ids = {*states.initialized, *states.initializing, *states.deleting}
    places = () if is_begun else _begin_deletion(shard, draft, topic_ids, call)
    if places:
        call.then(DeleteShareStates(ticket, request, draft.group.epoch, places))
    return bool(places)
