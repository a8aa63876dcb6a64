"""ApacheKafka: a cluster of Apache Kafka's processes that can be broken with the same methods as a cluster of pykraft's
nodes.

    with ApacheKafka(find_libraries(), controllers=3, brokers=3) as kafka:
        kafka.kill(kafka.leader("orders"))

Invariants: no other cluster uses its ports. No process and no file outlives the process that opened the cluster,
however that process ends. Clients, brokers and controllers each dial a listener that only they use (see
`kraft.sim.chaos.apache.kafka_layout`). The observer has a listener without a proxy.

Possible faults: kill -9, a clean stop, a pause, a rolling restart, and repeated restarts in quick succession (a
stumble). Behind proxies (`ProxiedApacheKafka`) clients can also be cut off from one broker or from all, and brokers
from all controllers. A single node cannot be isolated: Kafka advertises one address per listener, so all brokers dial a
node through one proxy. Cutting that proxy cuts more than one link. Requests cannot be tampered with: Kafka has no hook
for that.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import ClassVar, Protocol, Self

from kraft.seam import Address
from kraft.sim.chaos.apache.kafka_layout import CLIENT, CONTROLLER, DIRECT, KafkaLayout, ListenerKey, split_keys
from kraft.sim.chaos.apache.kafka_nodes import KafkaNodes
from kraft.sim.chaos.clusters.foreign_cluster import ForeignCluster
from kraft.sim.chaos.clusters.held_ports import HeldPorts, hold_ports
from kraft.sim.chaos.hosts.leash import Leash
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.partition_shapes import CLIENTS
from kraft.sim.shapes import ClusterError

READY_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
"""Maximum time of a clean stop. A broker's controlled shutdown takes longest when no controller answers it."""
LOG_LINES_SHOWN = 10
CONNECT_SECONDS_MAX = 1.0
_POLL_SECONDS = 0.05
PROCESS_KINDS = (plan.KILL, plan.CLEAN_STOP, "pause", "stumble", plan.ROLLING)
SETTINGS = MappingProxyType(
    {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
    }
)
"""Default settings of every Apache Kafka cluster here. Groups do not wait for more members, and internal topics are as
small as those of pykraft's own test clusters. Everything else is Kafka's default."""


