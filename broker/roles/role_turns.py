"""RoleTurns: the roles of each newer image are taken in order, in turns if there are many.

Invariants: roles are taken in the order deletes, leaders, followers, each by the newest image of its time; what fits
into one turn is done when `apply` returns. Source: Kafka's BrokerMetadataPublisher, ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from kraft.broker.partition.partition import Partition
from kraft.broker.roles.taking_roles import Assigned
from kraft.broker.serving.turns import Turns
from kraft.image.registrations import ConfigResourceType

if TYPE_CHECKING:
    from kraft.broker.partition.replica_index import ReplicaIndex
    from kraft.broker.roles.taking_roles import ReplicaRoles
    from kraft.broker.serving.loop import Loop
    from kraft.image.delta import ImageDelta
    from kraft.image.image import MetadataImage

PASSED_OVER_MAX = 1_000


class RoleTurns:
    """`image` is the newest one whose roles are taken, or are being taken. Only `load` suspends."""

    def __init__(
        self,
        loop: Loop,
        node_id: int,
        image: MetadataImage,
        hosted: ReplicaIndex,
        roles: ReplicaRoles,
        *,
        take_brokers: Callable[[MetadataImage], None],
        redirect: Callable[[Iterable[int]], None],
        configure: Callable[[Partition], None],
        after_turn: Callable[[], None],
    ) -> None:
        """`take_brokers(image)`: brokers have changed. `redirect(ids)`: these may be reached elsewhere. `configure`:
        a replica's topic may have other settings. `after_turn`: roles were taken."""
        self.image = image
        self._node_id = node_id
        self._hosted = hosted
        self._roles = roles
        self._take_brokers = take_brokers
        self._redirect = redirect
        self._configure = configure
        self._turns = Turns(loop.clock, loop.start_task, after_turn)

    @property
    def is_over(self) -> bool:
        """No turn is left."""
        return self._turns.is_idle

    async def load(self, image: MetadataImage) -> None:
        """Take every role that the first image gives."""
        self._turns.add(
            self._take,
            (
                Assigned(topic.topic_id, index)
                for topic in image.topics
                for index, state in topic.partitions()
                if self._node_id in state.replicas
            ),
        )
        await self._turns.finish()

    def begin(self, image: MetadataImage) -> None:
        """This is the first image; `load` takes its roles."""
        self._take_brokers(image)
        self.image = image

    def apply(self, old: MetadataImage, new: MetadataImage, delta: ImageDelta, then: Callable[[], None]) -> None:
        """Take the roles of a newer image, then call `then`."""
        self.image = new
        turns = self._turns
        if delta.brokers:
            self._take_brokers(new)
        turns.add(self._take, self._gone(delta))
        if delta.configs:
            turns.add(self._configure, self._configured(delta))
        turns.add(self._take, assigned_of(self._node_id, old, new, delta))
        if delta.brokers:
            self._redirect(delta.brokers)
            turns.add(Partition.brokers_changed, self._hosted)
        turns.add(lambda call: call(), (then,))
        turns.start()

    def check_lag(self) -> None:
        """One round of the in-sync timer."""
        self._turns.add(Partition.check_lag, self._hosted)
        self._turns.start()

    def _take(self, assigned: Assigned) -> None:
        self._roles.take(self.image, assigned)

    def _gone(self, delta: ImageDelta) -> Iterator[Assigned]:
        """The replicas of the topics that a delta deletes."""
        for topic_id in delta.deleted_topics:
            for partition in self._hosted.of_topic(topic_id):
                yield Assigned(topic_id, partition.index)

    def _configured(self, delta: ImageDelta) -> Iterable[Partition]:
        """The replicas whose topics have other settings now."""
        if any(kind is ConfigResourceType.BROKER for kind, _ in delta.configs):
            return self._hosted
        named = [name for kind, name in delta.configs if kind is ConfigResourceType.TOPIC]
        return chain.from_iterable(self._hosted.of_topic(name) for name in named)


def assigned_of(node_id: int, old: MetadataImage, new: MetadataImage, delta: ImageDelta) -> Iterator[Assigned | None]:
    """The partitions of a delta that concern a broker: those that it leads first. None now and then between them, for
    it may lead few of very many."""
    others: list[Assigned] = []
    looked_at = 0
    for topic_id, topic_delta in delta.topics.items():
        topic, before = new.topics.get_by_id(topic_id), old.topics.get_by_id(topic_id)
        for index in topic_delta.partitions:
            looked_at += 1
            if not looked_at % PASSED_OVER_MAX:
                yield None
            state = None if topic is None else topic.find(index)
            known = None if before is None else before.find(index)
            is_new = known is None or node_id not in known.replicas
            if state is not None and not (is_new and node_id not in state.replicas):
                if state.leader == node_id:
                    yield Assigned(topic_id, index, is_new)
                else:
                    others.append(Assigned(topic_id, index, is_new))
    yield from others
