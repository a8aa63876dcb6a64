"""Interfaces between a partition and its surroundings: its watchers, the requests that wait for it, and PartitionHost,
which all partitions of a broker share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kraft.broker.replica.isr import IsrProposal
from kraft.broker.replica.leader import NO_BROKERS
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
    """An object that is notified at the end of each pass in which the partition changed, such as a partition of a fetch
    session or of a DeleteRecords request."""

    def partition_changed(self) -> None: ...

    def refresh_followers(self, leader: LeaderState) -> None:
        """Request new reports from the followers, because their last reports may no longer be valid."""
        ...


class WokenRequest(Protocol):
    """A parked request that must be checked at the end of this pass."""

    def check_again(self) -> None:
        """Check the request again; called at the end of the pass."""
        ...


class CommitWaiter(Protocol):
    """A produce, or another operation, that waits until its batch is committed (below the high watermark) or synced."""

    def acknowledged(self, partition: Partition, error: ErrorCode) -> None:
        """Continue, because the operation need not wait for `partition` any more. `error` is the outcome."""
        ...


class PendingAppend:
    """An append that waits for its partition. It runs in its order once it is `ready` and the partition is
    `appendable`, by `run(NONE)`. If the partition will not accept the append, `run` gets the error instead."""

    __slots__ = ("ready", "run")

    def __init__(self, run: Callable[[ErrorCode], None], *, ready: bool = True) -> None:
        self.run = run
        self.ready = ready


class PartitionHost:
    """The state and callbacks that all partitions of this broker share. The callables are set once, when the objects
    behind them are created."""

    __slots__ = (
        "_brokers",
        "changed",
        "clock",
        "damage_found",
        "eligible",
        "lag_ms_max",
        "may_write",
        "node_id",
        "propose_isr",
        "racks",
        "request_open",
        "request_ready",
        "request_sync",
        "transitions",
    )

    damage_found: Callable[[Partition, StorageCorrupt], bool]
    """Called when a read found damage in the log. Returns True if the replica goes offline because of it."""
    propose_isr: Callable[[Partition, IsrProposal], None]
    """Proposes another in-sync set to the controller."""
    may_write: Callable[[Partition], bool]
    """Returns whether a waiting append may run now. If it may not, it runs when the budget of dirty bytes has room."""
    request_sync: Callable[[Partition], None]
    """Syncs the log after the pass, because an append waits for the sync, or a segment was rolled."""
    request_ready: Callable[[Partition], None]
    """Opens the files that an append needs, saves the entry of the leader epoch, then calls `readied`."""
    request_open: Callable[[Partition], None]
    """Opens the log soon, because a request waits for it."""

    def __init__(self, clock: Clock, node_id: int, lag_ms_max: int) -> None:
        self.clock = clock
        self.node_id = node_id
        self.lag_ms_max = lag_ms_max
        self.eligible: dict[int, int] = {}
        """Broker id → broker epoch, for the brokers that may join an in-sync set."""
        self.racks: dict[int, str | None] = {}
        """The racks of all registered brokers."""
        self.changed: dict[Partition, None] = {}
        """Partitions whose log end or high watermark moved in this pass."""
        self.transitions: Counter[Transition] = Counter()
        """Number of times that each transition of `partition_states` has happened, over all partitions."""
        self._brokers = EMPTY_IMAGE.brokers

    def take_brokers(self, image: MetadataImage) -> None:
        """Apply the registered brokers of an image: their epochs, fencing and racks."""
        self._brokers = image.brokers
        self.eligible = {broker.broker_id: broker.broker_epoch for broker in image.sorted_brokers() if broker.is_active}
        self.racks = {broker.broker_id: broker.rack for broker in image.sorted_brokers()}

    def offline_replicas(self, state: PartitionState) -> frozenset[int]:
        """Return the replicas that are out of sync and whose log directories are offline. They cannot join the in-sync
        set."""
        if len(state.isr) == len(state.replicas):
            return NO_BROKERS
        brokers = self._brokers
        placed = zip(state.replicas, state.directories, strict=bool(state.directories))
        return frozenset(
            one
            for one, directory in placed
            if one not in state.isr and one in brokers and not brokers[one].has_directory(directory)
        )
