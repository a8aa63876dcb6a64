"""Values that assignors receive and return."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from kraft.client.core.consumer_protocol import Subscription
from kraft.client.core.records import TopicPartition

Assignments = dict[str, list[TopicPartition]]
"""Partitions by member id; every member has an entry."""


@dataclass(frozen=True, slots=True)
class SubscribedMember:
    """A member of the group, as its leader receives it from the coordinator."""

    member_id: str
    subscription: Subscription
    instance_id: str | None = None

    @property
    def rank(self) -> tuple[bool, str]:
        """Sort key of members: static members come first, by instance id, so that their assignments are stable."""
        return (self.instance_id is None, self.instance_id or self.member_id)


class Assignor(ABC):
    """Divides the partitions of the subscribed topics among the members. Subclasses are stateless."""

    name: ClassVar[str]
    is_cooperative: ClassVar[bool] = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """Return the user data for a member's subscription, which the group's leader receives."""
        return None

    @abstractmethod
    def assign(self, counts: Mapping[str, int], members: Sequence[SubscribedMember]) -> Assignments:
        """Assign all partitions. `counts` has the number of partitions of each topic that exists. Topics without
        subscribers are left out."""


def subscribers(topic: str, members: Sequence[SubscribedMember]) -> list[SubscribedMember]:
    """Return the members that subscribe to this topic, in the order of their rank."""
    return sorted((member for member in members if topic in member.subscription.topics), key=lambda m: m.rank)


def wanted_topics(counts: Mapping[str, int], members: Sequence[SubscribedMember]) -> list[str]:
    """Return the existing topics that have a subscriber, sorted."""
    return sorted({topic for member in members for topic in member.subscription.topics if topic in counts})
