"""Record of a world of replicas, which no node reads: leaders, batches written, batches committed, and batches lost to
power failures.

The fault that destroys batches records each of them as exempt. A replica need not hold what its own power loss
destroyed, until it has written it again.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.sim.cores.replicas.log import ReplicaBatch


class Committed(NamedTuple):
    """A batch that a leader of `epoch` has committed."""

    epoch: int
    chain: int


class Void(NamedTuple):
    """Loss by an unclean election: in `epoch` a replica was elected whose log ended at `offset`, so committed records
    from there to `end` are lost."""

    epoch: int
    offset: int
    end: int


class Ledger:
    """Everything that was written, committed and lost so far. Offsets are exclusive ends."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        """Leader epoch → its leader."""
        self.written: dict[tuple[int, int], int] = {}
        """(base offset, epoch) → hash of the log up to there, for all batches ever written on any replica."""
        self.committed: dict[int, Committed] = {}
        self.end = 0
        """End of the committed log."""
        self.acknowledged: dict[int, int] = {}
        """End offset of an acknowledged batch → hash of the log up to there."""
        self.voids: list[Void] = []
        self._destroyed: dict[int, set[tuple[int, int]]] = {}
        """Broker → (end offset, hash) of batches that its power losses destroyed and that it has not written again."""

    def destroy(self, broker_id: int, lost: list[ReplicaBatch]) -> None:
        """Record that a power loss destroyed these batches of this broker."""
        gone = self._destroyed.setdefault(broker_id, set())
        gone.update((batch.next_offset, batch.chain) for batch in lost)

    def wrote(self, broker_id: int, batch: ReplicaBatch) -> None:
        """Record that the broker has written the batch, perhaps again."""
        gone = self._destroyed.get(broker_id)
        if gone:
            gone.discard((batch.next_offset, batch.chain))

    def is_destroyed(self, broker_id: int, end: int, chain: int) -> bool:
        """Return whether a power loss of this broker destroyed the batch that ends there."""
        return (end, chain) in self._destroyed.get(broker_id, ())

    def is_void(self, epoch: int, end: int) -> bool:
        """Return whether a leader of `epoch` commits a record that a later unclean election has already discarded."""
        return any(epoch < void.epoch and end > void.offset for void in self.voids)

    def void(self, epoch: int, offset: int) -> None:
        """Record an unclean election in `epoch` that discards committed records from `offset` on."""
        self.voids.append(Void(epoch, offset, self.end))
        self.committed = {end: one for end, one in self.committed.items() if end <= offset}
        self.acknowledged = {end: chain for end, chain in self.acknowledged.items() if end <= offset}
        self.end = max(self.committed, default=0)

    def may_be_overstated(self, end: int) -> bool:
        """Return whether a high watermark of this offset is excused: it may be a checkpoint from before an unclean
        election and count records that replaced the lost ones. Kafka behaves in the same way: it truncates the log and
        keeps the checkpoint."""
        return any(end <= void.end for void in self.voids)

    def newest_before(self, epoch: int) -> tuple[int, Committed] | None:
        """Return the last batch that was committed in an epoch below this one."""
        end = max((end for end, one in self.committed.items() if one.epoch < epoch), default=None)
        return None if end is None else (end, self.committed[end])
