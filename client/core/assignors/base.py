"""What an assignor is given and gives."""

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
class GroupMember:
    """A member as the leader of the group sees it."""

    member_id: str
    subscription: Subscription
    instance_id: str | None = None

    @property
    def rank(self) -> tuple[bool, str]:
        """The order in which members are served: static ones first, by instance id, so that they keep their places."""
        return (self.instance_id is None, self.instance_id or self.member_id)


class Assignor(ABC):
    """Divides the partitions of the topics that members subscribe to among them. Subclasses are stateless."""

    name: ClassVar[str]
    is_cooperative: ClassVar[bool] = False

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes | None:
        """What a member tells the leader beside its topics."""
        return None

    @abstractmethod
    def assign(self, counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assignments:
        """`counts`: the number of partitions of each topic that exists. A topic without subscribers is left out."""


def subscribers(topic: str, members: Sequence[GroupMember]) -> list[GroupMember]:
    """The members that want this topic, in the order of their rank."""
    return sorted((member for member in members if topic in member.subscription.topics), key=lambda m: m.rank)


def wanted_topics(counts: Mapping[str, int], members: Sequence[GroupMember]) -> list[str]:
    """The topics that exist and somebody wants, sorted."""
    return sorted({topic for member in members for topic in member.subscription.topics if topic in counts})
