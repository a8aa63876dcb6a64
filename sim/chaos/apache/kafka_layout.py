"""KafkaLayout: the nodes of an Apache Kafka cluster, their listeners, and the properties with which each node is
started.

In a *split* layout each kind of source has its own listener, so that a proxy can be put in front of each:

    CLIENT       clients → broker
    BROKER       brokers → broker
    CONTROLLER   brokers → controller
    QUORUM       controllers → controller, and nodes of both roles → controller
    DIRECT       the observer → broker, without a proxy

Sources dial the advertised address of a listener. Kafka's nodes reach controllers at the first of *their own*
`controller.listener.names`; a quorum leader returns the address that it advertises for that name. Kafka's controllers
dial no brokers. All sources of one kind share a listener, so a link is identified by a kind of source and one target.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kraft.seam import Address

HOST = "127.0.0.1"
CLIENT, BROKER, CONTROLLER, QUORUM, DIRECT = "CLIENT", "BROKER", "CONTROLLER", "QUORUM", "DIRECT"
PLAINTEXT = "PLAINTEXT"
FIRST_CONTROLLER = 101
CONTROLLER_PORTS_FROM = 100
"""Distance between the brokers' ports and the controllers' ports in a layout that is not split."""

ListenerKey = tuple[str, int]
"""A listener's name and the node that has it."""


@dataclass(frozen=True, slots=True)
class KafkaLayout:
    """The nodes of a cluster and their addresses. `listeners` are all addresses that nodes bind; a controller's first
    listener is the one for controllers. `advertised` holds only the advertised addresses that differ from the bound
    ones. `controllers` are ordered by id."""

    brokers: tuple[int, ...]
    controllers: tuple[int, ...]
    listeners: Mapping[ListenerKey, Address]
    directory_ids: Mapping[int, str]
    advertised: Mapping[ListenerKey, Address] = field(default_factory=dict)
    racks: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def plain(cls, port: int, *, is_single: bool) -> KafkaLayout:
        """Return a layout with one listener per role: for a single node with both roles, or for three controllers and
        three brokers."""
        if is_single:
            return cls._plain(port, (1,), (1,), {})
        return cls._plain(port, (1, 2, 3), tuple(range(FIRST_CONTROLLER, FIRST_CONTROLLER + 3)), {})

    @classmethod
    def of_racks(cls, port: int, racks: Sequence[str]) -> KafkaLayout:
        """Return a layout of nodes with both roles, numbered from 1, one in each rack."""
        nodes = tuple(range(1, 1 + len(racks)))
        return cls._plain(port, nodes, nodes, dict(zip(nodes, racks, strict=True)))

    @classmethod
    def _plain(
        cls, port: int, brokers: tuple[int, ...], controllers: tuple[int, ...], racks: Mapping[int, str]
    ) -> KafkaLayout:
        listeners = {(PLAINTEXT, node): Address(HOST, port + index) for index, node in enumerate(brokers)}
        first = port + CONTROLLER_PORTS_FROM
        listeners |= {(CONTROLLER, node): Address(HOST, first + index) for index, node in enumerate(controllers)}
        return cls(brokers, controllers, listeners, {node: uuid() for node in controllers}, {}, racks)

    @classmethod
    def split(cls, first_port: int, brokers: Sequence[int], controllers: Sequence[int]) -> KafkaLayout:
        """Return a layout with a listener for each kind of source, at consecutive ports; see the module."""
        keys = split_keys(brokers, controllers)
        listeners = {key: Address(HOST, first_port + index) for index, key in enumerate(keys)}
        return cls(tuple(brokers), tuple(controllers), listeners, {node: uuid() for node in controllers})

    @property
    def nodes(self) -> list[int]:
        """The node ids, controllers first."""
        return [*self.controllers, *(node for node in self.brokers if node not in self.controllers)]

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap addresses of clients."""
        name = CLIENT if self._is_split else PLAINTEXT
        return ",".join(str(self.address(name, node)) for node in self.brokers)

    def direct(self, node: int) -> Address:
        """Return the address at which a broker is reached without a proxy."""
        return self.listeners[DIRECT if self._is_split else PLAINTEXT, node]

    def address(self, name: str, node: int) -> Address:
        """Return the address at which a listener is dialled."""
        return self.advertised.get((name, node), self.listeners[name, node])

    @property
    def initial_controllers(self) -> str:
        """Return `--initial-controllers` for the format command of each controller."""
        return ",".join(
            f"{node}@{self.address(self._quorum, node)}:{self.directory_ids[node]}" for node in self.controllers
        )

    def properties(self, node: int, folder: Path) -> dict[str, str]:
        """Return the `server.properties` of a node; its data is in FOLDER/NODE/data."""
        names = [name for name, owner in self.listeners if owner == node]
        roles = [role for role, nodes in (("broker", self.brokers), ("controller", self.controllers)) if node in nodes]
        controller_names = [name for name in (QUORUM, CONTROLLER) if name in names] or [CONTROLLER]
        replicas = str(min(3, len(self.brokers)))
        in_sync = str((min(3, len(self.brokers)) + 1) // 2)
        return {
            **({"broker.rack": self.racks[node]} if node in self.racks else {}),
            **({"inter.broker.listener.name": BROKER} if BROKER in names else {}),
            "node.id": str(node),
            "process.roles": ",".join(roles),
            "log.dirs": str(folder / str(node) / "data"),
            "listeners": ",".join(f"{name}://{self.listeners[name, node]}" for name in names),
            "advertised.listeners": ",".join(f"{name}://{self.address(name, node)}" for name in names),
            "controller.listener.names": ",".join(controller_names),
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in dict.fromkeys((*names, *controller_names))
            ),
            "controller.quorum.bootstrap.servers": ",".join(
                str(self.address(controller_names[0], controller)) for controller in self.controllers
            ),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
        }

    @property
    def _is_split(self) -> bool:
        return any(name == CLIENT for name, _ in self.listeners)

    @property
    def _quorum(self) -> str:
        return QUORUM if self._is_split else CONTROLLER


def split_keys(brokers: Sequence[int], controllers: Sequence[int]) -> tuple[ListenerKey, ...]:
    """Return the names of the listeners in a split layout, each with its node. If every broker is also a controller,
    all nodes reach controllers at QUORUM."""
    is_combined = set(brokers) <= set(controllers)
    names = (QUORUM,) if is_combined else (QUORUM, CONTROLLER)
    of_brokers = ((name, node) for node in brokers for name in (CLIENT, BROKER, DIRECT))
    return (*of_brokers, *((name, node) for node in controllers for name in names))


def uuid() -> str:
    """Return a new id in Kafka's format. It does not begin with a dash, which Kafka's tools would read as an option."""
    while (text := base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")).startswith("-"):
        pass
    return text
