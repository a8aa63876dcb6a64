"""The shape of a simulated cluster: which nodes there are, and the properties that each is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from kraft.config import NodeConfig

CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
CONTROLLER_LISTENER, BROKER_LISTENER = "CONTROLLER", "PLAINTEXT"
DATA_ROOT = "/data"


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """Node ids as the local launcher gives them: brokers 1, 2, …, controllers 101, 102, …"""

    controllers: int = 3
    brokers: int = 3
    overrides: Mapping[str, str] = field(default_factory=dict)
    log_dirs: int = 1

    @property
    def controller_ids(self) -> tuple[int, ...]:
        return tuple(range(101, 101 + self.controllers))

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(range(1, 1 + self.brokers))

    @property
    def node_ids(self) -> tuple[int, ...]:
        return (*self.controller_ids, *self.broker_ids)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host_name(node)}:{BROKER_PORT}" for node in self.broker_ids)

    def log_dirs_of(self, node_id: int) -> list[str]:
        """The log directories of a broker, the one with the metadata log first; a controller has one."""
        root = f"{DATA_ROOT}/{node_id}"
        if self.log_dirs == 1 or node_id in self.controller_ids:
            return [root]
        return [f"{root}/dir-{letter}" for letter in "abcdef"[: self.log_dirs]]

    def config(self, node_id: int) -> NodeConfig:
        """The configuration of one node."""
        voters = ",".join(f"{node}@{host_name(node)}:{CONTROLLER_PORT}" for node in self.controller_ids)
        host = host_name(node_id)
        is_controller = node_id in self.controller_ids
        name, port = (CONTROLLER_LISTENER, CONTROLLER_PORT) if is_controller else (BROKER_LISTENER, BROKER_PORT)
        properties = {
            "process.roles": "controller" if is_controller else "broker",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": CONTROLLER_LISTENER,
            "listeners": f"{name}://{host}:{port}",
            "listener.security.protocol.map": f"{CONTROLLER_LISTENER}:PLAINTEXT,{BROKER_LISTENER}:PLAINTEXT",
            "log.dirs": ",".join(self.log_dirs_of(node_id)),
            "kraft.host.id": host,
        }
        if not is_controller:
            properties["advertised.listeners"] = f"{name}://{host}:{port}"
            properties["inter.broker.listener.name"] = BROKER_LISTENER
            properties["offsets.topic.num.partitions"] = "3"
            properties["group.initial.rebalance.delay.ms"] = "500"
        properties.update(self.overrides)
        return NodeConfig.parse(properties)


def host_name(node_id: int) -> str:
    """The name of a node, and of its host."""
    return f"node-{node_id}"


@cache
def node_of(name: str) -> int | None:
    """The id of the node that has this name; None for a client."""
    prefix, _, number = name.partition("-")
    return int(number) if prefix == "node" else None
