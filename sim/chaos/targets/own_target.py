"""OwnTarget: a cluster of pykraft nodes, created for one run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

from kraft.deploy.launch.processes import read_identity
from kraft.seam import Seam
from kraft.sim.chaos.clusters import host_faults
from kraft.sim.chaos.clusters.chaos_cluster import ChaosCluster
from kraft.sim.chaos.clusters.namespace_cluster import NamespaceCluster
from kraft.sim.chaos.clusters.process_lives import ProcessLives
from kraft.sim.chaos.hosts.clocks import can_move_clocks
from kraft.sim.chaos.hosts.disks import can_mount
from kraft.sim.chaos.hosts.network_commands import can_use_netem
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.proxies.binary import VERSION
from kraft.sim.chaos.proxies.server import LOG_NAME
from kraft.sim.chaos.scenarios.drawn_faults import drawn_kinds
from kraft.sim.chaos.scenarios.scenario import Scenario
from kraft.sim.nemesis import plan

BLIND = "The observer runs on the host, as clients do: where clients are cut off, it sees nothing either."


class OwnTarget:
    """A cluster of pykraft nodes; see kraft.sim.chaos.targets. `folder` is the run's folder. `uses_namespaces`: faults
    of links are carried out by network namespaces instead of proxies."""

    kind = "pykraft"

    def __init__(self, scenario: Scenario, folder: Path, warden: Warden, *, uses_namespaces: bool = False) -> None:
        kinds = {one.fault.kind for one in scenario.faults}
        if scenario.random_faults:
            kinds |= drawn_kinds() - _impossible_kinds(uses_namespaces)
        self.cluster: ChaosCluster | NamespaceCluster
        if uses_namespaces:
            self.cluster = NamespaceCluster(scenario.cluster, warden, kinds)
        else:
            self.cluster = ChaosCluster(scenario.cluster, folder, warden, kinds)
        self._uses_namespaces = uses_namespaces
        self._files = folder
        self._lives = ProcessLives()

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def direct_servers(self) -> Mapping[int, str]:
        return dict(zip(self.cluster.broker_ids, self.cluster.direct_servers.split(","), strict=True))

    @property
    def notes(self) -> tuple[str, ...]:
        return (BLIND,) if self._uses_namespaces else ()

    @property
    def enforces_max_gap(self) -> bool:
        return True

    @property
    def is_lasting(self) -> bool:
        return False

    def open(self) -> None:
        self.cluster.open()

    def close(self) -> None:
        self.cluster.close()

    def client_seam(self) -> AbstractAsyncContextManager[Seam | None]:
        return nullcontext()

    def versions(self) -> Mapping[str, str]:
        return {"links": "network namespaces"} if self._uses_namespaces else {"toxiproxy": VERSION}

    def running(self) -> tuple[int, ...]:
        """The running nodes, read from their pid files without a query."""
        return self._lives.running({node: read_identity(self._node(node)) for node in self.cluster.node_ids})

    def facts(self) -> Mapping[str, float]:
        return {**self.cluster.facts(), **self._lives.facts()}

    def data(self) -> Mapping[int, Path]:
        return {node: self._node(node) / "data" for node in self.cluster.node_ids}

    def logs(self) -> Mapping[str, Path]:
        nodes = {f"{node}.log": self._node(node) / "node.log" for node in self.cluster.node_ids}
        return nodes | {"toxiproxy.log": self._files / LOG_NAME}

    def _node(self, node: int) -> Path:
        return self.cluster.folder / str(node)


def _impossible_kinds(uses_namespaces: bool) -> set[str]:
    """Return the kinds of faults that this machine does not support. They are omitted unless requested by name."""
    reasons = {host_faults.CLOCK: can_move_clocks(), host_faults.FULL_DISK: can_mount()}
    if uses_namespaces:
        reasons[plan.LATENCY] = can_use_netem()
    return {kind for kind, reason in reasons.items() if reason}
