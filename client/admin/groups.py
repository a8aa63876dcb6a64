"""Groups: list, describe, read and change their offsets, delete them, remove members.

Source: ListGroupsRequest, DescribeGroupsRequest, OffsetFetchRequest, OffsetCommitRequest, OffsetDeleteRequest,
DeleteGroupsRequest, LeaveGroupRequest, Kafka's KafkaAdminClient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from kraft.client.admin.routing import Router, by_topic, require_success
from kraft.client.admin.values import GroupDescription, GroupListing, GroupMember
from kraft.client.connections import VersionMismatch
from kraft.client.core.consumer_protocol import Subscription, decode_assignment, decode_subscription
from kraft.client.core.records import CommittedOffset, KafkaError, TopicPartition
from kraft.seam import WireError
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

CLASSIC, CONSUMER, SHARE = "Classic", "Consumer", "Share"
DESCRIBED_TYPES = frozenset({CLASSIC, CONSUMER, SHARE})
"""Types of groups that `Groups.describe` can describe."""
_DESCRIBE = MappingProxyType(
    {CONSUMER: ApiKey.CONSUMER_GROUP_DESCRIBE, SHARE: ApiKey.SHARE_GROUP_DESCRIBE},
)
FIRST_WITH_STATES, FIRST_WITH_TYPES = 4, 5
"""First versions of ListGroups that have these filters."""
DEAD = "Dead"
NO_GENERATION = -1
_NOT_NEW_PROTOCOL = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST})


class Groups:
    """List, describe and change groups; each request goes to the group's coordinator."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def list(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), brokers: Iterable[int] | None = None
    ) -> tuple[GroupListing, ...]:
        """Return all groups of these brokers (None: of all brokers), by id. If states or types are given, return only
        groups with these. Raise VersionMismatch if a broker does not support such a filter."""
        states, types = list(states), list(types)
        answers = await self._router.ask_each(
            ApiKey.LIST_GROUPS,
            lambda told: told.error_code,
            brokers,
            version_min=FIRST_WITH_TYPES if types else FIRST_WITH_STATES if states else 0,
            states_filter=states,
            types_filter=types,
        )
        found: list[GroupListing] = []
        for broker, answer in answers.items():
            require_success(answer, f"the groups of broker {broker}")
            found += [_read_listing(told, broker) for told in answer.groups]
        return tuple(sorted(found, key=lambda group: group.group_id))

    async def describe(self, group_id: str) -> GroupDescription:
        """Return a group with its members and their partitions. Raise KafkaError: GROUP_ID_NOT_FOUND if the group does
        not exist, UNSUPPORTED_VERSION if it is of a type that this client cannot describe, such as a streams group."""
        try:
            described = await self._describe_new(group_id, CONSUMER) or await self._describe_classic(group_id)
            if described.state == DEAD:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no {named_group(group_id)}")
        except KafkaError as problem:
            if problem.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            kind = await self._type_of(group_id)
            if kind is None or kind in (CLASSIC, CONSUMER):
                raise
            shares = await self._describe_new(group_id, SHARE) if kind == SHARE else None
            if shares is not None:
                return shares
            text = f"{named_group(group_id)} is a {kind.lower()} group, which this client cannot describe"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text) from None
        return described

    async def _type_of(self, group_id: str) -> str | None:
        """Return the type of a group as its coordinator lists it; None if the coordinator lists no such group."""
        broker, answer = await self._router.ask_coordinator(
            group_id, ApiKey.LIST_GROUPS, lambda told: told.error_code, states_filter=(), types_filter=()
        )
        require_success(answer, f"the groups of broker {broker}")
        return next((_read_listing(told, broker).type for told in answer.groups if told.group_id == group_id), None)

    async def is_share(self, group_id: str) -> bool:
        """Return whether this is a share group. Its offsets are not committed by members; see `admin.share_groups`."""
        try:
            broker, answer = await self._router.ask_coordinator(
                group_id,
                ApiKey.LIST_GROUPS,
                lambda told: told.error_code,
                version_min=FIRST_WITH_TYPES,
                states_filter=(),
                types_filter=(SHARE,),
            )
        except VersionMismatch:
            return False
        require_success(answer, f"the groups of broker {broker}")
        return any(told.group_id == group_id for told in answer.groups)

    async def offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return all committed offsets of a group; empty for a group that has none or does not exist."""
        group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": None}
        _, answer = await self._router.ask_coordinator(
            group_id,
            ApiKey.OFFSET_FETCH,
            lambda told: told.groups[0].error_code,
            groups=(group,),
            require_stable=False,
        )
        require_success(answer.groups[0], named_group(group_id))
        return {
            (str(topic.name), int(part.partition_index)): CommittedOffset(
                int(part.committed_offset), int(part.committed_leader_epoch), part.metadata or ""
            )
            for topic in answer.groups[0].topics
            for part in topic.partitions
            if part.error_code == ErrorCode.NONE and part.committed_offset >= 0
        }

    async def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset | int]) -> None:
        """Commit offsets for a group without active members. Raise KafkaError INVALID_GROUP_ID for the empty id:
        brokers keep a group with that id for old clients, but no consumer can join it."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the name of the group is empty")
        topics = [
            {"name": topic, "partitions": [_commit_row(index, offsets[(topic, index)]) for index in indexes]}
            for topic, indexes in by_topic(offsets).items()
        ]
        _, answer = await self._router.ask_coordinator(
            group_id,
            ApiKey.OFFSET_COMMIT,
            _first_error,
            group_id=group_id,
            generation_id_or_member_epoch=NO_GENERATION,
            member_id="",
            topics=topics,
        )
        _require_all(answer, group_id)

    async def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's committed offsets of these partitions. The group must not be subscribed to their topics."""
        topics = [
            {"name": topic, "partitions": [{"partition_index": index} for index in indexes]}
            for topic, indexes in by_topic(partitions).items()
        ]
        _, answer = await self._router.ask_coordinator(
            group_id, ApiKey.OFFSET_DELETE, lambda told: told.error_code, group_id=group_id, topics=topics
        )
        require_success(answer, named_group(group_id))
        _require_all(answer, group_id)

    async def delete(self, group_id: str) -> None:
        """Delete a group that has no members, and its offsets."""
        _, answer = await self._router.ask_coordinator(
            group_id, ApiKey.DELETE_GROUPS, lambda told: told.results[0].error_code, groups_names=(group_id,)
        )
        require_success(answer.results[0], named_group(group_id))

    async def remove_members(self, group_id: str, members: Iterable[GroupMember]) -> None:
        """Remove members from a group, so that their partitions are assigned to the remaining members."""
        rows = [
            {
                "member_id": "" if member.instance_id is not None else member.member_id,
                "group_instance_id": member.instance_id,
                "reason": "removed by an administrator",
            }
            for member in members
        ]
        _, answer = await self._router.ask_coordinator(
            group_id, ApiKey.LEAVE_GROUP, lambda told: told.error_code, group_id=group_id, members=rows
        )
        require_success(answer, named_group(group_id))
        for told in answer.members:
            require_success(told, f"member {told.group_instance_id or told.member_id} of {named_group(group_id)}")

    async def _describe_new(self, group_id: str, kind: str) -> GroupDescription | None:
        """Return the description of a consumer group (KIP-848) or a share group (KIP-932); None if the group is of
        another kind."""
        try:
            coordinator, answer = await self._router.ask_coordinator(
                group_id,
                _DESCRIBE[kind],
                lambda told: told.groups[0].error_code,
                group_ids=(group_id,),
            )
        except VersionMismatch:
            return None
        told = answer.groups[0]
        if ErrorCode.of(int(told.error_code)) in _NOT_NEW_PROTOCOL:
            return None
        require_success(told, named_group(group_id))
        return GroupDescription(
            group_id,
            str(told.group_state),
            kind,
            kind.lower(),
            str(told.assignor_name),
            coordinator,
            tuple(_read_new(member, is_consumer=kind == CONSUMER) for member in told.members),
            int(told.group_epoch),
            int(told.assignment_epoch),
        )

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        coordinator, answer = await self._router.ask_coordinator(
            group_id, ApiKey.DESCRIBE_GROUPS, lambda told: told.groups[0].error_code, groups=(group_id,)
        )
        told = answer.groups[0]
        require_success(told, named_group(group_id))
        is_consumer = told.protocol_type == "consumer"
        members = tuple(
            _read_classic(member, is_consumer)
            for member in sorted(told.members, key=lambda member: str(member.member_id))
        )
        return GroupDescription(
            group_id,
            str(told.group_state),
            CLASSIC,
            str(told.protocol_type),
            str(told.protocol_data),
            coordinator,
            members,
        )


