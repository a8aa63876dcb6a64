"""What a partition and those around it know of each other: who watches it, who waits for it, and what it needs of the
replica manager. Protocols, and the one value that waits in its queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kraft.broker.replica.isr import IsrProposal
from kraft.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from kraft.broker.node.damaged_logs import DamagedLogs
    from kraft.broker.node.partition import Partition
    from kraft.broker.replica.leader import LeaderState
    from kraft.image.partitions import PartitionState
    from kraft.seam import Clock


class Watcher(Protocol):
    """Told at the end of a pass in which the partition changed: one partition of a fetch, or of a DeleteRecords."""

    def partition_changed(self) -> None: ...

    def ask_again(self, leader: LeaderState) -> None:
        """What followers told may be void by now."""
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


class PartitionHost(Protocol):
    """What a partition needs of the replica manager."""

    node_id: int
    clock: Clock
    eligible: dict[int, int]
    """Brokers that may join an in-sync set, with their epochs."""
    racks: dict[int, str | None]
    """The racks of all registered brokers."""
    changed: dict[Partition, None]
    """Partitions whose log end or high watermark moved in this pass."""
    damaged_logs: DamagedLogs
    lag_ms_max: int

    def offline_replicas(self, state: PartitionState) -> frozenset[int]:
        """Replicas that want to join the in-sync set and cannot: metadata tell that their log directories are
        offline."""
        ...

    def propose_isr(self, partition: Partition, proposal: IsrProposal) -> None: ...

    def may_write(self, partition: Partition) -> bool:
        """Whether an append that waits may run now. If not, what waits is run when the budget of dirty bytes has
        room."""
        ...

    def want_sync(self, partition: Partition) -> None:
        """The log has something that should reach the disk (an append that waits for it, a rolled segment)."""
        ...

    def want_ready(self, partition: Partition) -> None:
        """Open the files that an append needs, save the epoch entries, then call `readied`."""
        ...

    def want_open(self, partition: Partition) -> None:
        """Open the log soon: somebody waits for it."""
        ...
