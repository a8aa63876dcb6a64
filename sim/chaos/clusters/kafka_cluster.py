"""KafkaCluster: a cluster of real processes on real sockets, for the duration of a `with` block or a test run.

    with KafkaCluster() as cluster:                              # or KafkaCluster(controllers=3, brokers=3)
        Producer({"bootstrap.servers": cluster.bootstrap_servers})        # any client of any library

Invariants: no other process uses its ports, not even other test processes. No process and no file of the cluster
outlives the process that opened it, however that process ends. Its folder is temporary.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from kraft.deploy.launch.control import READY_SECONDS_MAX, LocalCluster, NodeStatus
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.fault_client import FaultClient
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout, new_cluster_id
from kraft.deploy.launch.zygote_start import ZygoteStart, spawn_zygote
from kraft.seam import LinkQuality
from kraft.sim.breakable_cluster import FoundPartition
from kraft.sim.chaos.clusters.blocking_topics import BlockingTopics
from kraft.sim.chaos.clusters.held_ports import HeldPorts, hold_ports
from kraft.sim.nemesis.on_clusters import FaultRun
from kraft.sim.nemesis.plan import CUT_MANNERS, RESET, ROLLING, Fault
from kraft.sim.shapes import ONE_NODE, ClusterError, Setting, shape_of
from kraft.wire.reply_policy import ReplyRule, rule_fields

WAIT_SECONDS_MAX = 30.0
LOG_LINES_SHOWN = 10
_POLL_SECONDS = 0.02

OPEN = "open"
"""Policy of a link that is not cut. The policies of cut links are CUT_MANNERS."""
WELL = LinkQuality()
LinkState = tuple[str, LinkQuality, LinkQuality]
"""State of a node's links to one peer: the policy, the quality of what the node sends, and the quality of what it
receives."""
UNTOUCHED: LinkState = (OPEN, WELL, WELL)
UNCLEAR: LinkState = ("", WELL, WELL)
"""Placeholder for the state of a node's link while a change was sent to the node and the node has not confirmed it."""
CLEAN_EXIT = "exit code 0"
SERVING = ("ready", "running")
"""States in which a node serves. The launcher reports "running" instead of "ready" if it ended while it waited for
nodes to start."""


@contextmanager
def _cluster_errors() -> Iterator[None]:
    """Turn errors of the launcher into ClusterError."""
    try:
        yield
    except LaunchError as problem:
        raise ClusterError(str(problem)) from problem


