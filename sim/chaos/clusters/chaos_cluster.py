"""ChaosCluster: pykraft nodes as processes, with a proxy on every directed link between nodes and from clients.

Every node dials every other node through a separate proxy (`kraft.dial.map`). Clients reach each broker through one
proxy, whose address the listener CLIENTS advertises. So a link can be cut, slowed or reset in each direction, and no
traffic bypasses it; `direct_servers` is for the observer only. When a node is down, its proxies are down as well: dials
to it are refused, as by the kernel of its host.

Invariant: nothing outlives this object's process: a cleanup process (the warden) ends the nodes and the proxies, and
removes everything else that was created. It kills the nodes, because a clean stop takes long where links are cut and
nodes are frozen.
"""

from __future__ import annotations

import operator
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from kraft.config.properties import parse_properties, render_properties
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import HOST, ClusterLayout, NodePlan
from kraft.deploy.launch.processes import identify, read_identity
from kraft.deploy.launch.zygote_start import ZygoteStart
from kraft.seam import Address
from kraft.sim.chaos.clusters import host_faults
from kraft.sim.chaos.clusters.connection_ends import ConnectionEnds
from kraft.sim.chaos.clusters.fault_toxics import added_of, toxic_of, way_of
from kraft.sim.chaos.clusters.first_voters import format_first_voters
from kraft.sim.chaos.clusters.held_ports import HeldPorts, hold_ports
from kraft.sim.chaos.clusters.host_faults import HostFaults
from kraft.sim.chaos.clusters.kafka_cluster import WELL, KafkaCluster, LinkState
from kraft.sim.chaos.clusters.link_probes import LinkProbes, ProbeTimes
from kraft.sim.chaos.clusters.repeated_measurement import RepeatedMeasurement
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.proxies.links import LinkProxies
from kraft.sim.chaos.proxies.server import ToxiproxyServer
from kraft.sim.chaos.proxies.toxics import ByteConditions, ConnectionPolicy, Toxic
from kraft.sim.chaos.scenarios.scenario import ScenarioCluster
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import EVERYWHERE
from kraft.sim.nemesis.partition_shapes import CLIENTS, end_of
from kraft.sim.nemesis.plan import Fault

CLIENT_LISTENER, BROKER_LISTENER, CONTROLLER_LISTENER = "CLIENTS", "PLAINTEXT", "CONTROLLER"
_POLL_SECONDS = 0.05
NODE_LOGS = "nodes"
"""Folder of the nodes' logs in a run folder."""
Link = tuple[int, int]
"""A directed link: the source node, which dials, and the target node."""
FAULT_KINDS = (*EVERYWHERE, plan.CLIENTS_CUT, *plan.TOXIC_KINDS, *host_faults.KINDS)
ENDING_KINDS = (plan.RESET, plan.BYTE_LIMIT, plan.TIMEOUT, plan.RESET_PEER)
"""Kinds of faults that end connections. The run counts ended connections as evidence for them."""


