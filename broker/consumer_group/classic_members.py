"""Members of a consumer group whose clients use the classic protocol, during a migration.

To such a client the group looks like a classic one without a leader: its generation is the member's epoch, and its
assignment is what the member has now.

| request | effect |
|---|---|
| JoinGroup | a heartbeat that says everything: the member takes the next step to its target |
| SyncGroup | returns the assignment, unless the group has moved on |
| Heartbeat | extends the session, and asks the client to join again when there is a next step |
| LeaveGroup | removes the member |

Source: KIP-848, Kafka's GroupMetadataManager.
"""

from __future__ import annotations

from uuid import UUID

from kraft.broker.consumer_group.embedded_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    decode_subscription,
    encode_assignment,
    version_of,
)
from kraft.broker.consumer_group.heartbeat import Surroundings, advance
from kraft.broker.consumer_group.leaving import fence
from kraft.broker.consumer_group.membership import member_refusal, remove_member
from kraft.broker.consumer_group.memory import GroupMemory
from kraft.broker.consumer_group.migration import named_partitions
from kraft.broker.consumer_group.records import (
    ClassicMemberValue,
    ConsumerMemberValue,
    CurrentMemberValue,
    MemberState,
)
from kraft.broker.consumer_group.requests import JOIN_EPOCH, ConsumerHeartbeatRequest
from kraft.broker.consumer_group.settings import ConsumerGroupSettings
from kraft.broker.consumer_group.state import ConsumerGroup, Draft
from kraft.broker.consumer_group.topics import TopicsView
from kraft.seam import WireError
from kraft.wire.error_codes import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]


def session_timeout_ms(member: ConsumerMemberValue, settings: ConsumerGroupSettings) -> int:
    """Return the session timeout of a member. A client with the classic protocol chooses its own."""
    return settings.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms


# joining


def join_error(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    protocols: Protocols,
    settings: ConsumerGroupSettings,
    *,
    has_fresh_id: bool,
) -> ErrorCode:
    """Return the error if a client may not join with the classic protocol. `has_fresh_id`: the coordinator has just
    made the member id; a static member then takes the place of the one with its instance id, whatever that one does."""
    is_known = member_id in group.members or (has_fresh_id and instance_id in group.static_members)
    if not is_known and len(group.members) >= settings.members_max:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not _supports(group, protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if instance_id is None or has_fresh_id:
        return ErrorCode.NONE
    refusal = member_refusal(group, member_id, instance_id)
    return ErrorCode.NONE if refusal is None else refusal.error


def _supports(group: ConsumerGroup, protocols: Protocols) -> bool:
    """Return whether a client has a protocol that all members with the classic protocol have, and says to which topics
    it subscribes."""
    common = {name for name, _ in protocols}
    for member in group.members.values():
        if member.classic is not None:
            common.intersection_update(name for name, _ in member.classic.protocols)
    if not common:
        return False
    try:
        decode_subscription(protocols[0][1])
    except WireError:
        return False
    return True


def join(
    draft: Draft, request: ConsumerHeartbeatRequest, classic: ClassicMemberValue, around: Surroundings
) -> CurrentMemberValue | None:
    """Carry out an accepted JoinGroup. `request` has what identifies the client and its rebalance timeout; the rest
    comes from the metadata of its first protocol. Return the member's assignment; None if the member must be fenced."""
    subscription = decode_subscription(classic.protocols[0][1])
    owned: dict[UUID, frozenset[int]] = {}
    for name, partitions in subscription.owned.items():
        topic = around.topics.get(name)
        if topic is not None:
            owned[topic.topic_id] = partitions
    said = request._replace(
        epoch=JOIN_EPOCH,
        rack=subscription.rack or None,
        subscribed_names=subscription.topics,
        subscribed_regex="",
        owned=owned,
        may_describe=None,
    )
    _, after = advance(draft, said, around, classic)
    return after


# synchronizing and heartbeats


def member_error(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """Return the error if a client with the classic protocol is not the member that it says, in this generation."""
    error = identity_error(group, member_id, instance_id)
    if error is ErrorCode.NONE and group.assignment_of(member_id).epoch != generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def identity_error(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """Return the error if no member with the classic protocol has these ids."""
    refusal = member_refusal(group, member_id, instance_id)
    if refusal is not None:
        return refusal.error
    return ErrorCode.UNKNOWN_MEMBER_ID if group.members[member_id].classic is None else ErrorCode.NONE


def sync_error(
    group: ConsumerGroup, member_id: str, protocol_type: str | None, protocol: str | None, due: int
) -> ErrorCode:
    """Return the error if a known member does not get its assignment now. `due` is the epoch that members shall reach.
    A member that must revoke gets its assignment although it is behind, because this is how its client learns what to
    revoke."""
    classic = group.members[member_id].classic
    name = None if classic is None else classic.protocols[0][0]
    if protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or protocol not in (None, name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    current = group.assignment_of(member_id)
    is_behind = current.epoch < due and current.state is not MemberState.UNREVOKED_PARTITIONS
    return ErrorCode.REBALANCE_IN_PROGRESS if is_behind else ErrorCode.NONE


def must_rejoin(group: ConsumerGroup, member_id: str, due: int) -> bool:
    """Return whether the client must join again: the member is behind the epoch `due` that members shall reach, or the
    client has partitions to revoke, or those for which it waited are free."""
    current = group.assignment_of(member_id)
    if current.epoch < due or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return current.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, member_id, current)


def _waits(group: ConsumerGroup, member_id: str, current: CurrentMemberValue) -> bool:
    """Return whether another member holds a partition of the member's target."""
    return any(
        not group.is_free_for(member_id, topic_id, partition)
        for topic_id, partitions in group.target_of(member_id).items()
        for partition in partitions - current.assigned.get(topic_id, {}).keys()
    )


def assignment_bytes(group: ConsumerGroup, member_id: str, topics: TopicsView) -> bytes:
    """Return the assignment of a classic member as its client reads it."""
    classic = group.members[member_id].classic
    version = 0 if classic is None else version_of(classic.protocols[0][1])
    return encode_assignment(version, named_partitions(topics, group.assignment_of(member_id).assigned))


# leaving


def leave(draft: Draft, member_ids: list[str], topics: TopicsView, memory: GroupMemory) -> None:
    """Remove these members, and begin a new epoch of the group."""
    for member_id in member_ids[:-1]:
        remove_member(draft, member_id)
    fence(draft, member_ids[-1], topics, memory)