class KafkaCluster(BlockingTopics):
    """A cluster of pykraft processes; see the module. The default shape is one node with both roles. `settings` apply
    to every node (`server.properties`). Methods block until their effect is complete."""

    cut_manners: ClassVar[tuple[str, ...]] = CUT_MANNERS

    def __init__(
        self,
        *,
        controllers: int | None = None,
        brokers: int | None = None,
        combined: int | None = None,
        settings: Mapping[str, Setting] | None = None,
    ) -> None:
        super().__init__(shape_of(controllers, brokers, combined, settings, default=ONE_NODE))
        self._ports: HeldPorts | None = None
        self._cluster: LocalCluster | None = None
        self._sent_states: dict[int, dict[int, LinkState]] = {}
        """Node → peer → the link state last sent to the node's process."""
        self._starting: set[int] = set()
        """Nodes that were started and have not been seen ready yet: they may not listen yet."""
        self._stopping: set[int] = set()
        """Nodes that were sent SIGTERM: they may have stopped listening."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start all nodes and wait until they serve. Raises ClusterError with the reason if that fails."""
        if self._cluster is not None:
            raise ClusterError("this cluster is open already")
        shape = self.shape
        layout = ClusterLayout(
            controllers=shape.controllers,
            brokers=shape.brokers,
            combined=shape.combined,
            fault_control=True,
            settings=shape.overrides,
        )
        first, self._ports = hold_ports(port - layout.port for node in layout.nodes() for port in node.ports)
        self._cluster_id = new_cluster_id()
        folder = self._new_folder()
        try:
            self._cluster = LocalCluster.up(
                ClusterFolder(folder),
                replace(layout, port=first),
                self._cluster_id,
                zygote=self._new_zygote(),
                is_temporary=True,
                is_remembered=False,
                before_start=lambda: self._before_start(ClusterFolder(folder), replace(layout, port=first)),
            )
            self._cluster.wait_ready()
        except BaseException as problem:
            self._start_failed(ClusterFolder(folder))
            self.close()
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(problem, LaunchError):
                raise ClusterError(str(problem)) from problem
            raise

    def _new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix="kraft-cluster-"))

    def _new_zygote(self) -> ZygoteStart:
        return spawn_zygote()

    def _before_start(self, folder: ClusterFolder, layout: ClusterLayout) -> None:
        """Called once when the nodes' folders exist and no node has been started."""

    def _start_failed(self, folder: ClusterFolder) -> None:
        """Called after a failed start, before the nodes' files are removed."""

    def close(self) -> None:
        """Kill all nodes at once, and remove what they wrote."""
        cluster, self._cluster = self._cluster, None
        ports, self._ports = self._ports, None
        with ExitStack() as leftovers:
            if ports is not None:
                leftovers.callback(ports.release)
            if cluster is not None:
                leftovers.callback(shutil.rmtree, cluster.folder.path, ignore_errors=True)
                for node in self.node_ids:
                    with suppress(LaunchError):
                        cluster.send_signal(node, signal.SIGKILL)
                cluster.down()

    def reset(self) -> None:
        """Restore the state after opening: healed, without topics, groups and changed settings. Raises ClusterError if
        that is not possible; then close the cluster."""
        from kraft.sim.chaos.clusters.cluster_queries import clean

        self.mend()
        clean(self.bootstrap_servers, self.broker_ids, self.shape.overrides)

    # queries of tests

    @property
    def bootstrap_servers(self) -> str:
        return self._open_cluster.bootstrap_servers

    @property
    def direct_servers(self) -> str:
        """Broker addresses for queries about the cluster's state. Faults of client links do not affect them."""
        return self._open_cluster.bootstrap_servers

    @property
    def folder(self) -> Path:
        """The folder of the nodes' logs and data, with the layout of `kraft up --data`; it is removed with the
        cluster."""
        return self._open_cluster.folder.path

    def pid(self, node: int) -> int | None:
        """The process id of a node; None if it is not running."""
        self._require(node)
        return self._status(node).pid

    def wait_until(self, condition: Callable[[], object], *, timeout_s: float = WAIT_SECONDS_MAX) -> None:
        """Block until the condition holds. Raises ClusterError on timeout."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(f"the condition did not hold within {timeout_s:g} s")
            time.sleep(_POLL_SECONDS)

    def carry_out(self, faults: Iterable[Fault]) -> list[str]:
        """Inject these faults, each at its time counted from now, and block until the last is over. Returns the log of
        what was done, line by line. Raises ClusterError for a fault that is not possible here. Every fault still active
        ends when this call returns or raises."""
        run = FaultRun(self, faults, lambda: int(1000 * time.monotonic()))
        with closing(run.steps()) as steps:
            for at_ms in steps:
                time.sleep(max(0.0, at_ms / 1000 - time.monotonic()))
        return run.history

    def rolling_restart(self, *, back_ms: int = 0) -> list[str]:
        """Restart the nodes one by one: stop each cleanly and start it again after `back_ms`. The next node follows
        when every replica is in sync. Blocks until the last node is back, and returns the log of what was done, line by
        line."""
        return self.carry_out([Fault(at_ms=0, kind=ROLLING, back_ms=back_ms)])

    @_cluster_errors()
    def begin_fault(self, fault: Fault) -> Callable[[], None] | None:
        """Begin a fault. For a reset, each end drops the connections that it dialled to the other end, and may dial
        again at once. Cuts stay."""
        if fault.kind != RESET:
            return super().begin_fault(fault)
        for node, peer in ((fault.node, fault.other), (fault.other, fault.node)):
            if not self.is_cut(node, peer) and self._is_listening(node):
                self._sent_states.setdefault(node, {})[peer] = UNCLEAR
                self._faults_of(node).link(peer, RESET)
                self._send_states(node)
        return lambda: None

    def active_controller(self) -> int | None:
        from kraft.sim.chaos.clusters.cluster_queries import find_controller

        return find_controller(",".join(self._addresses().values()))

    def describe(self) -> str:
        """Describe each node's state and its last log lines."""
        if self._cluster is None:
            return "this cluster is closed"
        lines = []
        for status in self._cluster.status():
            process = f"pid {status.pid}" if status.pid is not None else status.ended
            lines.append(f"node {status.node_id} ({','.join(status.roles)}): {status.state}, {process}")
            log = self.folder / str(status.node_id) / "node.log"
            logged = log.read_text(errors="replace") if log.exists() else ""
            lines += [f"    {line}" for line in logged.splitlines()[-LOG_LINES_SHOWN:]]
        return "\n".join(lines)

    # primitives

    @property
    def _open_cluster(self) -> LocalCluster:
        if self._cluster is None:
            raise ClusterError("this cluster is not open: with KafkaCluster() as cluster: …")
        return self._cluster

    def _addresses(self) -> dict[int, str]:
        """Return the addresses of the brokers that can answer now."""
        servers = self.direct_servers.split(",")
        return {node: servers[node - self.broker_ids[0]] for node in self._listening()}

    @_cluster_errors()
    def _kill(self, node: int) -> None:
        self._open_cluster.kill(node)

    @_cluster_errors()
    def _stop(self, node: int) -> None:
        self._open_cluster.ask_to_stop(node)
        self._stopping.add(node)

    @_cluster_errors()
    def _wait_ended(self, node: int) -> None:
        self._open_cluster.wait_ended([node])

    @_cluster_errors()
    def _start(self, node: int) -> None:
        self._sent_states.pop(node, None)
        self._write_states(node)
        self._stopping.discard(node)
        self._starting.add(node)
        self._open_cluster.start(node, until_ready=False, formats=self._is_wiped(node))

    def _is_wiped(self, node: int) -> bool:
        """Return whether a node that was started before has lost all data on its disk."""
        data = self.folder / str(node) / "data"
        return not data.exists() or not any(data.iterdir())

    @_cluster_errors()
    def _wait_ready(self, node: int) -> None:
        """Wait until a started node serves. A node that is cut off receives its cuts before it serves and is not waited
        for, because it may never become ready. If a cut that existed at its start has ended since, the node is notified
        while it starts; otherwise it would not reach the other nodes."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self._follow_start(node):
            if time.monotonic() > deadline:
                raise ClusterError(f"node {node} did not start within {READY_SECONDS_MAX:g} s; {self._hint(node)}")
            time.sleep(_POLL_SECONDS)
        if not self._is_running(node):
            raise ClusterError(f"node {node} did not start: {self._status(node).ended}; {self._hint(node)}")

    @_cluster_errors()
    def _follow_start(self, node: int) -> bool:
        status = self._status(node)
        if status.pid is None:
            if status.ended.startswith("exit code") and status.ended != CLEAN_EXIT:
                raise ClusterError(f"node {node} did not start: {status.ended}; {self._hint(node)}")
            return True
        if status.state in SERVING:
            self._starting.discard(node)  # from here on it accepts link states
            self._send_states(node)
            return True
        self._send_states(node)
        return bool(self._cuts_of(node)) and not self._unsent_states(node)

    def _hint(self, node: int) -> str:
        return f"see the end of {self.folder / str(node) / 'node.log'}"

    @_cluster_errors()
    def _pause(self, node: int) -> None:
        self._open_cluster.pause(node)

    @_cluster_errors()
    def _resume(self, node: int) -> None:
        self._open_cluster.resume(node)

    def _is_running(self, node: int) -> bool:
        return self._status(node).pid is not None

    def _is_paused(self, node: int) -> bool:
        return self._status(node).state == "paused"

    @_cluster_errors()
    def _status(self, node: int) -> NodeStatus:
        return next(status for status in self._open_cluster.status() if status.node_id == node)

    def _is_listening(self, node: int) -> bool:
        if not super()._is_listening(node):
            return False
        if self._is_starting_or_stopping(node):
            with suppress(LaunchError):
                self._faults_of(node).listed()
                return True
            return False
        return True

    def _is_starting_or_stopping(self, node: int) -> bool:
        return node in self._starting or node in self._stopping

    def _cut_links(self) -> None:
        with ExitStack() as sending:  # a node that fails must not keep others from their update
            for node in reversed(self.node_ids):
                sending.callback(self._send_states, node)

    def _cuts_of(self, node: int) -> set[int]:
        """The peers to which this node cannot have a connection, because a connection needs both directions."""
        return {peer for link in self._cuts if node in link for peer in link if peer != node}

    def _state(self, node: int, peer: int) -> LinkState:
        """Return the required state of a node's links to a peer. A cut in one direction leaves the other direction
        open."""
        there, back = (node, peer), (peer, node)
        cuts = [link in self._cuts for link in (there, back)]
        if all(cuts):
            return self._cuts[there], WELL, WELL
        ways = (self._qualities.get(link, WELL) for link in (there, back))
        sends, receives = (replace(way, is_cut=is_cut) for way, is_cut in zip(ways, cuts, strict=True))
        return OPEN, sends, receives

    def _unsent_states(self, node: int) -> dict[int, LinkState]:
        """Return peer → required link state, for each peer where the state in the node's process may differ."""
        sent = self._sent_states.get(node, {})
        peers = {peer for link in (*self._cuts, *self._qualities) if node in link for peer in link if peer != node}
        wanted = {peer: self._state(node, peer) for peer in sorted(peers | sent.keys())}
        return {peer: state for peer, state in wanted.items() if state != sent.get(peer, UNTOUCHED)}

    @_cluster_errors()
    def _send_states(self, node: int) -> None:
        """Send a node's process the link states that have changed, if it listens."""
        unsent = self._unsent_states(node)
        if unsent and node in self._starting:
            self._write_states(node)  # written before its socket is tried: the node may be opening it just now
        if not unsent or not self._is_listening(node):
            return
        sent = self._sent_states.setdefault(node, {})
        try:
            for peer, arguments in self._arguments(unsent).items():
                sent[peer] = UNCLEAR
                self._faults_of(node).link(peer, **arguments)
                sent[peer] = unsent[peer]
        except LaunchError:
            if not self._is_starting_or_stopping(node):
                raise

    def _write_states(self, node: int) -> None:
        """Write the link states to a file that a starting node applies before anything else."""
        unsent = self._unsent_states(node)
        self._faults_of(node).leave(self._arguments(unsent))
        self._sent_states.setdefault(node, {}).update(dict.fromkeys(unsent, UNCLEAR))

    @staticmethod
    def _arguments(states: Mapping[int, LinkState]) -> dict[int, dict[str, Any]]:
        """Return the states by peer, as arguments of FaultClient.link."""
        found: dict[int, dict[str, Any]] = {}
        for peer, (policy, *ways) in states.items():
            named = zip(("sends", "receives"), ways, strict=True)
            found[peer] = {"policy": policy, **{name: asdict(way) for name, way in named if way != WELL}}
        return found

    def _faults_of(self, node: int) -> FaultClient:
        return FaultClient.of_node(self._open_cluster.folder, node)

    @_cluster_errors()
    def _add_rule(self, node: int, rule: ReplyRule) -> int:
        return self._faults_of(node).reply(**rule_fields(rule))

    def _remove_rule(self, node: int, number: int) -> None:
        with suppress(LaunchError):  # the rule has expired, or its node has ended
            self._faults_of(node).clear(number)

    @_cluster_errors()
    def _applied(self, node: int, number: int) -> int:
        return self._faults_of(node).applied(number)

    def _partitions(self) -> list[FoundPartition] | None:
        from kraft.sim.chaos.clusters.cluster_queries import find_partitions

        found = find_partitions(",".join(self._addresses().values()))
        return None if found is None else [FoundPartition(one.leader, one.isr, one.replicas) for one in found]

    def _find(self, topic: str, partition: int) -> tuple[int | None, Sequence[int]]:
        from kraft.sim.chaos.clusters.cluster_queries import find_partition

        found = find_partition(self._addresses(), topic, partition)
        return found.leader, found.isr
