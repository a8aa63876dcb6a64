"""ClusterLayout: the nodes of a local cluster, their ports, and their properties.

Brokers have the ids 1, 2, 3 … and ports from `port` upwards. Controllers have the ids 101, 102, 103 … and ports from
`port` + 100 upwards. Nodes of both roles have the ids 1, 2, 3 … and one port of each kind. Listeners bind to the
loopback address. `external` adds a listener that binds to every address and is advertised under the given host. With
`fault_control`, each node has a socket for fault injection.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kraft.deploy.launch.errors import LaunchError
from kraft.seam import draw_uuid
from kraft.storage.partition_metadata import encode_uuid

HOST = "127.0.0.1"
FIRST_CONTROLLER = 101
CONTROLLER_PORT_OFFSET = 100
NODES_MAX = 100
FAULT_SOCKET = "fault.sock"
"""Path of the fault control socket, relative to the node's folder, which is its working directory. It is relative
because the path of a Unix socket must be short."""

_KEEP_ALL_METADATA = MappingProxyType({"metadata.max.retention.bytes": "-1", "metadata.max.retention.ms": "-1"})


def new_cluster_id() -> str:
    """Return a random cluster id in Kafka's form: 16 bytes in URL-safe base64."""
    return encode_uuid(draw_uuid(random.SystemRandom().getrandbits))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """A node of a layout. `broker_port` and `controller_port` are None if the node does not have that role."""

    node_id: int
    broker_port: int | None
    controller_port: int | None
    external_port: int | None

    @property
    def roles(self) -> tuple[str, ...]:
        roles = (("controller", self.controller_port), ("broker", self.broker_port))
        return tuple(role for role, port in roles if port is not None)

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(port for port in (self.broker_port, self.controller_port, self.external_port) if port is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLayout:
    """The nodes of a local cluster as the user has requested them. `combined` is the number of nodes that have both
    roles; if it is set, there are no other controllers and brokers."""

    controllers: int = 3
    brokers: int = 3
    combined: int = 0
    port: int = 9092
    profile: str = "dev"
    external: str | None = None
    fault_control: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    racks: str | None = None
    """Comma-separated rack names: that of the first broker, of the second, and so on. If there are more brokers than
    names, the names repeat."""
    node_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings that only one node has, by node id. The id is text, because it is a key of JSON."""

    def __post_init__(self) -> None:
        counts = (self.combined,) if self.combined else (self.controllers, self.brokers)
        if not all(1 <= count <= NODES_MAX for count in counts):
            raise LaunchError(
                "arguments", f"a cluster has 1 to {NODES_MAX} controllers and as many brokers, not {counts}"
            )
        if not 1 <= self.port <= 65535 - CONTROLLER_PORT_OFFSET - NODES_MAX:
            raise LaunchError("arguments", f"--port {self.port}: ports up to 200 above must exist; choose a lower one")
        if self.profile not in ("dev", "kafka"):
            raise LaunchError("arguments", f"--profile {self.profile}: expected dev or kafka")
        self._external()
        self._check_racks()
        known = [str(node.node_id) for node in self.nodes()]
        for node_id in self.node_settings:
            if node_id not in known:
                text = f"--set {node_id}:…: there is no node {node_id}; there are {', '.join(known)}"
                raise LaunchError("arguments", text)

    def nodes(self) -> tuple[NodePlan, ...]:
        """All nodes, with controllers first because a broker finds its quorum sooner if the voters are running."""
        external = self._external()
        base = self.port + CONTROLLER_PORT_OFFSET
        if self.combined:
            return tuple(
                NodePlan(
                    node_id=index + 1,
                    broker_port=self.port + index,
                    controller_port=base + index,
                    external_port=external[1] + index if external else None,
                )
                for index in range(self.combined)
            )
        controllers = tuple(
            NodePlan(node_id=FIRST_CONTROLLER + i, broker_port=None, controller_port=base + i, external_port=None)
            for i in range(self.controllers)
        )
        brokers = tuple(
            NodePlan(
                node_id=i + 1,
                broker_port=self.port + i,
                controller_port=None,
                external_port=external[1] + i if external else None,
            )
            for i in range(self.brokers)
        )
        return controllers + brokers

    def bootstrap_servers(self) -> str:
        """The brokers' addresses, comma-separated."""
        return ",".join(f"{HOST}:{node.broker_port}" for node in self.nodes() if node.broker_port is not None)

    def external_servers(self) -> str:
        """Addresses for clients on other machines, comma-separated; empty if there are none."""
        external = self._external()
        ports = [node.external_port for node in self.nodes() if node.external_port is not None]
        return "" if external is None else ",".join(f"{external[0]}:{port}" for port in ports)

    def properties(self, node: NodePlan, folder: str) -> dict[str, str]:
        """Return the content of this node's `server.properties`. `folder` is the absolute path of the node's folder."""
        voters = (item for item in self.nodes() if item.controller_port is not None)
        properties = {
            "process.roles": ",".join(node.roles),
            "node.id": str(node.node_id),
            "controller.quorum.voters": ",".join(f"{item.node_id}@{HOST}:{item.controller_port}" for item in voters),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": f"{folder}/data",
            **self._listeners(node),
            "kraft.admin.listener": f"{HOST}:0",
            **_KEEP_ALL_METADATA,
            **({"kraft.fault.control.socket": FAULT_SOCKET} if self.fault_control else {}),
            **(self._dev_settings() if self.profile == "dev" else {}),
        }
        return {**properties, **self._rack(node), **self.settings, **self.node_settings.get(str(node.node_id), {})}

    def _check_racks(self) -> None:
        racks = [] if self.racks is None else self.racks.split(",")
        brokers = self.combined or self.brokers
        if not all(rack.strip() for rack in racks) or len(racks) > brokers:
            text = (
                f"--racks {self.racks}: expected names with commas between, at most one for each of {brokers} brokers"
            )
            raise LaunchError("arguments", text)

    def _rack(self, node: NodePlan) -> dict[str, str]:
        if self.racks is None or node.broker_port is None:
            return {}
        racks = self.racks.split(",")
        return {"broker.rack": racks[(node.broker_port - self.port) % len(racks)].strip()}

    def _listeners(self, node: NodePlan) -> dict[str, str]:
        bound: list[str] = []
        advertised: list[str] = []
        protocols = ["CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT"]
        external = self._external()
        if node.broker_port is not None:
            bound.append(f"PLAINTEXT://{HOST}:{node.broker_port}")
            advertised.append(f"PLAINTEXT://{HOST}:{node.broker_port}")
        if node.external_port is not None and external is not None:
            bound.append(f"EXTERNAL://0.0.0.0:{node.external_port}")
            advertised.append(f"EXTERNAL://{external[0]}:{node.external_port}")
            protocols.append("EXTERNAL:PLAINTEXT")
        if node.controller_port is not None:
            bound.append(f"CONTROLLER://{HOST}:{node.controller_port}")
        listeners = {"listeners": ",".join(bound), "listener.security.protocol.map": ",".join(protocols)}
        if node.broker_port is not None:
            listeners |= {"advertised.listeners": ",".join(advertised), "inter.broker.listener.name": "PLAINTEXT"}
        return listeners

    def _dev_settings(self) -> dict[str, str]:
        from kraft.config import BROKER_KEYS, Effect

        brokers = self.combined or self.brokers
        replicas, in_sync = str(min(3, brokers)), str(min(2, brokers))
        wanted = {
            "default.replication.factor": replicas,
            "min.insync.replicas": "2" if brokers >= 3 else "1",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
        }
        return {key: value for key, value in wanted.items() if BROKER_KEYS[key].effect is Effect.EFFECTIVE}

    def _external(self) -> tuple[str, int] | None:
        if self.external is None:
            return None
        host, colon, port = self.external.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 1 <= int(port) <= 65535 - NODES_MAX:
            raise LaunchError(
                "arguments", f"--external {self.external}: expected HOST:PORT, as clients outside reach it"
            )
        return host, int(port)


def is_cluster_id(text: str) -> bool:
    """Whether the text is the base64 of 16 bytes, as a cluster id must be."""
    try:
        return len(text) == 22 and len(base64.urlsafe_b64decode(text + "==")) == 16
    except ValueError:
        return False
