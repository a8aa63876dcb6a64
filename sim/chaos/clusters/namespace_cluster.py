"""NamespaceCluster: our own nodes as processes, each in a network namespace of its own, as a host would have.

It shows what proxies cannot: a cut drops packets, so a dial times out, and no end of a connection passes; packets are
delayed, lost and limited by the kernel (`tc`). It takes root, `ip` and `tc`, and for latency a kernel with netem (see
kraft.sim.chaos.hosts.namespaces). The observer and the clients live on the host: who cuts clients off blinds the
observer too. Cuts have one manner, the hang; connections are not reset, and do not end after some bytes.
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
from kraft.sim.chaos.clusters.repeated_look import RepeatedLook
from kraft.sim.chaos.hosts.namespaces import NodeNetworks, Way
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
"""Between two looks at the kernel's counters, each of which runs a command per node."""


class NamespaceCluster(KafkaCluster):
    """See the module. ClusterError if namespaces cannot be had here, or a fault of `kinds` takes more than there is."""

    cut_manners: ClassVar[tuple[str, ...]] = (plan.HANG,)

    def __init__(self, wanted: ScenarioCluster, warden: Warden, kinds: Collection[str] = ()) -> None:
        super().__init__(
            controllers=None if wanted.combined else wanted.controllers,
            brokers=None if wanted.combined else wanted.brokers,
            combined=wanted.combined or None,
            settings=wanted.settings,
        )
        if wanted.dynamic_voters:
            raise ClusterError("voters that change at run time are not to be had with --namespaces")
        if plan.LATENCY in kinds and (reason := can_use_netem()):
            raise ClusterError(f"latency cannot be had with --namespaces here: {reason}")
        self._networks = NodeNetworks(self.node_ids, warden)
        self._kinds = frozenset(kinds)
        self._hosts = HostFaults(kinds, warden)
        self._packets: dict[str, float] = {}
        self._looks = (
            RepeatedLook(self._hosts.ask, host_faults.ASK_SECONDS),
            RepeatedLook(self._count_packets, COUNT_SECONDS),
        )

    @property
    def fault_kinds(self) -> tuple[str, ...]:  # type: ignore[override]  # depends on what there is
        kinds = host_faults.without_unprepared(FAULT_KINDS, self._kinds)
        return tuple(kind for kind in kinds if kind != plan.LATENCY or not can_use_netem())

    def open(self) -> None:
        super().open()
        for look in self._looks:
            look.begin()

    def _before_start(self, folder: ClusterFolder, layout: ClusterLayout) -> None:
        """Make the namespaces, and let every node live in its own."""
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
        """End all nodes at once, and remove what was made for them."""
        with ExitStack() as leftovers:
            leftovers.callback(self._networks.close)
            leftovers.callback(self._hosts.close)
            for look in self._looks:
                leftovers.callback(look.close)
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
        """See HostFaults; and "packets into a cut SOURCE->TARGET", counted while a link is cut."""
        for look in self._looks:
            look.require_well()
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

    def _untold(self, node: int) -> dict[int, LinkState]:
        """Nothing: the kernel breaks links, the nodes know nothing of it."""
        return {}

    def _cut_links(self) -> None:
        ways = {link: Way.of(quality) for link, quality in self._qualities.items()}
        ways |= {link: Way(is_cut=True) for link in self._cuts}
        try:
            self._networks.apply(ways)
        except CannotUseNamespaces as problem:
            raise ClusterError(str(problem)) from problem
