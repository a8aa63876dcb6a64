"""UserTarget: a cluster that belongs to the user, as the target of one run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from kraft.seam import Address, Seam
from kraft.sim.chaos.clusters.node_commands import NodeCommands
from kraft.sim.chaos.clusters.user_cluster import UserCluster
from kraft.sim.chaos.hosts.warden import Warden
from kraft.sim.chaos.proxies.binary import VERSION
from kraft.sim.chaos.proxies.links import Link, LinkProxies
from kraft.sim.chaos.proxies.server import LOG_NAME, ToxiproxyServer
from kraft.sim.chaos.proxies.toxics import ByteConditions, ConnectionPolicy
from kraft.sim.chaos.scenarios.scenario import Scenario
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.partition_shapes import CLIENTS

ONLY_CLIENT_LINKS = (
    "The cluster is the user's: faults are possible only on the links between our client and its brokers"
    " (clients of other libraries dial the brokers themselves)."
)
WITH_CONTROL = "Its nodes are killed, stopped and started by the commands of the control file."


class UserClientProxies:
    """A proxy in front of each broker, for pykraft's client; see
    kraft.sim.chaos.clusters.user_cluster.ClientProxies."""

    def __init__(self, folder: Path, warden: Warden) -> None:
        self._server = ToxiproxyServer(folder, environment=warden.environment)
        self._proxies: LinkProxies | None = None

    def place(self, brokers: Mapping[int, Address]) -> Mapping[int, Address]:
        self._server.start()
        self._proxies = LinkProxies(self._server, {(CLIENTS, node): address for node, address in brokers.items()})
        return {node: self._proxies.address((CLIENTS, node)) for node in brokers}

    def cut(self, manners: Mapping[int, str]) -> None:
        ways: dict[Link, ByteConditions] = {}
        policies: dict[Link, ConnectionPolicy] = {}
        for node, manner in manners.items():
            if manner == plan.HANG:
                ways |= {(CLIENTS, node): ByteConditions(is_hung=True), (node, CLIENTS): ByteConditions(is_hung=True)}
            else:
                policies[CLIENTS, node] = ConnectionPolicy(manner)
        assert self._proxies is not None
        self._proxies.apply(ways, policies)

    def require_running(self) -> None:
        """Raise ToxiproxyError if toxiproxy has ended, because the clients' observations would no longer describe the
        cluster."""
        self._server.require_running()

    def close(self) -> None:
        if self._proxies is not None:
            self._proxies.close()
        self._server.stop()


class UserTarget:
    """A cluster that belongs to the user; see kraft.sim.chaos.targets. Its possible fault kinds depend on the address
    and on `control`."""

    def __init__(
        self, scenario: Scenario, folder: Path, warden: Warden, bootstrap: str, control: NodeCommands | None
    ) -> None:
        self.kind = bootstrap
        self._proxies = UserClientProxies(folder, warden)
        self.cluster = UserCluster(bootstrap, proxies=self._proxies, control=control)
        self._files = folder
        self._control = control

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def direct_servers(self) -> Mapping[int, str]:
        return dict(zip(self.cluster.broker_ids, self.cluster.direct_servers.split(","), strict=True))

    @property
    def notes(self) -> tuple[str, ...]:
        return (ONLY_CLIENT_LINKS,) if self._control is None else (ONLY_CLIENT_LINKS, WITH_CONTROL)

    @property
    def enforces_max_gap(self) -> bool:
        return False

    @property
    def is_lasting(self) -> bool:
        return True

    def open(self) -> None:
        self.cluster.open()

    def close(self) -> None:
        self.cluster.close()

    def client_seam(self) -> AbstractAsyncContextManager[Seam | None]:
        return self.cluster.client_seam()

    def versions(self) -> Mapping[str, str]:
        return {"toxiproxy": VERSION}

    def running(self) -> tuple[int, ...]:
        """The running nodes, as far as the executed commands determine it."""
        nodes = self.cluster.node_ids
        return tuple(node for node in nodes if self.cluster.is_running(node) and not self.cluster.is_paused(node))

    def facts(self) -> Mapping[str, float]:
        self._proxies.require_running()
        return {}

    def data(self) -> Mapping[int, Path]:
        return {}

    def logs(self) -> Mapping[str, Path]:
        return {"toxiproxy.log": self._files / LOG_NAME}