class ChaosCluster(KafkaCluster):
    """A cluster behind proxies; see the module. `folder` is where proxies and hosts keep their files. The cleanup
    process (warden) removes all of it."""

    def __init__(self, wanted: ScenarioCluster, folder: Path, warden: Warden, kinds: Collection[str] = ()) -> None:
        """Prepare the cluster for `kinds`, the kinds of faults that need preparation and must be possible."""
        super().__init__(
            controllers=None if wanted.combined else wanted.controllers,
            brokers=None if wanted.combined else wanted.brokers,
            combined=wanted.combined or None,
            settings=wanted.settings,
        )
        self._wanted = wanted
        self._files = folder
        self._warden = warden
        self._client_ports: HeldPorts | None = None
        self._server: ToxiproxyServer | None = None
        self._proxies: list[LinkProxies] = []
        self._kinds = frozenset(kinds)
        self._hosts = HostFaults(kinds, warden)
        self._disk_queries = RepeatedMeasurement(self._hosts.ask, host_faults.ASK_SECONDS)
        self._ends: ConnectionEnds | None = None
        self._probes: list[LinkProbes] = []
        self._toxics: dict[Link, dict[str, Toxic]] = {}
        """Link → kind of fault → its toxic, for faults that no LinkQuality can express."""
        self._broken: dict[Link, tuple[str | None, ByteConditions]] = {}
        """Map from each link with a fault to the manner in which it is cut (None: not cut) and its latency and limits.
        """

    @property
    def fault_kinds(self) -> tuple[str, ...]:  # type: ignore[override]  # depends on what was prepared
        return host_faults.without_unprepared(FAULT_KINDS, self._kinds)

    # lifecycle

    def open(self) -> None:
        super().open()
        self._probes = [LinkProbes(proxies.addresses) for proxies in self._proxies]
        for probes in self._probes:
            probes.begin()
        self._disk_queries.begin()

    def _new_folder(self) -> Path:
        folder = Path(tempfile.gettempdir()) / f"kraft-cluster-{secrets.token_hex(8)}"
        self._warden.folder(folder)
        self._warden.file(ClusterFolder(folder).socket)
        folder.mkdir(mode=0o700)
        self._path = folder
        return folder

    def _new_zygote(self) -> ZygoteStart:
        zygote = super()._new_zygote()
        self._warden.process(zygote.pid)
        return replace(zygote, wait=lambda: self._wait_zygote(zygote))

    def _wait_zygote(self, zygote: ZygoteStart) -> None:
        """Wait until the process that forks the nodes (the zygote) has ended. It ends when its connection closes, but
        first stops its nodes cleanly, which takes long while a cluster starts. So nodes are killed as soon as they
        appear."""
        identity = identify(zygote.pid)
        while identity is not None and identity.is_alive:
            for node in self.node_ids:
                noted = read_identity(self._path / str(node))
                if noted is not None:
                    noted.signal(signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        zygote.wait()

    def _before_start(self, folder: ClusterFolder, layout: ClusterLayout) -> None:
        """Start the proxies, and configure every node with the addresses at which it dials the others."""
        self._server = ToxiproxyServer(self._files, environment=self._warden.environment)
        self._server.start()
        clients = self._hold_client_ports(layout)
        self._proxies = [
            LinkProxies(self._server, self._links_to_brokers(layout, clients)),
            LinkProxies(self._server, self._links_to_controllers(layout)),
        ]
        if self._kinds & {*ENDING_KINDS}:
            addresses = (item for proxies in self._proxies for item in proxies.addresses.items())
            ports = {address.port: link for link, address in addresses}
            self._ends = ConnectionEnds(ports, lambda port: any(probes.is_own(port) for probes in self._probes))
        for node in layout.nodes():
            path = folder.node(node.node_id) / "server.properties"
            own = self._own_settings(node, clients.get(node.node_id))
            path.write_text(render_properties({**parse_properties(path.read_text()), **own}))
        self._hosts.prepare(folder, self.node_ids, self.broker_ids)
        if self._wanted.dynamic_voters:
            controllers = {node.node_id: node.controller_port for node in layout.nodes() if node.controller_port}
            format_first_voters(folder, self._cluster_id, controllers)

    def _start_failed(self, folder: ClusterFolder) -> None:
        """After a failed start, keep the nodes' logs, which show the cause."""
        kept = self._files / NODE_LOGS
        kept.mkdir(exist_ok=True)
        for node in self.node_ids:
            with suppress(FileNotFoundError):
                shutil.copyfile(folder.node(node) / "node.log", kept / f"{node}.log")

    def _hold_client_ports(self, layout: ClusterLayout) -> dict[int, int]:
        """Hold and return the port on which each broker listens for clients."""
        brokers = [node.node_id for node in layout.nodes() if node.broker_port is not None]
        first, self._client_ports = hold_ports(range(len(brokers)))
        return {node: first + number for number, node in enumerate(brokers)}

    @staticmethod
    def _links_to_brokers(layout: ClusterLayout, clients: Mapping[int, int]) -> dict[Link, Address]:
        nodes = layout.nodes()
        found = {(CLIENTS, node): Address(HOST, port) for node, port in clients.items()}
        for target in nodes:
            if target.broker_port is not None:
                found |= {link: Address(HOST, target.broker_port) for link in _links_to(target, nodes)}
        return found

    @staticmethod
    def _links_to_controllers(layout: ClusterLayout) -> dict[Link, Address]:
        nodes = layout.nodes()
        found: dict[Link, Address] = {}
        for target in nodes:
            if target.controller_port is not None:
                found |= {link: Address(HOST, target.controller_port) for link in _links_to(target, nodes)}
        return found

    def _own_settings(self, node: NodePlan, client_port: int | None) -> dict[str, str]:
        """Return the settings of this node's `server.properties` that only this kind of cluster has."""
        listeners = zip((BROKER_LISTENER, CONTROLLER_LISTENER), self._proxies, strict=True)
        dialled = [
            f"{target}:{listener}@{proxies.address((source, target))}"
            for listener, proxies in listeners
            for source, target in proxies.links
            if source == node.node_id
        ]
        settings = {"kraft.dial.map": ",".join(dialled)}
        if self._wanted.dynamic_voters:
            settings |= self._bootstrap_servers_of(node)
        if client_port is None:
            return settings
        bound = [f"{BROKER_LISTENER}://{HOST}:{node.broker_port}"]
        advertised = [*bound, f"{CLIENT_LISTENER}://{self._proxies[0].address((CLIENTS, node.node_id))}"]
        bound.append(f"{CLIENT_LISTENER}://{HOST}:{client_port}")
        if node.controller_port is not None:
            bound.append(f"{CONTROLLER_LISTENER}://{HOST}:{node.controller_port}")
        names = (BROKER_LISTENER, CLIENT_LISTENER, CONTROLLER_LISTENER)
        return settings | {
            "listeners": ",".join(bound),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
        }

    def _bootstrap_servers_of(self, node: NodePlan) -> dict[str, str]:
        """Return the bootstrap setting by which this node finds a quorum without configured voters, through its own
        proxies."""
        others = [self._proxies[1].address(link) for link in self._proxies[1].links if link[0] == node.node_id]
        own = [] if node.controller_port is None else [Address(HOST, node.controller_port)]
        servers = ",".join(map(str, [*own, *others]))
        return {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": servers}

    def close(self) -> None:
        """Kill all nodes and proxies at once, and remove what they wrote."""
        with ExitStack() as leftovers:
            ports, self._client_ports = self._client_ports, None
            if ports is not None:
                leftovers.callback(ports.release)
            server, self._server = self._server, None
            if server is not None:
                leftovers.callback(server.stop)
            for proxies in self._proxies:
                leftovers.callback(proxies.close)
            for probes in self._probes:
                leftovers.callback(probes.close)
            leftovers.callback(self._hosts.close)
            leftovers.callback(self._disk_queries.close)
            super().close()

    def facts(self) -> Mapping[str, float]:
        """Return measurements for an observer: those of HostFaults, LinkProbes and ConnectionEnds. Raises
        ToxiproxyError if toxiproxy has ended, because the measurements would no longer describe the cluster."""
        if self._server is not None:
            self._server.require_running()
        self._disk_queries.raise_failure()
        found = self._hosts.facts()
        for probes in self._probes:
            found |= probes.facts()
        if self._ends is not None:
            self._ends.update()
            found |= self._ends.facts()
        return found

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses for clients, each behind its proxy."""
        return ",".join(str(self._proxies[0].address((CLIENTS, node))) for node in self.broker_ids)

    def _kill(self, node: int) -> None:
        super()._kill(node)
        self._dial_refused(node)

    def _wait_ended(self, node: int) -> None:
        super()._wait_ended(node)
        self._dial_refused(node)

    def _start(self, node: int) -> None:
        for proxies in self._proxies:
            proxies.node_up(node)
        super()._start(node)

    def _dial_refused(self, node: int) -> None:
        """Refuse dials to a node that has ended, as its host would. An enabled proxy would accept and then close
        them."""
        for proxies in self._proxies:
            proxies.node_down(node)

    @property
    def proxy_log(self) -> Path:
        """The log file of toxiproxy."""
        assert self._server is not None
        return self._server.log_path

    @property
    def proxy_pid(self) -> int:
        """The process id of toxiproxy."""
        assert self._server is not None
        assert self._server.pid is not None
        return self._server.pid

    # links

    def _unsent_states(self, node: int) -> dict[int, LinkState]:
        """Return nothing: the proxies carry out link faults, and the nodes are not informed."""
        return {}

    def _cut_links(self) -> None:
        """Apply all cuts and link qualities to the proxies, whether the nodes run or not; see BreakableLinks."""
        for proxies in self._proxies:
            proxies.apply(self._ways(), self._policies())
        self._probe_changes()

    def _probe_changes(self) -> None:
        """Probe the links whose faults have just changed, from both ends: a connection dialled from either end carries
        bytes of the changed direction."""
        ways = self._ways()
        broken = {link: (self._cuts.get(link), ways.get(link, ByteConditions())) for link in {*self._cuts, *ways}}
        before, self._broken = self._broken, broken
        worse = {link for link, state in broken.items() if before.get(link) != state}
        is_partial = any(toxic.toxicity < 1 for link in worse for toxic in broken[link][1].toxics)
        for probes in self._probes:
            probes.probe({link: self._added(link) for link in _either_way(worse)}, partly=is_partial)
            probes.refresh(_either_way(before.keys() - broken.keys()) - _either_way(broken))

    def _added(self, link: Link) -> ProbeTimes:
        """Return by how much the faults delay a probe that dials over this link now. Its bytes pass in both directions,
        so the delays of both are added."""
        there, back = (added_of(self._broken.get(one, (None, ByteConditions()))[1]) for one in (link, link[::-1]))
        return there.combine(operator.add, back)

    def _ways(self) -> dict[Link, ByteConditions]:
        hung = {link for link, manner in self._cuts.items() if manner == plan.HANG}
        return {link: self._way(link) for link in {*self._qualities, *self._toxics, *hung}}

    def _way(self, link: Link) -> ByteConditions:
        return replace(
            way_of(self._qualities.get(link, WELL)),
            is_hung=self._cuts.get(link) == plan.HANG,
            toxics=tuple(self._toxics.get(link, {}).values()),
        )

    def _policies(self) -> dict[Link, ConnectionPolicy]:
        return {link: ConnectionPolicy(manner) for link, manner in self._cuts.items() if manner != plan.HANG}

    def begin_fault(self, fault: Fault) -> Callable[[], None] | None:
        if fault.kind == plan.RESET:
            return self._reset(fault)
        if fault.kind in host_faults.KINDS:
            return self._hosts.begin(fault, self)
        if fault.needs_toxics:
            return self._begin_toxic(fault)
        return super().begin_fault(fault)

    def _begin_toxic(self, fault: Fault) -> Callable[[], None] | None:
        """Add the fault's toxic to its links; return None if one of the links already has a fault of this kind."""
        links, toxic = self._degraded_links(fault), toxic_of(fault)
        if any(fault.kind in self._toxics.get(link, ()) for link in links):
            return None
        for link in links:
            self._toxics.setdefault(link, {})[fault.kind] = toxic
        self._cut_links()
        return lambda: self._end_toxic(links, fault.kind)

    def _end_toxic(self, links: Iterable[Link], kind: str) -> None:
        for link in links:
            left = self._toxics.get(link, {})
            left.pop(kind, None)
            if not left:
                self._toxics.pop(link, None)
        self._cut_links()

    def heal(self) -> None:
        self._toxics.clear()
        super().heal()

    def _reset(self, fault: Fault) -> Callable[[], None]:
        """End the connections between two nodes; they may dial again at once."""
        for proxies in self._proxies:
            proxies.reset(_either_way([(end_of(fault.node), end_of(fault.other))]))
        return lambda: None


def _links_to(target: NodePlan, nodes: Iterable[NodePlan]) -> list[Link]:
    """Return the links from every other node."""
    return [(source.node_id, target.node_id) for source in nodes if source.node_id != target.node_id]


def _either_way(links: Iterable[Link]) -> set[Link]:
    """Return these links together with the links in the opposite direction."""
    return {one for source, target in links for one in ((source, target), (target, source))}
