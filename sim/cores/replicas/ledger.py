"""What a world of replicas has promised: who led, what was written, what was committed, and what power losses took.

Ghost state: no node reads it. What is exempt from a promise is told by the fault that took it, batch by batch: a
replica need not have what its own power loss destroyed, as long as it has not written it again since.
"""

from __future__ import annotations

from typing import NamedTuple

from kraft.sim.cores.replicas.log import Batch


class Committed(NamedTuple):
    """A batch that a leader of `epoch` has committed."""

    epoch: int
    chain: int


class Void(NamedTuple):
    """An unclean election in `epoch` of a replica that ended at `offset`: what was committed from there to `end` is
    lost."""

    epoch: int
    offset: int
    end: int


class Ledger:
    """Offsets are exclusive ends."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        """Leader epoch → who led in it."""
        self.written: dict[tuple[int, int], int] = {}
        """(base offset, epoch) → chain, of everything that was ever written anywhere."""
        self.committed: dict[int, Committed] = {}
        self.end = 0
        """Of what is committed."""
        self.acknowledged: dict[int, int] = {}
        """End of a batch → its chain."""
        self.voids: list[Void] = []
        self._destroyed: dict[int, set[tuple[int, int]]] = {}
        """Broker → (end, chain) of what its power losses took and it has not written again."""

    def destroy(self, broker_id: int, lost: list[Batch]) -> None:
        """A power loss took these batches of this broker."""
        gone = self._destroyed.setdefault(broker_id, set())
        gone.update((batch.next_offset, batch.chain) for batch in lost)

    def wrote(self, broker_id: int, batch: Batch) -> None:
        """It has written it, perhaps again."""
        gone = self._destroyed.get(broker_id)
        if gone:
            gone.discard((batch.next_offset, batch.chain))

    def is_destroyed(self, broker_id: int, end: int, chain: int) -> bool:
        """Whether a power loss of this broker took what ends there."""
        return (end, chain) in self._destroyed.get(broker_id, ())

    def is_void(self, epoch: int, end: int) -> bool:
        """Whether a leader of `epoch` commits to something that a later unclean election has given up already."""
        return any(epoch < void.epoch and end > void.offset for void in self.voids)

    def void(self, epoch: int, offset: int) -> None:
        """An unclean election in `epoch` gives up what was committed beyond `offset`."""
        self.voids.append(Void(epoch, offset, self.end))
        self.committed = {end: one for end, one in self.committed.items() if end <= offset}
        self.acknowledged = {end: chain for end, chain in self.acknowledged.items() if end <= offset}
        self.end = max(self.committed, default=0)

    def may_be_overstated(self, end: int) -> bool:
        """Whether a checkpointed high watermark from before an unclean election may reach so far, and count records
        that took the place of the lost ones (as in Kafka, which cuts the log and leaves the checkpoint)."""
        return any(end <= void.end for void in self.voids)

    def newest_before(self, epoch: int) -> tuple[int, Committed] | None:
        """The last batch that was committed in an epoch below this one."""
        end = max((end for end, one in self.committed.items() if one.epoch < epoch), default=None)
        return None if end is None else (end, self.committed[end])
