"""UserCluster: a cluster that belongs to the user (`--against BOOTSTRAP`): pykraft, or any other that speaks Kafka's
protocol.

    with UserCluster("broker-1:9092,broker-2:9092", proxies=…, control=NodeCommands.read(path)) as cluster:
        async with cluster.client_seam() as seam:                      # for pykraft's client

Possible faults:
- With an address only: faults of the links between clients and brokers. A proxy is put between pykraft's client and
  each broker. The brokers still advertise their own addresses. So this works only with pykraft's client, whose dials
  can be redirected. Clients of other libraries follow the advertised addresses and bypass the proxies: they run without
  link faults.
- With a control file (`kraft.sim.chaos.clusters.node_commands`): nodes are killed, stopped, paused and started by the
  user's own commands. A kind of fault is possible when all brokers have its commands. A rolling restart, and faults of
  the active controller, need the commands of all controllers too.
- Not possible: faults of links between nodes, of disks, of clocks and of requests.

Invariant: a node that was killed, stopped or paused here is started or resumed by the user's command at the end, even
after `kill -9` of this process. The observer queries brokers at their advertised addresses. Whether a node is running
is derived from the executed commands. If it ends for another reason, only its absence from the cluster shows that.
"""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import ClassVar, Protocol, Self

from kraft.client.core.configs import ConfigError, parse_bootstrap
from kraft.seam import Address, Seam
from kraft.sim.chaos.clusters.foreign_cluster import ForeignCluster
from kraft.sim.chaos.clusters.node_commands import ENDED_BY, KILL, PAUSE, RESUME, START, STOP, NodeCommands
from kraft.sim.chaos.hosts.leash import Leash
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import ROLES_EVERYWHERE
from kraft.sim.nemesis.partition_shapes import CLIENTS
from kraft.sim.shapes import ClusterError

READY_SECONDS_MAX = 120.0
END_SECONDS_MAX = 60.0
CONNECT_SECONDS_MAX = 2.0
_POLL_SECONDS = 0.1
KINDS: Mapping[str, str] = MappingProxyType({plan.KILL: KILL, "stumble": KILL, plan.CLEAN_STOP: STOP, "pause": PAUSE})
"""Kind of fault → the command that all brokers need for it."""


class ClientProxies(Protocol):
    """The proxies between clients and brokers; created by the owner of the proxy server."""

    def place(self, brokers: Mapping[int, Address]) -> Mapping[int, Address]:
        """Put a proxy in front of each of these brokers and return the proxies' addresses. Called once."""
        ...

    def cut(self, manners: Mapping[int, str]) -> None:
        """Cut clients off from exactly these brokers, each in its manner (kraft.sim.nemesis.plan.CUT_MANNERS)."""
        ...

    def close(self) -> None:
        """Remove the proxies."""
        ...


@dataclass(frozen=True, slots=True)
class UserShape(ClusterShape):
    """The shape of a cluster whose node ids are given by the user instead of assigned here."""

    found_brokers: tuple[int, ...] = ()
    found_controllers: tuple[int, ...] = ()

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return self.found_brokers

    @property
    def controller_ids(self) -> tuple[int, ...]:
        return self.found_controllers


