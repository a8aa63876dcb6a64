"""What a partition and its surroundings know of each other: what watches it, what waits for it, and PartitionHost,
which all partitions of a broker share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kraft.broker.replica.isr import IsrProposal
from kraft.broker.replica.leader import NOBODY
from kraft.image.image import EMPTY_IMAGE
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.partition.partition import Partition
    from kraft.broker.partition.partition_states import Transition
    from kraft.broker.replica.leader import LeaderState
    from kraft.image.image import MetadataImage
    from kraft.image.partitions import PartitionState
    from kraft.seam import Clock, StorageCorrupt


class Watcher(Protocol):
    """Told at the end of a pass in which the partition changed: one partition of a fetch, or of a DeleteRecords."""

    def partition_changed(self) -> None: ...

    def ask_again(self, leader: LeaderState) -> None:
        """What followers told may be void by now."""
        ...


class WokenRequest(Protocol):
    """A request that has something to look at since this pass."""

    def check_again(self) -> None:
        """The end of the pass."""
        ...


class Waiting(Protocol):
    """A produce that waits for the high watermark (or for the disk)."""

    def acknowledged(self, partition: Partition, error: ErrorCode) -> None:
        """`partition` is done for this produce."""
        ...


class PendingAppend:
    """An append that waits for its partition. It runs, in its turn, once `ready` and the partition is `appendable`;
    `run(error)` with an error other than NONE: the partition will not take it."""

    __slots__ = ("ready", "run")

    def __init__(self, run: Callable[[ErrorCode], None], *, ready: bool = True) -> None:
        self.run = run
        self.ready = ready


class PartitionHost:
    """What all partitions of this broker share. The callables are set once, when the parts behind them are made."""

    __slots__ = (
        "_brokers",
        "changed",
        "clock",
        "eligible",
        "lag_ms_max",
        "may_write",
        "met_damage",
        "node_id",
        "propose_isr",
        "racks",
        "transitions",
        "want_open",
        "want_ready",
        "want_sync",
    )

    met_damage: Callable[[Partition, StorageCorrupt], bool]
    """A read met damage in the log. True if the replica ends for it."""
    propose_isr: Callable[[Partition, IsrProposal], None]
    """Ask the controller for another in-sync set."""
    may_write: Callable[[Partition], bool]
    """Whether an append that waits may run now. If not, what waits is run when the budget of dirty bytes has room."""
    want_sync: Callable[[Partition], None]
    """The log has something that should reach the disk (an append that waits for it, a rolled segment)."""
    want_ready: Callable[[Partition], None]
    """Open the files that an append needs, save the epoch entries, then call `readied`."""
    want_open: Callable[[Partition], None]
    """Open the log soon: a request waits for it."""

    def __init__(self, clock: Clock, node_id: int, lag_ms_max: int) -> None:
        self.clock = clock
        self.node_id = node_id
        self.lag_ms_max = lag_ms_max
        self.eligible: dict[int, int] = {}
        """Brokers that may join an in-sync set, with their epochs."""
        self.racks: dict[int, str | None] = {}
        """The racks of all registered brokers."""
        self.changed: dict[Partition, None] = {}
        """Partitions whose log end or high watermark moved in this pass."""
        self.transitions: Counter[Transition] = Counter()
        """How often partitions have taken each transition of `partition_states`."""
        self._brokers = EMPTY_IMAGE.brokers

    def take_brokers(self, image: MetadataImage) -> None:
        """Brokers are registered, fenced or placed as this image says."""
        self._brokers = image.brokers
        self.eligible = {broker.broker_id: broker.broker_epoch for broker in image.sorted_brokers() if broker.is_active}
        self.racks = {broker.broker_id: broker.rack for broker in image.sorted_brokers()}

    def offline_replicas(self, state: PartitionState) -> frozenset[int]:
        """Replicas that are out of sync and whose log directories are offline: they cannot join."""
        if len(state.isr) == len(state.replicas):
            return NOBODY
        brokers = self._brokers
        placed = zip(state.replicas, state.directories, strict=bool(state.directories))
        return frozenset(
            one
            for one, directory in placed
            if one not in state.isr and one in brokers and not brokers[one].has_directory(directory)
        )
