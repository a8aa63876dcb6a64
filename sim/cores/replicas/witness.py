"""Callbacks for the events of a world of replicas.

The base class here only counts; it checks and changes nothing. `ReplicaChecks` is the subclass that checks.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kraft.broker.replica.isr import IsrProposal
from kraft.control import AlterPartition
from kraft.image import MetadataImage, PartitionState
from kraft.image.events import Event

if TYPE_CHECKING:
    from kraft.sim.cores.replicas.broker import CoreBroker
    from kraft.sim.cores.replicas.leading import LeadingReplica
    from kraft.sim.cores.replicas.log import ReplicaBatch
    from kraft.sim.cores.replicas.world import ReplicaWorld


class ReplicaWitness:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Check → number of events that could have violated it."""

    def after_step(self, broker: CoreBroker) -> None:
        """Called when a core of this broker has processed an input and its effects are done."""

    def on_start(self, broker: CoreBroker, *, is_clean: bool) -> None:
        """Called when a broker starts; `is_clean`: its last stop was clean."""

    def on_lead(self, broker: CoreBroker, state: PartitionState) -> None:
        """Called when a broker starts leading in `state.leader_epoch`."""

    def on_append(self, broker: CoreBroker, batch: ReplicaBatch) -> None:
        """Called when a batch was appended to a broker's log; the broker wrote it itself if it leads."""

    def on_truncate(self, broker: CoreBroker, offset: int, leader_epoch: int) -> None:
        """Called when a broker's log is about to be truncated to `offset`, or restarted there, as the leader of this
        epoch requires."""

    def on_cut(self, broker: CoreBroker) -> None:
        """Called when a broker's log has been truncated."""

    def on_trim(self, broker: CoreBroker, offset: int) -> None:
        """Called when the records below `offset` are about to be deleted from a broker's log."""

    def on_high_watermark(self, broker: CoreBroker, before: int) -> None:
        """Called when the high watermark of a broker has just changed from `before`."""

    def on_acknowledge(self, leading: LeadingReplica, batch: ReplicaBatch) -> None:
        """Called when a producer with acks=all gets a successful response."""

    def on_proposal(self, leading: LeadingReplica, proposal: IsrProposal) -> None:
        """Called when a leader proposes another ISR."""

    def on_power_loss(self, broker: CoreBroker, lost: list[ReplicaBatch]) -> None:
        """Called when a broker lost power and, with it, these batches."""

    def on_commit(
        self, world: ReplicaWorld, before: MetadataImage, after: MetadataImage, events: tuple[Event, ...]
    ) -> None:
        """Called when the metadata quorum has committed these events, which turn `before` into `after`."""

    def on_accepted(self, before: PartitionState, image: MetadataImage, command: AlterPartition) -> None:
        """Called when the controller accepts a proposal; the decision was based on `before` and `image`."""

    def on_recovery(self, told: list[CoreBroker], leader: CoreBroker, epoch: int, waited_ms: int) -> None:
        """Called when, with ISR and ELR empty, the controller makes this replica leader in `epoch`. The replicas in
        `told` had reported their log ends; the controller waited `waited_ms` for the last known leader."""

    def on_reply(self, image_offset: int, committed: int) -> None:
        """Called when the controller sends an answer. It was made from an image that ends at `image_offset`, including
        the answer's own events. Everything below `committed` is committed."""
