"""ReplicaRemoval: stop a replica that is no longer assigned to this broker, then remove its folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft.broker.following.fetchers import Fetchers
    from kraft.broker.partition.partition import Partition
    from kraft.broker.partition.replica_index import ReplicaIndex
    from kraft.storage.log import Log


class ReplicaRemoval:
    """Removes replicas. `remove` is not a coroutine."""

    def __init__(
        self,
        hosted: ReplicaIndex,
        fetchers: Fetchers,
        *,
        give_up_move: Callable[[Partition], None],
        retire: Callable[[Partition, Log | None], None],
        forget_topic: Callable[[str], None],
    ) -> None:
        """`retire(partition, log)` removes the folder. `forget_topic(name)` is called when no replica of this topic
        remains."""
        self._hosted = hosted
        self._fetchers = fetchers
        self._give_up_move = give_up_move
        self._retire = retire
        self._forget_topic = forget_topic

    def remove(self, partition: Partition) -> None:
        """Stop all work of this replica, and remove its folder if it has one."""
        self._fetchers.stop(partition)
        self._give_up_move(partition)
        if self._hosted.drop(partition):
            self._forget_topic(partition.topic)
        opened = partition.log
        has_folder = not partition.is_unwritten or partition.blocking.locked()  # or the folder is just being created
        partition.removed()
        if partition.directory is not None:
            partition.directory.partitions.discard(partition)
            if has_folder:
                self._retire(partition, opened)
