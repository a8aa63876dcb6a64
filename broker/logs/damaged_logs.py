"""Logs that are damaged: what becomes of the replica.

Whoever meets damage in an open log asks here. The replica ends where another could lead: one that is in sync, or of the
ELR, and whose broker is active (the ELR holds replicas of brokers that are down, as a rule). Where none could, an end
would take everybody all that can still be read, and appends too: the replica goes on, and who met the damage answers an
error. A log that cannot be opened, or not be cut, ends in any case.
Source: docs/decisions/08-damaged-replicas.md.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import structlog

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.serving.loop import Loop
    from kraft.seam import StorageCorrupt
    from kraft.storage.log import Log
    from kraft.storage.unreadable import UnreadableBatch

log = structlog.get_logger("kraft.broker.replicas")

LEFT_ALONE_MS = 10 * 60_000
"""A replica that is damaged and goes on is told of once in so long, wherever it is damaged."""


class DamagedLogs:
    """The damage that one broker has met."""

    def __init__(
        self,
        loop: Loop,
        node_id: int,
        active_brokers: Callable[[], Container[int]],
        lose: Callable[[Partition], None],
    ) -> None:
        """`lose` takes a replica offline and reports it to the controller."""
        self._loop = loop
        self._node_id = node_id
        self._active_brokers = active_brokers
        self._lose = lose
        self._told: WeakKeyDictionary[Partition, float] = WeakKeyDictionary()
        """Whose damage was told while it goes on, and until when that is enough."""
        self._told_unreadable: WeakKeyDictionary[Partition, float] = WeakKeyDictionary()
        """The same for batches that do not parse."""

    def met(self, partition: Partition, damage: StorageCorrupt) -> bool:
        """Somebody met damage in the partition's open log, which nobody is cutting. True: the replica has ended. False:
        it goes on, and what is damaged cannot be read."""
        if self.others_can_lead(partition):
            self.end(partition, damage)
            return True
        if not self._was_told(partition, self._told):
            log.error(
                "log is damaged, and no other replica could lead: what is not damaged is served. "
                "Stop the broker and restore the file, or let another replica get in sync",
                topic=partition.topic,
                partition=partition.index,
                error=str(damage),
            )
        return False

    def met_unreadable(self, partition: Partition, problem: UnreadableBatch) -> None:
        """A lookup met a batch whose records do not parse: logged once in LEFT_ALONE_MS, however often it is retried.
        Every replica has it so, and none of them ends."""
        if not self._was_told(partition, self._told_unreadable):
            log.error(
                "stored batch cannot be read",
                topic=partition.topic,
                partition=partition.index,
                offset=problem.offset,
                error=str(problem),
            )

    def end(self, partition: Partition, damage: StorageCorrupt) -> None:
        """What stands in this log cannot be trusted: the replica is in no directory until it is mended, and others
        lead. The other logs of its directory are as good as before."""
        log.error(
            "log is damaged: move its folder away while the broker is stopped, and it is fetched anew from the leader"
            if self.others_can_lead(partition)
            else "log is damaged, and no other replica could lead: restore its files while the broker is stopped",
            topic=partition.topic,
            partition=partition.index,
            error=str(damage),
        )
        self._lose(partition)
        self._loop.request_pass()

    def others_can_lead(self, partition: Partition) -> bool:
        """Whether the controller would find another leader if this replica ended now, as far as is known here."""
        state, leader = partition.state, partition.leader
        if state is None:
            return False
        in_sync = state.isr if leader is None else leader.isr.committed
        active = self._active_brokers()
        return any(one != self._node_id and one in active for one in (*in_sync, *state.elr))

    def _was_told(self, partition: Partition, told: WeakKeyDictionary[Partition, float]) -> bool:
        """Whether its damage was told a short while ago; if not, it is now."""
        now_ms = self._loop.clock.monotonic_ms()
        if now_ms < told.get(partition, 0):
            return True
        told[partition] = now_ms + LEFT_ALONE_MS
        return False


def is_uncut(partition: Partition, opened: Log, truncations: int) -> bool:
    """`opened` is still the partition's log, and nothing was cut off it since it had been cut so often: damage that was
    found in it meanwhile, off the loop, is damage."""
    return partition.log is opened and opened.truncations == truncations and not partition.is_truncating
