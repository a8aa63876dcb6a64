"""Shape of a simulated cluster: its nodes, and the properties with which each node is started."""

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
LOG_DIR_LETTERS = "abcdef"
AUTO_JOIN = "controller.quorum.auto.join.enable"


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """Numbers of nodes and their ids, which are those of the local launcher: brokers 1, 2, …, controllers 101, 102, ….
    With `combined`, nodes 1, 2, … have both roles, and `controllers` and `brokers` do not count."""

    controllers: int = 3
    brokers: int = 3
    overrides: Mapping[str, str] = field(default_factory=dict)
    log_dirs: int = 1
    combined: int = 0
    dynamic_voters: bool = False
    """Whether the voters are not configured but named in the controllers' first checkpoint, and may change (KIP-853).
    """

    @property
    def controller_ids(self) -> tuple[int, ...]:
        return self.broker_ids if self.combined else tuple(range(101, 101 + self.controllers))

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(range(1, 1 + (self.combined or self.brokers)))

    @property
    def node_ids(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*self.controller_ids, *self.broker_ids)))

    @property
    def is_durable(self) -> bool:
        """Whether each acknowledged record is synced to the device. If so, a power loss does not excuse the loss of a
        record."""
        return self.overrides.get("log.flush.interval.messages") == "1"

    @property
    def joins_by_itself(self) -> bool:
        """Whether a controller that is not a voter under its present directory id becomes one without a request."""
        return self.dynamic_voters and self.overrides.get(AUTO_JOIN) == "true"

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host_name(node)}:{BROKER_PORT}" for node in self.broker_ids)

    def log_dirs_of(self, node_id: int) -> list[str]:
        """Return the log directories of a broker, the one with the metadata log first. A controller has one
        directory."""
        root = f"{DATA_ROOT}/{node_id}"
        if self.log_dirs == 1 or node_id not in self.broker_ids:
            return [root]
        return [f"{root}/dir-{letter}" for letter in LOG_DIR_LETTERS[: self.log_dirs]]

    def config(self, node_id: int) -> NodeConfig:
        """Return the configuration of one node."""
        servers = [f"{host_name(node)}:{CONTROLLER_PORT}" for node in self.controller_ids]
        voters = [f"{node}@{server}" for node, server in zip(self.controller_ids, servers, strict=True)]
        host = host_name(node_id)
        listeners = {}
        if node_id in self.controller_ids:
            listeners["controller"] = f"{CONTROLLER_LISTENER}://{host}:{CONTROLLER_PORT}"
        if node_id in self.broker_ids:
            listeners["broker"] = f"{BROKER_LISTENER}://{host}:{BROKER_PORT}"
        properties = {
            "process.roles": ",".join(listeners),
            "node.id": str(node_id),
            "controller.quorum.voters": "" if self.dynamic_voters else ",".join(voters),
            "controller.listener.names": CONTROLLER_LISTENER,
            "listeners": ",".join(listeners.values()),
            "listener.security.protocol.map": f"{CONTROLLER_LISTENER}:PLAINTEXT,{BROKER_LISTENER}:PLAINTEXT",
            "log.dirs": ",".join(self.log_dirs_of(node_id)),
            "kraft.host.id": host,
        }
        if node_id in self.broker_ids:
            properties["advertised.listeners"] = listeners["broker"]
            properties["inter.broker.listener.name"] = BROKER_LISTENER
            properties["offsets.topic.num.partitions"] = "3"
            properties["transaction.state.log.num.partitions"] = "3"
            properties["group.initial.rebalance.delay.ms"] = "500"
        if self.dynamic_voters:
            properties["controller.quorum.bootstrap.servers"] = ",".join(servers)
        properties.update(self.overrides)
        return NodeConfig.parse(properties)


def host_name(node_id: int) -> str:
    """Return the name of a node and of its host."""
    return f"node-{node_id}"


@cache
def node_of(name: str) -> int | None:
    """Return the id of the node with this name; None for a client."""
    prefix, _, number = name.partition("-")
    return int(number) if prefix == "node" else None
