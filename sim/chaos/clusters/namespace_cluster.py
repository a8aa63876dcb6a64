"""NamespaceCluster: pykraft nodes as processes, each in its own network namespace, as on a separate host.

It shows what proxies cannot. A cut drops packets: a dial times out, and the end of a connection is not seen by the
peer. The kernel delays, drops and rate-limits packets (`tc`). It requires root, `ip` and `tc`, and for latency a kernel
with netem (see kraft.sim.chaos.hosts.namespaces). The observer and the clients run on the host, so cutting clients off
also blinds the observer. The only manner of a cut is the hang. Connections cannot be reset, or ended after a number of
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import ClassVar

from kraft.config.properties import parse_properties, render_properties
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import HOST, ClusterLayout
from kraft.deploy.launch.node_command import NodeCommand
from kraft.sim.chaos.clusters import host_faults
from kraft.sim.chaos.clusters.host_faults import HostFaults
from kraft.sim.chaos.clusters.kafka_cluster import KafkaCluster, LinkState
from kraft.sim.chaos.clusters.repeated_measurement import RepeatedMeasurement
from kraft.sim.chaos.hosts.namespaces import NodeNetworks, PacketConditions
from kraft.sim.chaos.hosts.network_commands import CannotUseNamespaces, can_use_netem
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.scenarios.scenario import ScenarioCluster
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import EVERYWHERE
from kraft.sim.nemesis.plan import Fault
from kraft.sim.shapes import ClusterError

NOT_HERE = (plan.BYTE_LIMIT, plan.RESET)
FAULT_KINDS = (*(kind for kind in EVERYWHERE if kind not in NOT_HERE), plan.CLIENTS_CUT, *host_faults.KINDS)
COUNT_SECONDS = 0.5
"""Interval between two reads of the kernel's counters; each runs one command per node."""


class NamespaceCluster(KafkaCluster):
    """A cluster in namespaces; see the module. Raises ClusterError if namespaces are not available here, or if a fault
    of `kinds` needs a tool that is not available."""

    cut_manners: ClassVar[tuple[str, ...]] = (plan.HANG,)

    def __init__(self, wanted: ScenarioCluster, warden: Warden, kinds: Collection[str] = ()) -> None:
        super().__init__(
            controllers=None if wanted.combined else wanted.controllers,
            brokers=None if wanted.combined else wanted.brokers,
            combined=wanted.combined or None,
            settings=wanted.settings,
        )
        if wanted.dynamic_voters:
            raise ClusterError("dynamic voters are not possible with --namespaces")
        if plan.LATENCY in kinds and (reason := can_use_netem()):
            raise ClusterError(f"latency is not possible with --namespaces here: {reason}")
        self._networks = NodeNetworks(self.node_ids, warden)
        self._kinds = frozenset(kinds)
        self._hosts = HostFaults(kinds, warden)
        self._packets: dict[str, float] = {}
        self._measurements = (
            RepeatedMeasurement(self._hosts.ask, host_faults.ASK_SECONDS),
            RepeatedMeasurement(self._count_packets, COUNT_SECONDS),
        )

    @property
    def fault_kinds(self) -> tuple[str, ...]:  # type: ignore[override]  # depends on what there is
        kinds = host_faults.without_unprepared(FAULT_KINDS, self._kinds)
        return tuple(kind for kind in kinds if kind != plan.LATENCY or not can_use_netem())

    def open(self) -> None:
        super().open()
        for measurement in self._measurements:
            measurement.begin()

    def _before_start(self, folder: ClusterFolder, layout: ClusterLayout) -> None:
        """Create the namespaces, and configure every node to run in its own."""
        try:
            self._networks.open()
        except CannotUseNamespaces as problem:
            raise ClusterError(str(problem)) from problem
        for node in layout.nodes():
            path = folder.node(node.node_id) / "server.properties"
            inside = self._networks.properties(node.node_id, parse_properties(path.read_text()))
            path.write_text(render_properties(inside))
            prefix = tuple(self._networks.command_prefix(node.node_id))
            NodeCommand(prefix=prefix).write(folder.node(node.node_id))
        self._hosts.prepare(folder, self.node_ids, self.broker_ids)

    def close(self) -> None:
        """Kill all nodes at once, and remove what was created for them."""
        with ExitStack() as leftovers:
            leftovers.callback(self._networks.close)
            leftovers.callback(self._hosts.close)
            for measurement in self._measurements:
                leftovers.callback(measurement.close)
            super().close()

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses in their namespaces."""
        servers = zip(self.broker_ids, super().bootstrap_servers.split(","), strict=True)
        return ",".join(server.replace(HOST, self._networks.address(node)) for node, server in servers)

    @property
    def direct_servers(self) -> str:
        return self.bootstrap_servers

    def begin_fault(self, fault: Fault) -> Callable[[], None] | None:
        if fault.kind in host_faults.KINDS:
            return self._hosts.begin(fault, self)
        return super().begin_fault(fault)

    def facts(self) -> Mapping[str, float]:
        """Return measurements: see HostFaults; and "packets into a cut SOURCE->TARGET", counted while a link is cut."""
        for measurement in self._measurements:
            measurement.raise_failure()
        return {**self._hosts.facts(), **self._packets}

    def _count_packets(self) -> None:
        cuts = [*self._cuts]
        if not cuts:
            return
        try:
            sent = self._networks.sent_packets()
        except CannotUseNamespaces as problem:
            raise ClusterError(str(problem)) from problem
        self._packets = {
            f"packets into a cut {source}->{target}": float(sent[source, target])
            for source, target in cuts
            if (source, target) in sent
        }

    # links

    def _unsent_states(self, node: int) -> dict[int, LinkState]:
        """Return nothing: the kernel carries out link faults, and the nodes are not informed."""
        return {}

    def _cut_links(self) -> None:
        ways = {link: PacketConditions.of(quality) for link, quality in self._qualities.items()}
        ways |= {link: PacketConditions(is_cut=True) for link in self._cuts}
        try:
            self._networks.apply(ways)
        except CannotUseNamespaces as problem:
            raise ClusterError(str(problem)) from problem
