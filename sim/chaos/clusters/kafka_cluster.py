"""KafkaCluster: a cluster of real processes on real sockets, for the time of a `with` block or of a test run.

    with KafkaCluster() as cluster:                              # or KafkaCluster(controllers=3, brokers=3)
        Producer({"bootstrap.servers": cluster.bootstrap_servers})        # any client of any library

Invariants: its ports are its own, also against other test processes; nothing of it outlives the process that opened it,
whatever ends that. Its folder is a temporary one.
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
"""The policy of a link that is not cut; the others are CUT_MANNERS."""
WELL = LinkQuality()
LinkState = tuple[str, LinkQuality, LinkQuality]
"""What a node does with the links to a peer: the policy, and how that fares which it sends, and receives."""
UNTOUCHED: LinkState = (OPEN, WELL, WELL)
UNCLEAR: LinkState = ("", WELL, WELL)
"""Where a node was told and has not answered."""
CLEAN_EXIT = "exit code 0"
SERVING = ("ready", "running")
"""States of a node that serves; the second is what is known where the launcher has ended, and starts wait."""


@contextmanager
def _cluster_errors() -> Iterator[None]:
    """What the launcher cannot do is what the cluster cannot do."""
    try:
        yield
    except LaunchError as problem:
        raise ClusterError(str(problem)) from problem


class KafkaCluster(BlockingTopics):
    """See the module. The shape is one node of both roles unless it is said; `settings` are those of every node
    (`server.properties`). Verbs block until what they say is so."""

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
        self._told: dict[int, dict[int, LinkState]] = {}
        """Node → peer → what its process was told of the links to it."""
        self._coming: set[int] = set()
        """Nodes that were started and not seen ready: they may not listen yet."""
        self._going: set[int] = set()
        """Nodes that were asked to stop: they may listen no more."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start all nodes and wait until they serve. ClusterError says what went wrong."""
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
        """Called once when the nodes' folders are there and none of them has been started."""

    def _start_failed(self, folder: ClusterFolder) -> None:
        """Called before what the nodes wrote is removed."""

    def close(self) -> None:
        """End all nodes at once, and remove what they wrote."""
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
        """As it was when it was opened: mended, without topics, groups and changed settings. ClusterError if that is
        not possible; then it is best closed."""
        from kraft.sim.chaos.clusters.onlooker import clean

        self.mend()
        clean(self.bootstrap_servers, self.broker_ids, self.shape.overrides)

    # what tests ask

    @property
    def bootstrap_servers(self) -> str:
        return self._open_cluster.bootstrap_servers

    @property
    def direct_servers(self) -> str:
        """Where the brokers are asked how the cluster is: faults of the links of clients do not reach there."""
        return self._open_cluster.bootstrap_servers

    @property
    def folder(self) -> Path:
        """Where the nodes' logs and data are, as `kraft up --data` lays them out; it goes with the cluster."""
        return self._open_cluster.folder.path

    def pid(self, node: int) -> int | None:
        """The process id of a node; None if it does not run."""
        self._require(node)
        return self._status(node).pid

    def wait_until(self, condition: Callable[[], object], *, timeout_s: float = WAIT_SECONDS_MAX) -> None:
        """Block until the condition holds. ClusterError if it does not in time."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(f"what was waited for did not come within {timeout_s:g} s")
            time.sleep(_POLL_SECONDS)

    def carry_out(self, faults: Iterable[Fault]) -> list[str]:
        """Let these faults happen, each when its time has come from now on; blocks until the last is over. Gives what
        was done, line by line. ClusterError names one that cannot be here. What they have begun ends with this call,
        however that ends."""
        run = FaultRun(self, faults, lambda: int(1000 * time.monotonic()))
        with closing(run.steps()) as steps:
            for at_ms in steps:
                time.sleep(max(0.0, at_ms / 1000 - time.monotonic()))
        return run.history

    def rolling_restart(self, *, back_ms: int = 0) -> list[str]:
        """Stop each node in turn in order, and start it again after `back_ms`, the next one when every replica is in
        sync; blocks until the last is back. Gives what was done, line by line."""
        return self.carry_out([Fault(at_ms=0, kind=ROLLING, back_ms=back_ms)])

    @_cluster_errors()
    def begin_fault(self, fault: Fault) -> Callable[[], None] | None:
        """A reset: either end drops what it has dialled to the other, and may dial anew at once. What is cut stays."""
        if fault.kind != RESET:
            return super().begin_fault(fault)
        for node, peer in ((fault.node, fault.other), (fault.other, fault.node)):
            if not self.is_cut(node, peer) and self._is_listening(node):
                self._told.setdefault(node, {})[peer] = UNCLEAR
                self._faults_of(node).link(peer, RESET)
                self._tell_cuts(node)
        return lambda: None

    def active_controller(self) -> int | None:
        from kraft.sim.chaos.clusters.onlooker import find_controller

        return find_controller(",".join(self._addresses().values()))

    def describe(self) -> str:
        """Each node's state, and what it logged last."""
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
        """Of the brokers that can answer now."""
        servers = self.direct_servers.split(",")
        return {node: servers[node - self.broker_ids[0]] for node in self._listening()}

    @_cluster_errors()
    def _kill(self, node: int) -> None:
        self._open_cluster.kill(node)

    @_cluster_errors()
    def _stop(self, node: int) -> None:
        self._open_cluster.ask_to_stop(node)
        self._going.add(node)

    @_cluster_errors()
    def _wait_ended(self, node: int) -> None:
        self._open_cluster.wait_ended([node])

    @_cluster_errors()
    def _start(self, node: int) -> None:
        self._told.pop(node, None)
        self._leave_untold(node)
        self._going.discard(node)
        self._coming.add(node)
        self._open_cluster.start(node, until_ready=False, formats=self._is_wiped(node))

    def _is_wiped(self, node: int) -> bool:
        """Whether a node that was started before has lost all that was on its disk."""
        data = self.folder / str(node) / "data"
        return not data.exists() or not any(data.iterdir())

    @_cluster_errors()
    def _wait_ready(self, node: int) -> None:
        """A node that is cut off is told so before it serves, and not waited for: it may never get ready. One that was
        cut off when it started, and is no more, is told that on the way: it would not find the others."""
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
            self._coming.discard(node)  # from here on it can be told
            self._tell_cuts(node)
            return True
        self._tell_cuts(node)
        return bool(self._cuts_of(node)) and not self._untold(node)

    def _hint(self, node: int) -> str:
        return f"the end of {self.folder / str(node) / 'node.log'} says more"

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
        if self._is_coming_or_going(node):
            with suppress(LaunchError):
                self._faults_of(node).listed()
                return True
            return False
        return True

    def _is_coming_or_going(self, node: int) -> bool:
        return node in self._coming or node in self._going

    def _cut_links(self) -> None:
        with ExitStack() as telling:  # a node that cannot be told keeps no other from being told
            for node in reversed(self.node_ids):
                telling.callback(self._tell_cuts, node)

    def _cuts_of(self, node: int) -> set[int]:
        """The peers with which this node cannot have a connection: that takes both ways."""
        return {peer for link in self._cuts if node in link for peer in link if peer != node}

    def _state(self, node: int, peer: int) -> LinkState:
        """What a node is to do with the links to a peer. What is cut one way still passes the other way."""
        there, back = (node, peer), (peer, node)
        cuts = [link in self._cuts for link in (there, back)]
        if all(cuts):
            return self._cuts[there], WELL, WELL
        ways = (self._qualities.get(link, WELL) for link in (there, back))
        sends, receives = (replace(way, is_cut=is_cut) for way, is_cut in zip(ways, cuts, strict=True))
        return OPEN, sends, receives

    def _untold(self, node: int) -> dict[int, LinkState]:
        """Peer → what this node's process is to do with the links to it, where it may be doing something else."""
        told = self._told.get(node, {})
        peers = {peer for link in (*self._cuts, *self._qualities) if node in link for peer in link if peer != node}
        wanted = {peer: self._state(node, peer) for peer in sorted(peers | told.keys())}
        return {peer: state for peer, state in wanted.items() if state != told.get(peer, UNTOUCHED)}

    @_cluster_errors()
    def _tell_cuts(self, node: int) -> None:
        """Tell a node's process what has changed of whom it reaches, if it listens."""
        untold = self._untold(node)
        if untold and node in self._coming:
            self._leave_untold(node)  # before its socket is tried: it may open that just now
        if not untold or not self._is_listening(node):
            return
        told = self._told.setdefault(node, {})
        try:
            for peer, arguments in self._arguments(untold).items():
                told[peer] = UNCLEAR
                self._faults_of(node).link(peer, **arguments)
                told[peer] = untold[peer]
        except LaunchError:
            if not self._is_coming_or_going(node):
                raise

    def _leave_untold(self, node: int) -> None:
        """Write down what a node that starts is to do of it before anything else."""
        untold = self._untold(node)
        self._faults_of(node).leave(self._arguments(untold))
        self._told.setdefault(node, {}).update(dict.fromkeys(untold, UNCLEAR))

    @staticmethod
    def _arguments(states: Mapping[int, LinkState]) -> dict[int, dict[str, Any]]:
        """By peer, as FaultClient.link takes them."""
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
        with suppress(LaunchError):  # it is used up, or its node has ended by itself
            self._faults_of(node).clear(number)

    @_cluster_errors()
    def _applied(self, node: int, number: int) -> int:
        return self._faults_of(node).applied(number)

    def _partitions(self) -> list[FoundPartition] | None:
        from kraft.sim.chaos.clusters.onlooker import find_partitions

        found = find_partitions(",".join(self._addresses().values()))
        return None if found is None else [FoundPartition(one.leader, one.isr, one.replicas) for one in found]

    def _find(self, topic: str, partition: int) -> tuple[int | None, Sequence[int]]:
        from kraft.sim.chaos.clusters.onlooker import find_partition

        found = find_partition(self._addresses(), topic, partition)
        return found.leader, found.isr
