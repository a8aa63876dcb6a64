"""DamagedLogs: decide whether a replica with a damaged log goes offline.

Code that finds damage in an open log reports it here. If another replica could lead, this replica goes offline. Another
replica could lead if it is in the ISR or the ELR and its broker is active (the ELR usually holds replicas of brokers
that are down).

If no other replica could lead, this replica continues, and the caller answers with an error for the damaged part.
Taking the replica offline would make its undamaged records unreadable and stop appends. A replica whose log cannot be
opened or truncated always goes offline.
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

NEXT_REPORT_AFTER_MS = 10 * 60_000
"""Minimum milliseconds between two log messages about a damaged replica that stays online, however many damaged batches
it has."""


class DamagedLogs:
    """Handles the damage found in the logs of one broker."""

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
        self._logged_until: WeakKeyDictionary[Partition, float] = WeakKeyDictionary()
        """Damaged replicas that stay online → monotonic time until which their damage is not logged again."""
        self._unreadable_logged_until: WeakKeyDictionary[Partition, float] = WeakKeyDictionary()
        """Replicas with batches that do not parse → monotonic time until which these batches are not logged again."""

    def damage_found(self, partition: Partition, damage: StorageCorrupt) -> bool:
        """Handle damage found in the partition's open log while it is not being truncated. Return True if the replica
        went offline. Return False if it continues; then the damaged part cannot be read."""
        if self.others_can_lead(partition):
            self.take_offline(partition, damage)
            return True
        if not self._was_logged(partition, self._logged_until):
            log.error(
                "log is damaged, and no other replica could lead: what is not damaged is served. "
                "Stop the broker and restore the file, or let another replica get in sync",
                topic=partition.topic,
                partition=partition.index,
                error=str(damage),
            )
        return False

    def unreadable_batch_found(self, partition: Partition, problem: UnreadableBatch) -> None:
        """Log that a lookup found a batch whose records do not parse, at most once per NEXT_REPORT_AFTER_MS. The
        replica stays online, because every replica has the same batch."""
        if not self._was_logged(partition, self._unreadable_logged_until):
            log.error(
                "stored batch cannot be read",
                topic=partition.topic,
                partition=partition.index,
                offset=problem.offset,
                error=str(problem),
            )

    def take_offline(self, partition: Partition, damage: StorageCorrupt) -> None:
        """Take the replica offline, because its log cannot be trusted. Until the log is repaired, the replica is
        reported as being in no directory, and other replicas lead. Other logs in the directory stay online."""
        log.error(
            "log is damaged: move its folder away while the broker is stopped, and it is fetched again from the leader"
            if self.others_can_lead(partition)
            else "log is damaged, and no other replica could lead: restore its files while the broker is stopped",
            topic=partition.topic,
            partition=partition.index,
            error=str(damage),
        )
        self._lose(partition)
        self._loop.request_pass()

    def others_can_lead(self, partition: Partition) -> bool:
        """Return whether the controller would find another leader if this replica went offline now, as far as this
        broker knows."""
        state, leader = partition.state, partition.leader
        if state is None:
            return False
        in_sync = state.isr if leader is None else leader.isr.committed
        active = self._active_brokers()
        return any(one != self._node_id and one in active for one in (*in_sync, *state.elr))

    def _was_logged(self, partition: Partition, logged_until: WeakKeyDictionary[Partition, float]) -> bool:
        """Return whether this partition's damage was logged recently. If not, record that it is logged now."""
        now_ms = self._loop.clock.monotonic_ms()
        if now_ms < logged_until.get(partition, 0):
            return True
        logged_until[partition] = now_ms + NEXT_REPORT_AFTER_MS
        return False


def was_not_truncated(partition: Partition, opened: Log, truncations: int) -> bool:
    """Return whether `opened` is the partition's current log and its truncation count is still `truncations`. If so,
    damage that a thread found meanwhile is not the effect of a truncation."""
    return partition.log is opened and opened.truncations == truncations and not partition.is_truncating
