"""One rebalance from a member's point of view: JoinGroup, computing the assignment if the member is the group's leader,
and SyncGroup.

Responses are returned unchanged. The module `group` decides how to react to their errors.
Source: JoinGroupRequest, SyncGroupRequest, Kafka's AbstractCoordinator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraft.client.cluster import Cluster
from kraft.client.coordinator import MEMBERSHIP, Coordinator
from kraft.client.core.assigned import Assignment
from kraft.client.core.assignors import Assignor, SubscribedMember
from kraft.client.core.configs import ConsumerConfig
from kraft.client.core.consumer_protocol import (
    PROTOCOL_TYPE,
    MemberAssignment,
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kraft.client.core.membership import MemberIdentity, Reaction, reaction_to
from kraft.client.core.records import TopicPartition
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

JOIN_GRACE_MS = 5_000
"""Milliseconds that a JoinGroup request waits for its response in addition to the group's rebalance timeout."""


class JoinRequests:
    """Sends JoinGroup and SyncGroup requests with this consumer's settings and subscription."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        coordinator: Coordinator,
        assignment: Assignment,
        assignors: Sequence[Assignor],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._coordinator = coordinator
        self._assignment = assignment
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._answer_ms = max(config.request_timeout_ms, config.max_poll_interval_ms + JOIN_GRACE_MS)
        self._wanted: list[str] = []
        self._divided: dict[str, int] = {}
        """The topics of all members, and the partition counts from which the assignment was computed. Set only on the
        group's leader."""

    async def join(self, member: MemberIdentity, topics: Sequence[str], had: tuple[TopicPartition, ...]) -> Any:
        """Send JoinGroup and return the response, which comes when all members have joined. Return None if the
        connection failed. `had` is the member's last assignment, including partitions that it has given up in order to
        join."""
        self._wanted, self._divided = [], {}
        return await self._ask(
            ApiKey.JOIN_GROUP,
            session_timeout=messages.duration(self._config.session_timeout_ms),
            rebalance_timeout=messages.duration(self._config.max_poll_interval_ms),
            member_id=member.member_id,
            protocols=tuple(
                {"name": name, "metadata": self._subscription(assignor, member, topics, had)}
                for name, assignor in self._assignors.items()
            ),
        )

    def _subscription(
        self, assignor: Assignor, member: MemberIdentity, topics: Sequence[str], had: tuple[TopicPartition, ...]
    ) -> bytes:
        owned = tuple(sorted(self._assignment.partitions))
        data = assignor.user_data(owned or had, member.generation)
        rack = self._config.client_rack or None
        return encode_subscription(Subscription(tuple(topics), data, owned, member.generation, rack))

    async def sync(self, member: MemberIdentity, joined: Any) -> Any:
        """Send SyncGroup and return the response with this member's assignment. Return None if the connection failed.
        The group's leader includes the assignments of all members in the request."""
        shares = await self._divide(joined) if joined.leader == joined.member_id else {}
        if joined.skip_assignment:
            shares = {}  # a static leader has returned: the coordinator keeps the present assignment
        return await self._ask(
            ApiKey.SYNC_GROUP,
            generation_id=member.generation,
            member_id=member.member_id,
            protocol_name=member.protocol,
            assignments=tuple({"member_id": one, "assignment": share} for one, share in shares.items()),
        )

    async def _ask(self, key: ApiKey, **fields: Any) -> Any:
        answer = await self._coordinator.ask(
            key,
            MEMBERSHIP,
            timeout_ms=self._answer_ms,
            group_id=self._coordinator.group_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            **fields,
        )
        if answer is not None:
            reaction = reaction_to(ErrorCode.of(int(answer.error_code)))
            if reaction in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
                await self._cluster.seam.clock.sleep_ms(self._config.retry_backoff_ms)
        return answer

    async def _divide(self, joined: Any) -> dict[str, bytes]:
        """Compute the assignment of all members, by member id. Raise WireError if a member's subscription does not
        parse."""
        members = [
            SubscribedMember(one.member_id, decode_subscription(one.metadata), one.group_instance_id)
            for one in joined.members
        ]
        self._wanted = sorted({topic for member in members for topic in member.subscription.topics})
        self._divided = await self._count()
        assigned = self._assignors[joined.protocol_name].assign(self._divided, members)
        return {member: encode_assignment(MemberAssignment(tuple(share))) for member, share in assigned.items()}

    async def _count(self) -> dict[str, int]:
        """Return the current number of partitions of each subscribed topic that exists."""
        await self._cluster.refresh(self._wanted, timeout_ms=float("inf"))
        found = ((topic, self._cluster.topic(topic)) for topic in self._wanted)
        return {topic: len(known.partitions) for topic, known in found if known is not None}

    async def is_outdated(self) -> bool:
        """Whether this member is the group's leader and the topics that it has assigned have changed: a topic was
        created or deleted, or got more partitions."""
        return bool(self._wanted) and await self._count() != self._divided
