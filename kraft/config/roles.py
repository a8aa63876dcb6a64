"""Rules that involve roles, listeners and the quorum together.

A controller listens only on controller listeners. A broker listens on no controller listener. A node with both roles
listens on both kinds. An advertised address must be reachable. A controller must be among the static voters; a node
that is only a broker must not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraft.config.errors import ConfigError
from kraft.config.listeners import ListenerConfig, SecurityProtocol, parse_listeners, parse_security_map

if TYPE_CHECKING:
    from kraft.config.node import NodeConfig

_ANY_ADDRESS = ("", "0.0.0.0", "::")

Listeners = tuple[ListenerConfig, ...]


def resolve_listeners(config: NodeConfig) -> tuple[Listeners, Listeners, str]:
    """Return listeners, advertised listeners and the inter-broker listener's name ("" on a node that is only a
    controller)."""
    if not config.roles:
        raise ConfigError("process.roles", "is not set; write controller, broker or controller,broker")
    if not config.controller_listener_names:
        raise ConfigError(
            "controller.listener.names", "is not set; name the controllers' listener, for example CONTROLLER"
        )
    protocols = _protocols(config)
    listeners = parse_listeners("listeners", config.list("listeners"), protocols)
    if not listeners:
        raise ConfigError("listeners", "names no listener")
    advertised_key = "advertised.listeners" if config.list("advertised.listeners") else "listeners"
    advertised = parse_listeners(advertised_key, config.list(advertised_key), protocols)
    if advertised_key == "advertised.listeners":
        named = {listener.name for listener in advertised}
        advertised += tuple(item for item in listeners if item.name in _controllers(config) and item.name not in named)
    _check_ports(listeners)
    return listeners, advertised, _inter_broker_name(config, advertised)


def check_roles(config: NodeConfig) -> None:
    """Raise ConfigError if roles, listeners and voters contradict each other."""
    _check_voters(config)
    bound = {listener.name for listener in config.listeners}
    controllers = _controllers(config)
    if config.is_controller and not bound & controllers:
        raise ConfigError(
            "listeners", f"a controller needs a listener of controller.listener.names ({_names(controllers)})"
        )
    if not config.is_controller and bound & controllers:
        raise ConfigError(
            "listeners", f"a broker alone must not have the controllers' listener {_names(bound & controllers)}"
        )
    if config.is_controller and not config.is_broker and bound - controllers:
        raise ConfigError(
            "listeners", f"a controller alone may only have controller listeners, but has {_names(bound - controllers)}"
        )
    if config.is_broker:
        _check_broker(config, bound)
    for listener in (*config.listeners, *config.advertised_listeners):
        if listener.security_protocol in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL):
            raise ConfigError(
                "listener.security.protocol.map",
                f"the listener {listener.name} is {listener.security_protocol.name}, but this release has no SASL; "
                "use PLAINTEXT or SSL",
            )
    if config.integer("broker.heartbeat.interval.ms") >= config.integer("broker.session.timeout.ms"):
        raise ConfigError("broker.heartbeat.interval.ms", "must be less than broker.session.timeout.ms")


def _check_broker(config: NodeConfig, bound: set[str]) -> None:
    clients = bound - _controllers(config)
    if not clients:
        raise ConfigError("listeners", "a broker needs a listener that is not a controller listener")
    name = config.inter_broker_listener_name
    if name not in clients:
        raise ConfigError("inter.broker.listener.name", f"{name} is not among the broker's listeners {_names(clients)}")
    for listener in config.advertised_listeners:
        if listener.name not in bound:
            raise ConfigError("advertised.listeners", f"{listener.name} is not among listeners ({_names(bound)})")
        if listener.host in ("0.0.0.0", "::") and listener.name not in _controllers(config):
            raise ConfigError(
                "advertised.listeners",
                f"{listener} would tell clients to connect to {listener.host}, which no client can reach; "
                "set advertised.listeners to this host's name or address",
            )


def _check_voters(config: NodeConfig) -> None:
    voters = [voter.node_id for voter in config.quorum_voters]
    if not voters and not config.quorum_bootstrap_servers:
        raise ConfigError(
            "controller.quorum.voters", "is not set, nor is controller.quorum.bootstrap.servers: no way to the quorum"
        )
    for voter in voters:
        if voters.count(voter) > 1:
            raise ConfigError("controller.quorum.voters", f"the voter {voter} stands twice")
    if voters and config.is_controller and config.node_id not in voters:
        raise ConfigError(
            "controller.quorum.voters",
            f"this controller's node.id {config.node_id} is not among the voters {_names(voters)}",
        )
    if config.node_id in voters and not config.is_controller:
        raise ConfigError(
            "process.roles", f"node {config.node_id} is a voter in controller.quorum.voters but not a controller"
        )


def protocol_of(config: NodeConfig, listener_name: str) -> SecurityProtocol:
    """Return the security protocol of a listener name, whether or not this node has such a listener. Raises ConfigError
    if listener.security.protocol.map lacks the name."""
    protocols = _protocols(config)
    if listener_name not in protocols:
        known = ", ".join(sorted(protocols))
        raise ConfigError(
            "listener.security.protocol.map",
            f"no security protocol is defined for the listener {listener_name}; the map knows {known}",
        )
    return protocols[listener_name]


def _protocols(config: NodeConfig) -> dict[str, SecurityProtocol]:
    protocols = parse_security_map("listener.security.protocol.map", config.list("listener.security.protocol.map"))
    if not config.is_set("listener.security.protocol.map"):
        for name in config.controller_listener_names:
            protocols.setdefault(name, SecurityProtocol.PLAINTEXT)
    return protocols


def _inter_broker_name(config: NodeConfig, advertised: Sequence[ListenerConfig]) -> str:
    if not config.is_broker:
        return ""
    if config.string("inter.broker.listener.name"):
        if config.is_set("security.inter.broker.protocol"):
            raise ConfigError(
                "security.inter.broker.protocol", "must not be set together with inter.broker.listener.name"
            )
        name = config.string("inter.broker.listener.name").upper()
        if name in config.controller_listener_names:
            raise ConfigError("inter.broker.listener.name", f"{name} is a controller listener")
        return name
    protocol = SecurityProtocol[config.string("security.inter.broker.protocol")]
    clients = [item for item in advertised if item.name not in _controllers(config)]
    for listener in clients:
        if listener.name == protocol.name:
            return listener.name
    for listener in clients:
        if listener.security_protocol is protocol:
            return listener.name
    raise ConfigError("inter.broker.listener.name", f"is not set and no listener has the protocol {protocol.name}")


def _check_ports(listeners: Sequence[ListenerConfig]) -> None:
    taken: dict[tuple[str, int], str] = {}
    for listener in listeners:
        if listener.port == 0:
            continue
        host = "" if listener.host in _ANY_ADDRESS else listener.host
        other = taken.setdefault((host, listener.port), listener.name)
        if other != listener.name:
            raise ConfigError(
                "listeners", f"{other} and {listener.name} both bind port {listener.port}; give each its own"
            )


def _controllers(config: NodeConfig) -> set[str]:
    return set(config.controller_listener_names)


def _names(names: Sequence[object] | set[str]) -> str:
    return ", ".join(sorted(str(name) for name in names))
