"""What a world of replicas tells of, at the moment when it happens. Sees everything, demands nothing, and changes
nothing: `ReplicaChecks` is the witness that demands."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kraft.broker.replica.isr import IsrProposal
from kraft.control import AlterPartition
from kraft.image import MetadataImage, PartitionState
from kraft.image.events import Event

if TYPE_CHECKING:
    from kraft.sim.cores.replicas.broker import Broker
    from kraft.sim.cores.replicas.leading import Leading
    from kraft.sim.cores.replicas.log import Batch
    from kraft.sim.cores.replicas.world import ReplicaWorld


class ReplicaWitness:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """How often each check looked at something that could have failed it."""

    def after_step(self, broker: Broker) -> None:
        """A core of this broker has taken an input, and what it asked for is done."""

    def on_start(self, broker: Broker, *, is_clean: bool) -> None:
        """It starts; `is_clean`: its last life ended in order."""

    def on_lead(self, broker: Broker, state: PartitionState) -> None:
        """It begins to lead in `state.leader_epoch`."""

    def on_append(self, broker: Broker, batch: Batch) -> None:
        """A batch was written at the end of its log, by itself if it leads."""

    def on_truncate(self, broker: Broker, offset: int, leader_epoch: int) -> None:
        """The log is about to be cut to `offset`, or begun anew there; by the word of the leader of this epoch."""

    def on_cut(self, broker: Broker) -> None:
        """The log has been cut."""

    def on_trim(self, broker: Broker, offset: int) -> None:
        """The log is about to lose what is below `offset`."""

    def on_high_watermark(self, broker: Broker, before: int) -> None:
        """Its high watermark was `before`, and has just been changed."""

    def on_acknowledge(self, leading: Leading, batch: Batch) -> None:
        """A producer that asked for acks=all is told of success."""

    def on_proposal(self, leading: Leading, proposal: IsrProposal) -> None:
        """A leader asks for another in-sync set."""

    def on_power_loss(self, broker: Broker, lost: list[Batch]) -> None:
        """It died, and these batches died with it."""

    def on_commit(
        self, world: ReplicaWorld, before: MetadataImage, after: MetadataImage, events: tuple[Event, ...]
    ) -> None:
        """The metadata quorum has committed these events, which make `after` of `before`."""

    def on_accepted(self, before: PartitionState, image: MetadataImage, command: AlterPartition) -> None:
        """The controller accepts it; `before` and `image` are what that was decided on."""

    def on_recovery(self, told: list[Broker], leader: Broker, epoch: int, waited_ms: int) -> None:
        """With nobody left in ISR and ELR the controller decides that this one leads in `epoch`; those in `told` had
        told how far their logs reach, the last known leader `waited_ms` ago."""

    def on_reply(self, image_offset: int, committed: int) -> None:
        """A controller's answer leaves: it was made from an image that ends at `image_offset`, with the answer's own
        events, and all below `committed` is committed."""
