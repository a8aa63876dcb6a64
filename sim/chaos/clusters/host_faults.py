"""HostFaults: what goes wrong with the hosts of a ChaosCluster's nodes: clocks and disks.

- `clock`: libfaketime stands between each process and the system's clock (see kraft.sim.chaos.hosts.clocks).
- `full disk`: each broker has a small file system of its own (see kraft.sim.chaos.hosts.disks).
- `slow disk`, `failing sync`: the node's own seam delays or fails its syncs (see kraft.runtime.disk_faults).
- `empty disk`: the process is killed, and its data is removed.

What a cluster does not need is not made: clocks and small disks only where a fault of that kind is among `kinds`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Protocol

from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.fault_client import FaultClient
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.node_command import NodeCommand
from kraft.sim.chaos.hosts.clocks import CannotMoveClock, NodeClock, measure_offset_ms
from kraft.sim.chaos.hosts.disks import CannotMount, NodeDisk
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.plan import Fault
from kraft.sim.shapes import ClusterError

CLOCK, FULL_DISK, SLOW_DISK, FAILING_SYNC = "clock", "full disk", "slow disk", "failing sync"
KINDS = (CLOCK, FULL_DISK, SLOW_DISK, FAILING_SYNC, plan.EMPTY_DISK)
PREPARED_KINDS = (CLOCK, FULL_DISK)
"""Those that cannot be had where they were not prepared."""
DISK_BYTES = 256 << 20
SLOW_SYNC_MS = 800
ASK_SECONDS = 0.1
"""Between two rounds of questions to nodes (HostFaults.ask)."""

End = Callable[[], None]


@contextmanager
def _cluster_errors() -> Iterator[None]:
    """What a host cannot be given is what the cluster cannot do."""
    try:
        yield
    except (LaunchError, CannotMount, CannotMoveClock) as problem:
        raise ClusterError(str(problem)) from problem


def without_unprepared(kinds: Iterable[str], prepared: Collection[str]) -> tuple[str, ...]:
    """Of these kinds of faults those that a cluster can have for which `prepared` was prepared."""
    return tuple(kind for kind in kinds if kind not in PREPARED_KINDS or kind in prepared)


class Hosted(Protocol):
    """What a host's faults do to the node on it."""

    def kill(self, node: int) -> None: ...

    def start(self, node: int, *, until_ready: bool = True) -> None: ...

    def is_running(self, node: int) -> bool: ...


class HostFaults:
    """See the module. `prepare` is called when the nodes' folders are there and no node runs."""

    def __init__(self, kinds: Collection[str], warden: Warden) -> None:
        self._kinds = kinds
        self._warden = warden
        self._clocks: dict[int, NodeClock] = {}
        self._disks: dict[int, NodeDisk] = {}
        self._ailing: set[int] = set()
        """Nodes whose disk has a fault now."""
        self._offsets: dict[int, int] = {}
        """Node → how far its clock was ahead of ours, in ms, when it was asked last."""
        self._slow_syncs: dict[int, int] = {}
        self._failed_syncs: dict[int, int] = {}

    def prepare(self, folder: ClusterFolder, nodes: Iterable[int], brokers: Collection[int]) -> None:
        """Make what the faults need. ClusterError says what this machine does not allow."""
        self._folder = folder
        try:
            for node in nodes:
                if CLOCK in self._kinds:
                    self._give_clock(node)
                if FULL_DISK in self._kinds and node in brokers:
                    self._give_disk(node)
        except (CannotMoveClock, CannotMount) as problem:
            raise ClusterError(f"a fault of this scenario cannot be had here: {problem}") from problem

    def close(self) -> None:
        """Remove it; the nodes have ended."""
        for clock in self._clocks.values():
            clock.close()
        for disk in self._disks.values():
            disk.unmount()

    @_cluster_errors()
    def begin(self, fault: Fault, cluster: Hosted) -> End | None:
        """Begin one of KINDS; what ends it, None if this node has such a fault already. Both raise ClusterError."""
        if fault.kind == CLOCK:
            return self._step_clock(fault)
        if fault.kind == plan.EMPTY_DISK:
            return self._lose_disk(fault.node, cluster)
        if fault.node in self._ailing:
            return None
        return self._break_disk(fault, cluster)

    def ask(self) -> None:
        """Ask the nodes whose disk has a fault for what `facts` tells; takes long where one does not answer."""
        for node in [*self._ailing]:
            with suppress(LaunchError):
                self._slow_syncs[node], self._failed_syncs[node] = self._node(node).syncs_broken()

    def facts(self) -> dict[str, float]:
        """By node: free bytes of small disks, how far clocks were found to be moved, and as it was asked last, how many
        syncs were slow or failed since the node started."""
        return {
            **{f"free bytes {node}": float(disk.free_bytes) for node, disk in self._disks.items()},
            **{f"clock offset ms {node}": float(offset) for node, offset in [*self._offsets.items()]},
            **{f"slow syncs {node}": float(count) for node, count in [*self._slow_syncs.items()]},
            **{f"failed syncs {node}": float(count) for node, count in [*self._failed_syncs.items()]},
        }

    # clocks

    def _give_clock(self, node: int) -> None:
        clock = NodeClock(self._folder.node(node), self._warden)
        clock.open()
        self._clocks[node] = clock
        self._offsets[node] = 0
        folder = self._folder.node(node)
        command = NodeCommand.read(folder) or NodeCommand()
        replace(command, environment={**command.environment, **clock.environment}).write(folder)

    def _step_clock(self, fault: Fault) -> End:
        """A step stays: a node whose clock was moved is not corrected by anybody."""
        clock = self._clocks[fault.node]
        clock.set_offset_ms(clock.offset_ms + fault.amount)
        self._offsets[fault.node] = measure_offset_ms(self._node(fault.node))
        return lambda: None

    # disks

    def _give_disk(self, node: int) -> None:
        path = self._folder.node(node) / "data"
        path.mkdir(exist_ok=True)
        disk = NodeDisk(path, DISK_BYTES, self._warden)
        disk.mount()
        self._disks[node] = disk

    def _lose_disk(self, node: int, cluster: Hosted) -> End:
        cluster.kill(node)
        for path in (self._folder.node(node) / "data").iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return lambda: None

    def _break_disk(self, fault: Fault, cluster: Hosted) -> End:
        node = fault.node
        if fault.kind == FULL_DISK:
            if node not in self._disks:
                raise ClusterError(f"node {node} is no broker: brokers alone have a small disk that can be full")
            self._disks[node].fill()
            heal: Callable[[], object] = self._disks[node].free
        elif fault.kind == SLOW_DISK:
            self._node(node).slow_syncs(SLOW_SYNC_MS)
            heal = partial(self._node(node).slow_syncs, 0)
        else:
            self._node(node).fail_syncs(True)
            heal = partial(self._node(node).fail_syncs, False)
        self._ailing.add(node)

        @_cluster_errors()
        def end() -> None:
            self._ailing.discard(node)
            with suppress(LaunchError):  # a node that has stopped for it has forgotten it
                heal()

        return end

    def _node(self, node: int) -> FaultClient:
        return FaultClient.of_node(self._folder, node)
