"""HostFaults: faults of the hosts of a ChaosCluster's nodes: clocks and disks.

- `clock`: libfaketime sits between each process and the system's clock (see kraft.sim.chaos.hosts.clocks).
- `full disk`: each broker has its own small file system (see kraft.sim.chaos.hosts.disks).
- `slow disk`, `failing sync`: the node's process delays or fails its own syncs (see kraft.runtime.disk_faults).
- `empty disk`: the process is killed, and its data is removed.

Clocks and small disks are created only if a fault of that kind is among `kinds`.
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
from kraft.sim.chaos.hosts.clocks import CannotMoveClock, ProcessClock, measure_offset_ms
from kraft.sim.chaos.hosts.disks import CannotMount, NodeDisk
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.plan import Fault
from kraft.sim.shapes import ClusterError

CLOCK, FULL_DISK, SLOW_DISK, FAILING_SYNC = "clock", "full disk", "slow disk", "failing sync"
KINDS = (CLOCK, FULL_DISK, SLOW_DISK, FAILING_SYNC, plan.EMPTY_DISK)
PREPARED_KINDS = (CLOCK, FULL_DISK)
"""Kinds that are possible only if they were prepared."""
DISK_BYTES = 256 << 20
SLOW_SYNC_MS = 800
ASK_SECONDS = 0.1
"""Pause between two rounds of queries to nodes (HostFaults.ask)."""

End = Callable[[], None]


@contextmanager
def _cluster_errors() -> Iterator[None]:
    """Turn errors of host resources into ClusterError."""
    try:
        yield
    except (LaunchError, CannotMount, CannotMoveClock) as problem:
        raise ClusterError(str(problem)) from problem


def without_unprepared(kinds: Iterable[str], prepared: Collection[str]) -> tuple[str, ...]:
    """Return the kinds of faults that a cluster prepared for `prepared` can have."""
    return tuple(kind for kind in kinds if kind not in PREPARED_KINDS or kind in prepared)


class Hosted(Protocol):
    """The cluster's methods that a host fault calls on a node."""

    def kill(self, node: int) -> None: ...

    def start(self, node: int, *, until_ready: bool = True) -> None: ...

    def is_running(self, node: int) -> bool: ...


class HostFaults:
    """Clock and disk faults of a cluster; see the module. Call `prepare` when the nodes' folders exist and no node
    runs."""

    def __init__(self, kinds: Collection[str], warden: Warden) -> None:
        self._kinds = kinds
        self._warden = warden
        self._clocks: dict[int, ProcessClock] = {}
        self._disks: dict[int, NodeDisk] = {}
        self._faulty: set[int] = set()
        """Nodes whose disk currently has a fault."""
        self._offsets: dict[int, int] = {}
        """Map from node id to how far the node's clock was ahead of this process's clock, in ms, when it was last
        queried."""
        self._slow_syncs: dict[int, int] = {}
        self._failed_syncs: dict[int, int] = {}

    def prepare(self, folder: ClusterFolder, nodes: Iterable[int], brokers: Collection[int]) -> None:
        """Create the clocks and disks that the faults need. Raises ClusterError with what this machine does not
        allow."""
        self._folder = folder
        try:
            for node in nodes:
                if CLOCK in self._kinds:
                    self._give_clock(node)
                if FULL_DISK in self._kinds and node in brokers:
                    self._give_disk(node)
        except (CannotMoveClock, CannotMount) as problem:
            raise ClusterError(f"a fault of this scenario is not possible here: {problem}") from problem

    def close(self) -> None:
        """Remove clocks and disks; the nodes must have ended."""
        for clock in self._clocks.values():
            clock.close()
        for disk in self._disks.values():
            disk.unmount()

    @_cluster_errors()
    def begin(self, fault: Fault, cluster: Hosted) -> End | None:
        """Begin a fault of one of KINDS and return the function that ends it; None if this node already has such a
        fault. `begin` and the returned function raise ClusterError."""
        if fault.kind == CLOCK:
            return self._step_clock(fault)
        if fault.kind == plan.EMPTY_DISK:
            return self._lose_disk(fault.node, cluster)
        if fault.node in self._faulty:
            return None
        return self._break_disk(fault, cluster)

    def ask(self) -> None:
        """Query the nodes whose disk has a fault for the measurements of `facts`. Takes long if one does not answer."""
        for node in [*self._faulty]:
            with suppress(LaunchError):
                self._slow_syncs[node], self._failed_syncs[node] = self._node(node).syncs_broken()

    def facts(self) -> dict[str, float]:
        """Return measurements by node: free bytes of small disks, measured clock offsets, and from the last query, how
        many syncs were slow or failed since the node started."""
        return {
            **{f"free bytes {node}": float(disk.free_bytes) for node, disk in self._disks.items()},
            **{f"clock offset ms {node}": float(offset) for node, offset in [*self._offsets.items()]},
            **{f"slow syncs {node}": float(count) for node, count in [*self._slow_syncs.items()]},
            **{f"failed syncs {node}": float(count) for node, count in [*self._failed_syncs.items()]},
        }

    # clocks

    def _give_clock(self, node: int) -> None:
        clock = ProcessClock(self._folder.node(node), self._warden)
        clock.open()
        self._clocks[node] = clock
        self._offsets[node] = 0
        folder = self._folder.node(node)
        command = NodeCommand.read(folder) or NodeCommand()
        replace(command, environment={**command.environment, **clock.environment}).write(folder)

    def _step_clock(self, fault: Fault) -> End:
        """Step a node's clock. The step stays: the end of the fault does not correct the clock."""
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
                raise ClusterError(f"node {node} is not a broker: only brokers have a small disk that can be full")
            self._disks[node].fill()
            heal: Callable[[], object] = self._disks[node].free
        elif fault.kind == SLOW_DISK:
            self._node(node).slow_syncs(SLOW_SYNC_MS)
            heal = partial(self._node(node).slow_syncs, 0)
        else:
            self._node(node).fail_syncs(True)
            heal = partial(self._node(node).fail_syncs, False)
        self._faulty.add(node)

        @_cluster_errors()
        def end() -> None:
            self._faulty.discard(node)
            with suppress(LaunchError):  # a node that stopped because of the fault no longer has it
                heal()

        return end

    def _node(self, node: int) -> FaultClient:
        return FaultClient.of_node(self._folder, node)
