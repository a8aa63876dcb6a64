"""RoleTurns: apply the roles of each newer image in order, in several turns if there are many.

Invariants: deletions are applied first, then leaders, then followers. Each is applied from the image that is newest at
that time. If the roles of an image fit into one turn, they are applied when `apply` returns. Source: Kafka's
BrokerMetadataPublisher, ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from kraft.broker.partition.partition import Partition
from kraft.broker.roles.role_applier import AssignedPartition
from kraft.broker.serving.turns import Turns
from kraft.image.registrations import ConfigResourceType

if TYPE_CHECKING:
    from kraft.broker.partition.replica_index import ReplicaIndex
    from kraft.broker.roles.role_applier import RoleApplier
    from kraft.broker.serving.loop import Loop
    from kraft.image.delta import ImageDelta
    from kraft.image.image import MetadataImage

PASSED_OVER_MAX = 1_000


class RoleTurns:
    """Applies roles in turns. `image` is the newest image whose roles are applied, or are being applied. Only `load`
    suspends."""

    def __init__(
        self,
        loop: Loop,
        node_id: int,
        image: MetadataImage,
        hosted: ReplicaIndex,
        roles: RoleApplier,
        *,
        take_brokers: Callable[[MetadataImage], None],
        redirect: Callable[[Iterable[int]], None],
        configure: Callable[[Partition], None],
        after_turn: Callable[[], None],
    ) -> None:
        """`take_brokers(image)` is called when brokers have changed. `redirect(ids)` is called for brokers whose
        address may have changed. `configure` is called for a replica whose topic settings may have changed.
        `after_turn` is called after each turn."""
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
        """Whether all roles have been applied, so that no turn remains."""
        return self._turns.is_idle

    async def load(self, image: MetadataImage) -> None:
        """Apply every role of the first image."""
        self._turns.add(
            self._take,
            (
                AssignedPartition(topic.topic_id, index)
                for topic in image.topics
                for index, state in topic.partitions()
                if self._node_id in state.replicas
            ),
        )
        await self._turns.finish()

    def begin(self, image: MetadataImage) -> None:
        """Begin with the first image; `load` then applies its roles."""
        self._take_brokers(image)
        self.image = image

    def apply(self, old: MetadataImage, new: MetadataImage, delta: ImageDelta, then: Callable[[], None]) -> None:
        """Apply the roles of a newer image, then call `then`."""
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
        """Run the in-sync timer of all replicas once."""
        self._turns.add(Partition.check_lag, self._hosted)
        self._turns.start()

    def _take(self, assigned: AssignedPartition) -> None:
        self._roles.apply(self.image, assigned)

    def _gone(self, delta: ImageDelta) -> Iterator[AssignedPartition]:
        """Yield the replicas of the topics that a delta deletes."""
        for topic_id in delta.deleted_topics:
            for partition in self._hosted.of_topic(topic_id):
                yield AssignedPartition(topic_id, partition.index)

    def _configured(self, delta: ImageDelta) -> Iterable[Partition]:
        """Return the replicas of topics whose settings have changed."""
        if any(kind is ConfigResourceType.BROKER for kind, _ in delta.configs):
            return self._hosted
        named = [name for kind, name in delta.configs if kind is ConfigResourceType.TOPIC]
        return chain.from_iterable(self._hosted.of_topic(name) for name in named)


def assigned_of(
    node_id: int, old: MetadataImage, new: MetadataImage, delta: ImageDelta
) -> Iterator[AssignedPartition | None]:
    """Yield the partitions of a delta that are assigned to a broker, first those that it leads. Yield None in between
    during a long search, because a broker may have few of very many partitions."""
    others: list[AssignedPartition] = []
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
                    yield AssignedPartition(topic_id, index, is_new)
                else:
                    others.append(AssignedPartition(topic_id, index, is_new))
    yield from others
