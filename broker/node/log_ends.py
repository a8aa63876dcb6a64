"""LogEnds: report this broker's log ends to the controller for partitions that have no complete replica, that is,
neither an ISR nor an ELR.

Every heartbeat reports them until the partition has a leader: the controller elects the replica with the longest log.
Invariant: only a log end that cannot change is reported. The broker applies the role without a leader before it reads
the log end. The log is open, and was opened by the incarnation that reports.
Source: KIP-966 (unclean recovery), docs/decisions/18-the-furthest-log.md.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

import trio

from kraft.image.partitions import LEAF_PARTITIONS_MAX, NO_LEADER, PartitionState
from kraft.wire.rpc.controller_messages import LOG_ENDS_MAX, LOG_EPOCHS_MAX, LogEndRow, LogEpochs

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraft.broker.partition.partition import Partition
    from kraft.image import ImageDelta, MetadataImage


LEAVES_PER_STEP = 4
LOGS_CHECKED_MAX = 4 * LOG_ENDS_MAX
"""Maximum number of logs that are checked for one heartbeat. It is higher than LOG_ENDS_MAX, because some of the logs
may not be open."""


class LogEnds:
    """Finds the partitions to report in the metadata. `ends_to_report` returns their log ends."""

    def __init__(
        self,
        node_id: int,
        newest_image: Callable[[], MetadataImage],
        find_replica: Callable[[UUID, int], Partition | None],
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when there are new log ends to report."""
        self._node_id = node_id
        self._newest_image = newest_image
        self._find_replica = find_replica
        self._changed = changed
        self._wanted: dict[tuple[UUID, int], int] = {}
        """The partitions to report: (topic id, partition) → partition epoch."""
        self._follows = False

    @property
    def is_more_than_fits(self) -> bool:
        """Whether there are more log ends than fit into one heartbeat."""
        return len(self._wanted) > LOG_ENDS_MAX

    async def load(self) -> None:
        """Find the partitions to report in the newest image, in turns, because there may be very many. Later images go
        to `published`."""
        self._follows = True
        checked = 0
        for topic_id in [topic.topic_id for topic in self._newest_image().topics]:
            number = 0
            while (topic := self._newest_image().topics.get_by_id(topic_id)) is not None and number < len(topic.leaves):
                for index, state in enumerate(topic.leaves[number], number * LEAF_PARTITIONS_MAX):
                    if state.leader == NO_LEADER:
                        self._check(topic_id, index, state)
                number += 1
                checked += 1
                if not checked % LEAVES_PER_STEP:
                    await trio.lowlevel.checkpoint()

    def published(self, image: MetadataImage, delta: ImageDelta) -> None:
        """Update the partitions to report, after the roles of a newer image were applied."""
        if not self._follows:
            return
        for topic_id, changed in delta.topics.items():
            topic = image.topics.get_by_id(topic_id)
            for index in changed.partitions:
                state = None if topic is None else topic.find(index)
                if self._wanted or state is None or state.leader == NO_LEADER:
                    self._check(topic_id, index, state)
        if self._wanted and delta.deleted_topics:
            self._wanted = {key: epoch for key, epoch in self._wanted.items() if key[0] not in delta.deleted_topics}

    def ends_to_report(self) -> tuple[tuple[LogEndRow, ...], tuple[LogEpochs, ...]]:
        """Return the ends and epochs of logs that can be read, at most LOG_ENDS_MAX; the next call returns others. The
        controller remembers what earlier heartbeats reported."""
        wanted = self._wanted
        rows: list[tuple[LogEndRow, LogEpochs]] = []
        for key in list(islice(wanted, LOGS_CHECKED_MAX)):
            if len(rows) == LOG_ENDS_MAX:
                break
            epoch = wanted[key] = wanted.pop(key)  # to the end, so that the next call begins with other logs
            row = self._row(*key, epoch)
            if row is not None:
                rows.append(row)
        return tuple(row for row, _ in rows), tuple(epochs for _, epochs in rows)

    def _row(self, topic_id: UUID, index: int, partition_epoch: int) -> tuple[LogEndRow, LogEpochs] | None:
        """Return the partition's log end and epochs. Return None if the role of this partition epoch is not applied
        yet, or the log is not open."""
        partition = self._find_replica(topic_id, index)
        if partition is None or partition.state is None or partition.state.partition_epoch != partition_epoch:
            return None
        log = None if partition.is_truncating else partition.readable
        if log is None:
            if partition.waits_for_log and not partition.is_truncating:
                partition.host.request_open(partition)
            return None
        row = (topic_id, index, partition_epoch, log.epochs.latest_epoch, log.log_end_offset)
        return row, log.epochs.newest(LOG_EPOCHS_MAX)

    def _check(self, topic_id: UUID, index: int, state: PartitionState | None) -> None:
        if state is None or not self._is_wanted(state):
            self._wanted.pop((topic_id, index), None)
            return
        self._wanted[topic_id, index] = state.partition_epoch
        partition = self._find_replica(topic_id, index)
        if partition is None or partition.readable is not None:
            self._changed()
        else:
            partition.when_open(self._changed)

    def _is_wanted(self, state: PartitionState) -> bool:
        return (
            state.leader == NO_LEADER
            and not state.isr
            and not state.elr
            and len(state.replicas) > 1
            and self._node_id in state.replicas
        )
