"""A group coordinator under test, with topics that tests change and members of the next-generation protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from kraft.broker.consumer_group.requests import (
    ConsumerDescribeReply,
    ConsumerDescribeRequest,
    ConsumerHeartbeatReply,
    ConsumerHeartbeatRequest,
    Partitions,
)
from kraft.broker.consumer_group.state import EMPTY_GROUP, ConsumerGroup, subscription_of
from kraft.broker.group.coordinator import GroupCoordinator
from kraft.broker.group.durable import EMPTY_STATE
from tests.stages.group_bench import GROUP, REBALANCE_MS, Bench, PendingRequest, replay


class TopicRow(NamedTuple):
    name: str
    topic_id: UUID
    partition_count: int


class TopicRows:
    """Topics by name. Immutable, except that `scans` counts the iterations over all topics."""

    def __init__(self, rows: Mapping[str, TopicRow]) -> None:
        self._rows = dict(sorted(rows.items()))
        self.scans = 0
        self._names = {row.topic_id: row.name for row in rows.values()}

    def get(self, name: str, /) -> TopicRow | None:
        return self._rows.get(name)

    def name_of(self, topic_id: UUID, /) -> str | None:
        return self._names.get(topic_id)

    def __iter__(self) -> Iterator[TopicRow]:
        self.scans += 1
        return iter(self._rows.values())


class ConsumerBench(Bench):
    """A coordinator with topics of given partition counts: by default `orders` with 4 and `trades` with 2."""

    def __init__(self, topics: Mapping[str, int] | None = None, **options: Any) -> None:
        self.rows: dict[str, TopicRow] = {}
        self.topics = TopicRows({})
        self.ids = 0
        self.committed_offset = 0
        super().__init__(**options)
        for name, partition_count in ({"orders": 4, "trades": 2} if topics is None else topics).items():
            self._add_topic(name, partition_count)
        self._publish()

    def load(self) -> GroupCoordinator:
        machine = super().load()
        machine.topics_changed(self.topics)
        return machine

    def commit(self) -> None:
        self.committed_offset = self.machine.end_offset
        super().commit()

    def move_after_loss(self, length: int) -> None:
        """Let another broker become the coordinator, whose log has only the first `length` records."""
        del self.log[length:]
        self.as_read = replay(EMPTY_STATE, self.log)
        self.move()
        self.committed_offset = length

    # topics

    def set_topic(self, name: str, partition_count: int) -> UUID:
        """Create a topic, or grow it. Return its id."""
        topic_id = self._add_topic(name, partition_count)
        self._publish()
        return topic_id

    def _add_topic(self, name: str, partition_count: int) -> UUID:
        known = self.rows.get(name)
        if known is None:
            self.ids += 1
            known = TopicRow(name, UUID(int=self.ids), partition_count)
        self.rows[name] = known._replace(partition_count=partition_count)
        return known.topic_id

    def delete_topic(self, name: str) -> None:
        del self.rows[name]
        self._publish()

    def _publish(self) -> None:
        self.topics = TopicRows(self.rows)
        self.machine.topics_changed(self.topics)

    def partitions(self, **numbers: set[int]) -> Partitions:
        """Return partitions by topic id, from partitions by topic name."""
        return {self.rows[name].topic_id: frozenset(found) for name, found in numbers.items()}

    # requests

    def ask_heartbeat(self, member_id: str, epoch: int, **fields: Any) -> PendingRequest:
        return self.ask(ConsumerHeartbeatRequest(**{"group": GROUP, **fields}, member_id=member_id, epoch=epoch))

    def beat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerHeartbeatReply:
        reply: ConsumerHeartbeatReply = self.ask_heartbeat(member_id, epoch, **fields).reply
        return reply

    def enter(self, member_id: str, *names: str, **fields: Any) -> ConsumerHeartbeatReply:
        """Let a member join that subscribes to these topics."""
        return self.beat(
            member_id,
            0,
            **{"rebalance_timeout_ms": REBALANCE_MS, "subscribed_names": names, "owned": {}, **fields},
        )

    def describe(self, group: str = GROUP) -> ConsumerDescribeReply:
        reply: ConsumerDescribeReply = self.ask(ConsumerDescribeRequest(group)).reply
        return reply

    # the group

    def check_counts(self) -> None:
        """Check that the numbers of members, which are kept as members come and go, are those of a count."""
        group = self.machine.newest.consumers.get(GROUP, EMPTY_GROUP)
        members = list(group.members.values())
        assert dict(group.subscriptions.items()) == Counter(map(subscription_of, members))
        assert group.classic_count == sum(member.classic is not None for member in members)

    @property
    def consumers(self) -> ConsumerGroup:
        return self.machine.newest.consumers[GROUP]
