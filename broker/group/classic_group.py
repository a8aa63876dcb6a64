"""A classic group in memory: its members, their parked requests, and values computed from them.

Only the record written with each generation is durable (`records.GroupValue`). Everything else exists only in this
coordinator. Members stay in the order in which they joined, so that the same inputs always give the same decisions.
State changes are decided in `joining`, `syncing`, `membership` and `rebalance`.
Source: Kafka's ClassicGroup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from kraft.broker.group.records import GroupValue, MemberValue
from kraft.broker.group.requests import NO_MEMBER_ID, DescribedMember, DescribeReply, JoinReply, Protocols, Ticket
from kraft.broker.group.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from kraft.wire.error_codes import ErrorCode


class GroupState(Enum):
    """State of a group; the value is the name that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class Member:
    """One member of a group. `awaiting_join` and `awaiting_sync` are its parked requests.

    While a request is parked, the member's session cannot expire. The exception is a member that `is_new`: it has never
    received a response, and may no longer exist."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: Ticket | None = None
        self.awaiting_sync: Ticket | None = None
        self.is_new = False

    @property
    def is_waiting(self) -> bool:
        """Whether a request of the member is parked, so that the member need not send heartbeats."""
        return self.awaiting_join is not None or self.awaiting_sync is not None

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for this protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def renamed(self, member_id: str) -> Member:
        """Return the same member under another id, without parked requests."""
        return Member(
            member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
            self.assignment,
        )


class ClassicGroup:
    """One group. `pending_join`: issued member ids that no member has used yet. `pending_sync`: members that have not
    sent SyncGroup in this generation. `plans`: number of times that a leader has sent assignments."""

    __slots__ = (
        "generation",
        "group_id",
        "initial_remaining_ms",
        "is_initial_rebalance",
        "leader",
        "members",
        "new_member_came",
        "pending_join",
        "pending_sync",
        "plans",
        "protocol",
        "protocol_type",
        "state",
        "state_timestamp",
        "static_members",
        "subscribed",
    )

    def __init__(self, group_id: str) -> None:
        """Create an empty group, without a protocol type until a member joins."""
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_timestamp = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join: dict[str, None] = {}
        self.pending_sync: dict[str, None] = {}
        self.plans = 0
        self.subscribed: frozenset[str] | None = None
        self.is_initial_rebalance = False
        self.new_member_came = False
        self.initial_remaining_ms = 0

    @staticmethod
    def loaded(group_id: str, value: GroupValue | None) -> ClassicGroup:
        """Create the group from `value`, its record in the log. With None, create an empty group: the log has committed
        offsets of the group, but no record of the group itself. Without a leader, it was a consumer group and has to
        rebalance."""
        group = ClassicGroup(group_id)
        if value is None:
            return group
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.state_timestamp = value.state_timestamp
        if value.members:
            group.state = GroupState.STABLE if value.leader is not None else GroupState.PREPARING_REBALANCE
            group.protocol = value.protocol
            group.leader = value.leader
        for row in value.members:
            protocols = () if value.protocol is None else ((value.protocol, row.subscription),)
            group.add(
                Member(
                    row.member_id,
                    row.instance_id,
                    row.client_id,
                    row.client_host,
                    row.rebalance_timeout_ms,
                    row.session_timeout_ms,
                    protocols,
                    row.assignment,
                )
            )
        group.find_subscribed()
        return group

    # members

    def add(self, member: Member) -> None:
        """Add a member; the first member becomes the leader."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Remove a member. If it was the leader, another member is the leader until the next generation elects one."""
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is not None:
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
            if self.leader == member_id:
                self.leader = next(iter(self.members), None)
        return member

    def replace(self, old_id: str, new: Member) -> None:
        """Replace a member with another one. The old member id is invalid at once."""
        self.members = {
            (new.member_id if known == old_id else known): (new if known == old_id else member)
            for known, member in self.members.items()
        }
        self.pending_sync.pop(old_id, None)
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id
        if self.leader == old_id:
            self.leader = new.member_id

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE if a member of the group has this id, otherwise the error."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_idle(self) -> bool:
        """Whether the group has no members and no issued member ids."""
        return self.is_empty and not self.pending_join

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the group's members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def joined(self) -> int:
        """Number of members that wait for the next generation."""
        return sum(member.awaiting_join is not None for member in self.members.values())

    @property
    def all_joined(self) -> bool:
        """Whether all members wait for the next generation and no issued member id is outstanding."""
        return not self.pending_join and self.joined == len(self.members)

    # protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a client with these protocols is compatible with the present members."""
        if not protocol_type or not protocols:
            return False
        if self.is_empty:
            return True
        common = self.common_protocols()
        return protocol_type == self.protocol_type and (
            not self.members or any(name in common for name, _ in protocols)
        )

    def common_protocols(self) -> set[str]:
        """Return the names of the protocols that every member supports."""
        names = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*names) if names else set()

    def vote(self) -> str | None:
        """Return the protocol that most members prefer, among the protocols that all members support. In a tie, the
        protocol of the earliest member is chosen."""
        common = self.common_protocols()
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.members.values() if common
        )
        return max(votes, key=lambda name: votes[name], default=None)

    def elect_leader(self) -> bool:
        """Keep the leader if it has rejoined, otherwise elect the first member that has. Return False if no member has
        rejoined."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader = member.member_id
                return True
        return False

    def find_subscribed(self) -> None:
        """Determine the topics to which the members of this generation subscribe; None if the members' metadata do not
        contain topics."""
        self.subscribed = None
        if not self.uses_consumer_protocol:
            return
        topics: set[str] = set()
        for member in self.members.values():
            found = subscribed_topics(member.metadata(self.protocol))
            if found is None:
                return
            topics |= found
        self.subscribed = frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether the group subscribes to the topic. A consumer group whose subscription is unknown counts as
        subscribed to every topic."""
        return self.uses_consumer_protocol if self.subscribed is None else topic in self.subscribed

    # replies and records

    def value(self, assignments: Iterable[tuple[str, bytes]]) -> GroupValue:
        """Return the group's record for this generation. A member that is not in `assignments` (member id → bytes) gets
        an empty assignment."""
        by_member = dict(assignments)
        return GroupValue(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.state_timestamp,
            tuple(
                MemberValue(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(self.protocol),
                    by_member.get(member.member_id, b""),
                )
                for member in self.members.values()
            ),
        )

    def join_reply(self, member_id: str, *, leader: str | None = None, skip_assignment: bool = False) -> JoinReply:
        """Return the JoinGroup reply for a member of this generation. Only the leader gets the list of members. If
        `leader` is given, the reply names it instead of the actual leader."""
        named = leader if leader is not None else self.leader or NO_MEMBER_ID
        members = self.members.values() if named == member_id else ()
        return JoinReply(
            ErrorCode.NONE,
            member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            named,
            skip_assignment,
            tuple((member.member_id, member.instance_id, member.metadata(self.protocol)) for member in members),
        )

    def describe(self) -> DescribeReply:
        """Return the group's description for administrators. It has the chosen protocol only while that protocol is in
        use."""
        protocol = self.protocol if self.state is GroupState.STABLE else None
        members = tuple(
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(protocol),
                member.assignment if protocol is not None else b"",
            )
            for member in self.members.values()
        )
        return DescribeReply(ErrorCode.NONE, self.state.value, self.protocol_type or "", protocol or "", members)