def named_group(group_id: str) -> str:
    """Return the group as error messages name it."""
    return f"group {group_id or repr(group_id)}"


def _read_listing(told: Any, broker: int) -> GroupListing:
    group_type = str(told.group_type).capitalize() or CLASSIC
    return GroupListing(str(told.group_id), str(told.group_state), group_type, str(told.protocol_type), broker)


def _commit_row(index: int, given: CommittedOffset | int) -> dict[str, Any]:
    entry = given if isinstance(given, CommittedOffset) else CommittedOffset(given)
    return {
        "partition_index": index,
        "committed_offset": entry.offset,
        "committed_leader_epoch": entry.leader_epoch,
        "committed_metadata": entry.metadata,
    }


def _partitions(told: Any) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment of the consumer protocol."""
    return tuple(
        sorted((str(topic.topic_name), int(index)) for topic in told.topic_partitions for index in topic.partitions)
    )


def _read_new(member: Any, *, is_consumer: bool) -> GroupMember:
    return GroupMember(
        str(member.member_id),
        member.instance_id if is_consumer else None,
        str(member.client_id),
        str(member.client_host),
        _partitions(member.assignment),
        member.rack_id,
        int(member.member_epoch),
        _partitions(member.target_assignment) if is_consumer else None,
        tuple(sorted(map(str, member.subscribed_topic_names))),
    )


def _read_classic(member: Any, is_consumer: bool) -> GroupMember:
    subscription = _subscription(member.member_metadata) if is_consumer else None
    return GroupMember(
        str(member.member_id),
        member.group_instance_id,
        str(member.client_id),
        str(member.client_host),
        _assigned(member.member_assignment) if is_consumer else (),
        rack=None if subscription is None else subscription.rack or None,
        subscribed=None if subscription is None else tuple(sorted(subscription.topics)),
    )


def _subscription(data: bytes) -> Subscription | None:
    """Return the subscription in a member's metadata. Return None if the bytes are not a subscription; they are empty
    while the group rebalances."""
    try:
        return decode_subscription(data)
    except WireError:
        return None


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions in an assignment. Return none if the bytes are not an assignment, because a group may store
    arbitrary data."""
    try:
        return tuple(sorted(decode_assignment(data).partitions))
    except WireError:
        return ()


def _first_error(answer: Any) -> int:
    codes = (int(part.error_code) for topic in answer.topics for part in topic.partitions)
    return next((code for code in codes if code != ErrorCode.NONE), 0)


def _require_all(answer: Any, group_id: str) -> None:
    for topic in answer.topics:
        for part in topic.partitions:
            require_success(part, f"{named_group(group_id)}, {topic.name}-{int(part.partition_index)}")
