"""Heartbeats of a member of a consumer group (KIP-848), and their responses, as values.

A heartbeat carries the member's subscription and the partitions that it owns. A field that is None is unchanged since
the last heartbeat that the coordinator has answered.
Source: ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kraft.client.core.records import KafkaError
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

TopicIdPartition = tuple[UUID, int]

JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH = 0, -1, -2
"""Member epochs with which a member joins, leaves permanently, and leaves as a static member that will return."""
UNCHANGED_TIMEOUT_MS = -1
FIRST_VERSION_WITH_OWN_MEMBER_ID = FIRST_VERSION_WITH_REGEX = 1


@dataclass(frozen=True, slots=True)
class TopicSubscription:
    """The topics to which a member subscribes: names, and a regular expression (RE2) that the coordinator resolves. An
    empty `regex` stands for none."""

    names: tuple[str, ...] = ()
    regex: str = ""


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """What a member of a group tells its coordinator in addition to its subscription. An `assignor` of None leaves the
    choice to the coordinator."""

    group_id: str
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = 300_000
    assignor: str | None = None
    is_share_group: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """One heartbeat. `life` is the number of the membership that sends it. `owned_number` is the number of the
    assignment from which `owned` results."""

    settings: MemberSettings
    life: int
    member_id: str
    epoch: int
    is_id_confirmed: bool
    is_full: bool = False
    names: tuple[str, ...] | None = None
    regex: str | None = None
    owned: frozenset[TopicIdPartition] | None = None

    @property
    def is_join(self) -> bool:
        return self.epoch == JOIN_EPOCH

    @property
    def is_leave(self) -> bool:
        return self.epoch < JOIN_EPOCH

    def requests_member_id(self, version: int) -> bool:
        """Whether the coordinator chooses the member id, which it does at the first join of version 0."""
        return version < FIRST_VERSION_WITH_OWN_MEMBER_ID and self.is_join and not self.is_id_confirmed

    def message(self, version: int) -> Any:
        """Return the request. Raise KafkaError if this version has no regular expressions, but the member needs one."""
        if self.regex and version < FIRST_VERSION_WITH_REGEX:
            text = "the brokers do not resolve patterns: subscribe to a compiled pattern, which the client resolves"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"group {self.settings.group_id}: {text}")
        timeout_ms = self.settings.rebalance_timeout_ms if self.is_full else UNCHANGED_TIMEOUT_MS
        return messages.build(
            messages.request_class(ApiKey.CONSUMER_GROUP_HEARTBEAT),
            group_id=self.settings.group_id,
            member_id="" if self.requests_member_id(version) else self.member_id,
            member_epoch=self.epoch,
            instance_id=self.settings.instance_id,
            rack_id=self.settings.rack if self.is_full else None,
            rebalance_timeout=messages.duration(timeout_ms),
            subscribed_topic_names=self.names,
            subscribed_topic_regex=self.regex if version >= FIRST_VERSION_WITH_REGEX else None,
            server_assignor=self.settings.assignor if self.is_full else None,
            topic_partitions=None if self.owned is None else _by_topic(self.owned),
        )


def _by_topic(partitions: Iterable[TopicIdPartition]) -> tuple[dict[str, object], ...]:
    topics: dict[UUID, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(partitions):
        topics[topic_id].append(partition)
    return tuple({"topic_id": topic_id, "partitions": tuple(indexes)} for topic_id, indexes in topics.items())


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The response to a heartbeat. `assignment` has all partitions of the member; it is None if it is unchanged."""

    code: ErrorCode
    message: str
    member_id: str
    epoch: int
    interval_ms: int
    assignment: frozenset[TopicIdPartition] | None

    @classmethod
    def of(cls, answer: Any) -> HeartbeatAnswer:
        assigned = answer.assignment
        partitions = None
        if assigned is not None:
            topics = assigned.topic_partitions
            partitions = frozenset((topic.topic_id, int(index)) for topic in topics for index in topic.partitions)
        return cls(
            ErrorCode.of(int(answer.error_code)),
            answer.error_message or "",
            answer.member_id or "",
            int(answer.member_epoch),
            messages.milliseconds(answer.heartbeat_interval),
            partitions,
        )