class ApacheKafka(ForeignCluster):
    """A cluster of Apache Kafka's processes; see the module. `libraries` is the folder of Kafka's jars. `settings`
    apply to every node. `jvm` are Java options used instead of those in Kafka's start scripts. `combined` is the number
    of nodes with both roles; if it is given, `controllers` and `brokers` must not be."""

    fault_kinds: ClassVar[tuple[str, ...]] = PROCESS_KINDS
    no_rules: ClassVar[str] = "requests to Apache Kafka cannot be tampered with: it has no hook for faults of requests"

    def __init__(
        self,
        libraries: Path,
        *,
        controllers: int = 3,
        brokers: int = 3,
        combined: int = 0,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
    ) -> None:
        if min(combined or controllers, combined or brokers) < 1:
            raise ClusterError("a cluster has one controller and one broker at least")
        shape = ClusterShape(combined, combined, combined=combined) if combined else ClusterShape(controllers, brokers)
        replicas = str(min(3, len(shape.broker_ids)))
        given = {"default.replication.factor": replicas, **SETTINGS, **(settings or {})}
        super().__init__(replace(shape, overrides=given))
        self._libraries = libraries
        self._jvm = jvm
        self._nodes: KafkaNodes | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Format and start all nodes, and wait until they serve. Raises ClusterError with the reason if that fails."""
        if self._nodes is not None:
            raise ClusterError("this cluster is open already")
        try:
            with ExitStack() as stack:
                leash = Leash()
                stack.callback(leash.release)
                folder = Path(tempfile.gettempdir()) / f"kafka-{secrets.token_hex(8)}"
                leash.hold_folder(folder)
                folder.mkdir(mode=0o700)
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
                layout = self._layout(stack)
                self._nodes = KafkaNodes(
                    folder, layout, self.shape.overrides, libraries=self._libraries, jvm=self._jvm, leash=leash
                )
                stack.callback(self._nodes.close)
                self._nodes.format()
                for node in self._nodes.layout.nodes:
                    self._start(node)
                for node in self.node_ids:
                    self._wait_ready(node)
                self._open = stack.pop_all()
        except BaseException:
            self._nodes = None
            raise

    def close(self) -> None:
        """Kill all nodes at once, and remove what they wrote."""
        stack, self._open = self._open, ExitStack()
        self._nodes = None
        stack.close()

    def _layout(self, stack: ExitStack) -> KafkaLayout:
        """Return the layout of nodes, listeners and ports. Closing `stack` releases the ports."""
        keys = split_keys(self.broker_ids, self.controller_ids)
        first, ports = hold_ports(range(len(keys)))
        stack.callback(HeldPorts.release, ports)
        return KafkaLayout.split(first, self.broker_ids, self.controller_ids)

    # queries of a run

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' advertised addresses for clients."""
        return self._running_nodes.layout.bootstrap_servers

    @property
    def direct_servers(self) -> str:
        """The brokers' addresses for the observer."""
        return ",".join(str(self._running_nodes.layout.direct(node)) for node in self.broker_ids)

    @property
    def folder(self) -> Path:
        """The folder of the nodes' logs and data: NODE/server.log, NODE/data. It is removed with the cluster."""
        return self._running_nodes.folder

    def pid(self, node: int) -> int | None:
        """The process id of a node; None if it is not running."""
        self._require(node)
        return self._running_nodes.pid(node)

    def describe(self) -> str:
        """Describe each node's state and its last log lines."""
        if self._nodes is None:
            return "this cluster is closed"
        lines = []
        for node in self.node_ids:
            state = "paused" if self.is_paused(node) else "running" if self.is_running(node) else "ended"
            lines.append(f"node {node}: {state}, pid {self.pid(node)}, exit code {self._nodes.exit_code(node)}")
            lines += [f"    {line}" for line in self._nodes.logged(node).splitlines()[-LOG_LINES_SHOWN:]]
        return "\n".join(lines)

    # primitives

    @property
    def _running_nodes(self) -> KafkaNodes:
        if self._nodes is None:
            raise ClusterError("this cluster is not open: with ApacheKafka(…) as kafka: …")
        return self._nodes

    def _addresses(self) -> dict[int, str]:
        """Return the addresses of the brokers that can answer now."""
        return {node: str(self._running_nodes.layout.direct(node)) for node in self._listening()}

    def _kill(self, node: int) -> None:
        self._running_nodes.kill(node)

    def _stop(self, node: int) -> None:
        self._running_nodes.ask_to_stop(node)

    def _wait_ended(self, node: int) -> None:
        self._running_nodes.wait_ended(node, STOP_SECONDS_MAX)

    def _start(self, node: int) -> None:
        self._running_nodes.start(node)

    def _wait_ready(self, node: int) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self._follow_start(node):
            if time.monotonic() > deadline:
                hint = self._running_nodes.hint(node)
                raise ClusterError(f"node {node} does not serve after {READY_SECONDS_MAX:g} s; {hint}")
            time.sleep(_POLL_SECONDS)
        if not self._is_running(node):
            raise ClusterError(f"node {node} has ended before it served; {self._running_nodes.hint(node)}")

    def _follow_start(self, node: int) -> bool:
        code = self._running_nodes.exit_code(node)
        if code is not None:
            if code > 0 and code != 128 + 15:  # Java's exit code after SIGTERM
                logged = self._running_nodes.logged(node)
                raise ClusterError(f"node {node} did not start: exit code {code}: {logged}")
            return True
        return self._serves(node)

    def _serves(self, node: int) -> bool:
        """Return whether a broker is registered and not fenced according to its own metadata; for a controller, whether
        it accepts connections."""
        from kraft.sim.chaos.clusters.cluster_queries import find_brokers

        layout = self._running_nodes.layout
        is_broker = node in self.broker_ids
        bound = layout.direct(node) if is_broker else layout.listeners[CONTROLLER, node]
        return _accepts(bound) and (not is_broker or node in find_brokers(str(bound)))

    def _pause(self, node: int) -> None:
        self._running_nodes.pause(node)

    def _resume(self, node: int) -> None:
        self._running_nodes.resume(node)

    def _is_running(self, node: int) -> bool:
        return self._running_nodes.is_running(node)

    def _is_paused(self, node: int) -> bool:
        return self._running_nodes.is_paused(node)

    def _require_link(self, source: int, target: int) -> None:
        raise ClusterError("links of this Apache Kafka cluster cannot be broken: they have no proxies")

    def _cut_links(self) -> None:
        """Do nothing: without proxies no link is ever cut."""