class UserCluster(ForeignCluster):
    """A cluster that belongs to the user; see the module. Raises ClusterError if no broker answers at `bootstrap`, or
    `control` does not fit the cluster."""

    cut_manners: ClassVar[tuple[str, ...]] = plan.CUT_MANNERS
    no_rules: ClassVar[str] = "requests to a cluster of the user cannot be tampered with: it has no hook for that"

    def __init__(
        self, bootstrap: str, *, proxies: ClientProxies | None = None, control: NodeCommands | None = None
    ) -> None:
        super().__init__(ClusterShape())
        try:
            self._bootstrap = ",".join(map(str, parse_bootstrap(bootstrap)))
        except ConfigError as problem:
            raise ClusterError(f"--against {bootstrap}: {problem}") from None
        self._proxies = proxies
        self._control = control
        self._brokers: dict[int, Address] = {}
        """The brokers' advertised addresses."""
        self._routes: dict[Address, Address] = {}
        """Advertised address → proxy."""
        self._undone: dict[int, str] = {}
        """Node → the executed command that must still be undone."""
        self._leash: Leash | None = None
        self._placed = False

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Query the cluster for its nodes, and put proxies in front of its brokers."""
        from kraft.sim.chaos.clusters.cluster_queries import query_cluster

        self._brokers, voters = query_cluster(self._bootstrap)
        brokers = tuple(sorted(self._brokers))
        self.shape = UserShape(
            controllers=len(voters), brokers=len(brokers), found_brokers=brokers, found_controllers=voters
        )
        self._require_known_nodes()
        self._require_reachable()
        if self._proxies is not None:
            placed = self._proxies.place(self._brokers)
            self._placed = True
            self._routes = {self._brokers[node]: placed[node] for node in brokers}
        self._leash = Leash()

    def close(self) -> None:
        """Start or resume the nodes that are down or paused, and remove the proxies. Raises ClusterError with the nodes
        that did not start again."""
        failures = []
        for node in sorted(self._undone):
            try:
                self._carry_out(node, ENDED_BY[self._undone[node]])
            except ClusterError as problem:
                failures.append(str(problem))
        if self._placed and self._proxies is not None:
            self._placed = False
            self._proxies.close()
        if self._leash is not None:
            self._leash.release()
            self._leash = None
        if failures:
            raise ClusterError("nodes of your cluster did not come back: " + "; ".join(failures))

    # queries of a run

    @property
    def fault_kinds(self) -> tuple[str, ...]:  # type: ignore[override]  # depends on what the user gave
        kinds = [kind for kind, verb in KINDS.items() if self._has(self.broker_ids, verb)]
        kinds += [plan.ROLLING] if self._has(self.node_ids, STOP) else []
        kinds += [plan.CLIENTS_CUT] if self._proxies is not None else []
        return tuple(kinds)

    @property
    def fault_roles(self) -> tuple[str, ...]:  # type: ignore[override]
        has_controllers = all(self._has(self.controller_ids, verb) for verb in self._verbs())
        return tuple(role for role in ROLES_EVERYWHERE if has_controllers or role != plan.ACTIVE_CONTROLLER)

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' advertised addresses. pykraft's client uses them with `client_seam`; clients of other libraries
        use them directly."""
        return ",".join(str(address) for _, address in sorted(self._brokers.items()))

    @property
    def direct_servers(self) -> str:
        """The brokers' advertised addresses, at which the observer reaches them without a proxy."""
        return self.bootstrap_servers

    @asynccontextmanager
    async def client_seam(self) -> AsyncIterator[Seam]:
        """Open the seam for pykraft's clients, which reach each broker through its proxy, and no other address."""
        from kraft.runtime import open_seam
        from kraft.sim.chaos.clusters.routed_seam import routed_seam

        async with routed_seam(self._routes) if self._routes else open_seam(node_name="client") as seam:
            yield seam

    def describe(self) -> str:
        """Describe the nodes, and what was done to those that are down or paused."""
        lines = [f"broker {node}: {address}" for node, address in sorted(self._brokers.items())]
        lines += [f"controller {node}" for node in self.controller_ids]
        return "\n".join(
            lines + [f"node {node}: {verb} was carried out" for node, verb in sorted(self._undone.items())]
        )

    # primitives

    def _kill(self, node: int) -> None:
        self._carry_out(node, KILL)

    def _stop(self, node: int) -> None:
        """Run the stop command. It may return before or after the node has ended."""
        self._require_commands(node, STOP)
        if self._is_paused(node):
            self._carry_out(node, RESUME)
        self._carry_out(node, STOP)

    def _wait_ended(self, node: int) -> None:
        """Wait until a broker's address refuses connections. For a controller, the return of the stop command is the
        only sign."""
        self._wait(node, lambda: not _accepts(self._brokers.get(node)), END_SECONDS_MAX, "still accepts connections")

    def _start(self, node: int) -> None:
        self._carry_out(node, START)

    def _wait_ready(self, node: int) -> None:
        self._wait(node, lambda: self._follow_start(node), READY_SECONDS_MAX, "does not serve")

    def _follow_start(self, node: int) -> bool:
        """Return whether a started node serves: a broker when the cluster lists it as alive; a controller when the
        cluster has an active controller."""
        from kraft.sim.chaos.clusters.cluster_queries import find_brokers

        if not self._is_running(node):
            return True
        if node not in self._brokers:
            return self.active_controller() is not None
        return _accepts(self._brokers[node]) and node in find_brokers(str(self._brokers[node]))

    def _pause(self, node: int) -> None:
        self._carry_out(node, PAUSE)

    def _resume(self, node: int) -> None:
        self._carry_out(node, RESUME)

    def _is_running(self, node: int) -> bool:
        return self._undone.get(node) not in (KILL, STOP)

    def _is_paused(self, node: int) -> bool:
        return self._undone.get(node) == PAUSE

    def has_link(self, source: int, target: int) -> bool:
        """Return whether this link exists. Clients never dial a controller."""
        return CLIENTS not in (source, target) or max(source, target) in self.broker_ids

    def _require_link(self, source: int, target: int) -> None:
        nodes = {source, target} - {CLIENTS}
        if self._proxies is None:
            raise ClusterError("links of this cluster cannot be broken: its brokers have no proxies")
        if len(nodes) != 1 or not nodes <= {*self.broker_ids}:
            raise ClusterError(
                f"the link {source} → {target} of the user's cluster cannot be broken: only those between"
                " clients and brokers can"
            )

    def _cut_links(self) -> None:
        if self._proxies is not None and self._placed:
            self._proxies.cut({max(link): manner for link, manner in self._cuts.items()})

    # the user's commands

    def _addresses(self) -> dict[int, str]:
        """Return the addresses of the brokers that can answer now."""
        return {node: str(self._brokers[node]) for node in self._listening()}

    def _has(self, nodes: Sequence[int], verb: str) -> bool:
        return self._control is not None and bool(nodes) and self._control.has(nodes, verb)

    def _verbs(self) -> set[str]:
        """The commands for faults that the control file has for every broker."""
        return {verb for verb in KINDS.values() if self._has(self.broker_ids, verb)}

    def _require_commands(self, node: int, verb: str) -> NodeCommands:
        if self._control is None:
            raise ClusterError(f"{verb} of node {node}: nodes of the user's cluster need --control FILE for it")
        self._control.words(node, verb)
        return self._control

    def _carry_out(self, node: int, verb: str) -> None:
        """Run a command. The command that undoes it is first registered with the process that cleans up (leash), which
        runs it if this process is killed."""
        control = self._require_commands(node, verb)
        if verb in ENDED_BY:
            self._undone[node] = verb
            self._hold()
            try:
                control.run(node, verb)
            except ClusterError:  # a failed command counts as one without effect
                self._undone.pop(node, None)
                self._hold()
                raise
        else:
            control.run(node, verb)
            self._undone.pop(node, None)
            self._hold()

    def _hold(self) -> None:
        """Replace the registered commands by those that undo everything done so far. The cleanup process (leash) runs
        them if this process is killed."""
        if self._leash is not None and self._control is not None:
            control = self._control
            self._leash.at_end(*(control.words(node, ENDED_BY[verb]) for node, verb in self._undone.items()))

    def _require_known_nodes(self) -> None:
        if CLIENTS in self.node_ids:
            raise ClusterError(
                f"the cluster at {self._bootstrap} has a node with id {CLIENTS}, which stands for clients here: only"
                " clusters whose node ids begin at 1 can be broken"
            )
        strange = sorted({*(self._control.commands if self._control is not None else ())} - {*self.node_ids})
        if strange and self._control is not None:
            known = ", ".join(map(str, sorted(self.node_ids)))
            raise ClusterError(
                f"{self._control.source} has commands of node {strange[0]}, which the cluster at {self._bootstrap} does"
                f" not have: its nodes are {known}"
            )

    def _require_reachable(self) -> None:
        for node, address in sorted(self._brokers.items()):
            if not _accepts(address):
                raise ClusterError(
                    f"broker {node} advertises {address}, which accepts no connection from here; run where clients of"
                    " this cluster run, or change its advertised.listeners"
                )

    @staticmethod
    def _wait(node: int, condition: Callable[[], bool], timeout_s: float, complaint: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(f"node {node} {complaint} {timeout_s:g} s after its command")
            time.sleep(_POLL_SECONDS)


def _accepts(address: Address | None) -> bool:
    if address is None:
        return False
    try:
        with socket.create_connection((address.host, address.port), CONNECT_SECONDS_MAX):
            return True
    except OSError:
        return False