class KafkaProxies(Protocol):
    """The proxies in front of the listeners of a `ProxiedApacheKafka`; created by the owner of the proxy server."""

    def advertise(self, bound: Mapping[ListenerKey, Address]) -> Mapping[ListenerKey, Address]:
        """Put a proxy in front of each of these listeners and return the proxies' addresses. Called once, before the
        nodes start."""
        ...

    def cut(self, manners: Mapping[ListenerKey, str]) -> None:
        """Cut exactly these links, each in the given manner (kraft.sim.nemesis.plan.CUT_MANNERS), and restore all
        others."""
        ...

    def node_up(self, node: int) -> None:
        """Let the proxies of a node accept connections; called before the node starts."""
        ...

    def node_down(self, node: int) -> None:
        """Let the proxies of a node that has ended refuse dials, as a host without the process would."""
        ...

    def close(self) -> None:
        """Remove the proxies."""
        ...


class ProxiedApacheKafka(ApacheKafka):
    """ApacheKafka with a proxy in front of each listener except the observer's. A cut of links that no set of proxies
    covers exactly is rejected with ClusterError."""

    fault_kinds: ClassVar[tuple[str, ...]] = (*PROCESS_KINDS, plan.CLIENTS_CUT, plan.CONTROLLERS_CUT)
    cut_manners: ClassVar[tuple[str, ...]] = plan.CUT_MANNERS

    def __init__(
        self,
        libraries: Path,
        proxies: KafkaProxies,
        *,
        controllers: int = 3,
        brokers: int = 3,
        combined: int = 0,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = (),
    ) -> None:
        super().__init__(
            libraries, controllers=controllers, brokers=brokers, combined=combined, settings=settings, jvm=jvm
        )
        self._proxies = proxies

    def _layout(self, stack: ExitStack) -> KafkaLayout:
        layout = super()._layout(stack)
        bound = {key: address for key, address in layout.listeners.items() if key[0] != DIRECT}
        stack.callback(self._proxies.close)
        return replace(layout, advertised=self._proxies.advertise(bound))

    def _kill(self, node: int) -> None:
        super()._kill(node)
        self._proxies.node_down(node)

    def _wait_ended(self, node: int) -> None:
        super()._wait_ended(node)
        self._proxies.node_down(node)

    def _start(self, node: int) -> None:
        self._proxies.node_up(node)
        super()._start(node)

    def _follow_start(self, node: int) -> bool:
        """Return True for a node that cannot reach the controllers, without waiting for it: it may never serve."""
        return super()._follow_start(node) or any(name == CONTROLLER for name, _ in self._cut_listeners())

    def has_link(self, source: int, target: int) -> bool:
        """Return whether this link exists. Clients never dial a controller."""
        return CLIENTS not in (source, target) or max(source, target) in self.broker_ids

    def _require_link(self, source: int, target: int) -> None:
        nodes = {source, target} - {CLIENTS}
        for node in nodes:
            self._require(node)
        of_clients = len(nodes) == 1 and nodes <= {*self.broker_ids}
        controllers = nodes & {*self.controller_ids}
        if not of_clients and (self.shape.combined or len(nodes) < 2 or len(controllers) != 1):
            raise ClusterError(
                f"the link {source} → {target} cannot be broken alone: Kafka's nodes dial each other at one address per"
                " kind of source; clients can be cut off from brokers, and all brokers from all controllers"
            )

    def _cut_links(self) -> None:
        try:
            manners = self._cut_listeners()
        except ClusterError:
            self._cuts = {link: manner for link, manner in self._cuts.items() if CLIENTS in link}
            raise
        self._proxies.cut(manners)

    def _cut_listeners(self) -> dict[ListenerKey, str]:
        """Return the listeners that are cut. A controller's listener for brokers is cut only if every broker is cut off
        from it."""
        found = {(CLIENT, max(link)): manner for link, manner in self._cuts.items() if CLIENTS in link}
        others = {link: manner for link, manner in self._cuts.items() if CLIENTS not in link}
        wanted = {
            link
            for controller in self.controller_ids
            for broker in self.broker_ids
            for link in ((controller, broker), (broker, controller))
        }
        if others and wanted - others.keys():
            raise ClusterError("brokers can be cut off from all controllers, all of them and both ways, or not at all")
        if others:
            manner = next(iter(others.values()))
            found |= {(CONTROLLER, controller): manner for controller in self.controller_ids}
        return found


def _accepts(address: Address) -> bool:
    try:
        with socket.create_connection((address.host, address.port), CONNECT_SECONDS_MAX):
            return True
    except OSError:
        return False
