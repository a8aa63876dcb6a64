"""NodeConfig: one node's properties, checked as a whole.

Every rule that involves more than one key is here or in `kraft.config.roles`. The original mapping is kept in
`properties`, to distinguish explicit settings from defaults. Source: Kafka's KafkaConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kraft.config.admin import check_admin
from kraft.config.errors import ConfigError
from kraft.config.group import check_group_bounds
from kraft.config.key import ConfigValue, Effect
from kraft.config.listeners import ListenerConfig, SecurityProtocol, parse_host_port
from kraft.config.roles import check_roles, protocol_of, resolve_listeners
from kraft.config.table import BROKER_KEYS, broker_key, strip_listener_prefix
from kraft.config.tls import TlsConfig, tls_config
from kraft.seam import Address, DialMap


@dataclass(frozen=True, slots=True)
class VoterAddress:
    """A static voter: its node id and the address of its controller listener."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Configuration of one node. The `advertised_listeners` of a controller are those of its controller listeners.

    `warnings` are sentences to log once at start: keys without effect, and unknown keys that were permitted."""

    node_id: int
    roles: frozenset[str]
    listeners: tuple[ListenerConfig, ...]
    advertised_listeners: tuple[ListenerConfig, ...]
    controller_listener_names: tuple[str, ...]
    inter_broker_listener_name: str
    quorum_voters: tuple[VoterAddress, ...]
    quorum_bootstrap_servers: tuple[tuple[str, int], ...]
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    rack: str | None
    host_id: str | None
    dial_map: DialMap
    """(node id, listener) → address to dial instead of that node's advertised address."""
    warnings: tuple[str, ...]
    properties: Mapping[str, str] = field(repr=False)
    values: Mapping[str, ConfigValue] = field(repr=False)

    @staticmethod
    def parse(properties: Mapping[str, str], *, ignore_unknown: bool = False) -> NodeConfig:
        """Parse and check a node's properties. ConfigError names the key, what was expected, and the known key nearest
        to an unknown one; `ignore_unknown` turns unknown keys into warnings."""
        given, warnings = _known(properties, ignore_unknown)
        values = {name: broker_key(name).parse(text) for name, text in given.items()}
        for name, key in BROKER_KEYS.items():
            if name not in values:
                values[name] = key.default_value()
        return _assemble(given, values, warnings)

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    def overlay(self, dynamic: Mapping[str, str]) -> NodeConfig:
        """Return this configuration with dynamic broker settings applied on top. Identity, roles and listeners stay as
        they are. Unknown keys are ignored."""
        keys = {name: BROKER_KEYS.get(strip_listener_prefix(name)) for name in dynamic}
        changed = {name: key.parse(dynamic[name]) for name, key in keys.items() if key is not None}
        return replace(self, values={**self.values, **changed}, properties={**self.properties, **dynamic})

    def is_set(self, key: str) -> bool:
        """Return whether the key was set explicitly instead of left at its default."""
        return key in self.properties

    def integer(self, key: str) -> int:
        """Return the value of an INT, SHORT or LONG key that is set or has a default."""
        value = self._value(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise ConfigError(key, f"has the value {value!r}, which is not a whole number")

    def boolean(self, key: str) -> bool:
        """Return the value of a BOOLEAN key."""
        value = self._value(key)
        if isinstance(value, bool):
            return value
        raise ConfigError(key, f"has the value {value!r}, which is not a boolean")

    def float(self, key: str) -> float:
        """Return the value of a DOUBLE key."""
        value = self._value(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        raise ConfigError(key, f"has the value {value!r}, which is not a number")

    def string(self, key: str) -> str:
        """Return the value of a STRING, CLASS or PASSWORD key; "" if it is not set and has no default."""
        value = self._value(key)
        return value if isinstance(value, str) else "" if value is None else str(value)

    def list(self, key: str) -> tuple[str, ...]:
        """Return the value of a LIST key, or of a comma-separated STRING key; () if it is not set and has no
        default."""
        value = self._value(key)
        if value is None:
            return ()
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        if isinstance(value, tuple):
            return value
        raise ConfigError(key, f"has the value {value!r}, which is not a list")

    def tls(self, listener_name: str) -> TlsConfig | None:
        """Return a listener's TLS settings; None if it does not use TLS. `listener.name.<name>.ssl.…` has precedence
        over `ssl.…`."""
        for listener in self.listeners:
            if listener.name == listener_name:
                return tls_config(listener, self.values) if listener.security_protocol.uses_tls else None
        raise ConfigError("listeners", f"there is no listener {listener_name}")

    def dial_tls(self, listener_name: str, protocol: SecurityProtocol | None = None) -> TlsConfig | None:
        """Return the TLS settings for dialling the listener of this name on another node; None if that listener does
        not use TLS. This node need not have a listener of the name.

        `protocol` is the security protocol that the other node reported; by default the one in
        listener.security.protocol.map."""
        protocol = protocol or protocol_of(self, listener_name)
        if not protocol.uses_tls:
            return None
        own = next((listener for listener in self.listeners if listener.name == listener_name), None)
        # only a node that accepts TLS connections on this listener needs a private key
        is_bound = own is not None and own.security_protocol.uses_tls
        return tls_config(ListenerConfig(listener_name, "", 0, protocol), self.values, is_bound=is_bound)

    def _value(self, key: str) -> ConfigValue:
        try:
            return self.values[key]
        except KeyError:
            return broker_key(key).default_value()


def _known(properties: Mapping[str, str], ignore_unknown: bool) -> tuple[dict[str, str], list[str]]:
    given: dict[str, str] = {}
    warnings: list[str] = []
    for name, text in properties.items():
        try:
            key = broker_key(name)
        except ConfigError as problem:
            if not ignore_unknown:
                raise
            warnings.append(f"ignored: {problem}")
            continue
        given[name] = text
        if key.effect is Effect.NO_EFFECT and text.strip() != (key.default or ""):
            warnings.append(f"{name} has no effect: {key.reason}")
    return given, warnings


def _assemble(given: dict[str, str], values: dict[str, ConfigValue], warnings: list[str]) -> NodeConfig:
    config = NodeConfig(
        node_id=_node_id(given, values),
        roles=frozenset(_strings(values["process.roles"])),
        listeners=(),
        advertised_listeners=(),
        controller_listener_names=tuple(name.upper() for name in _strings(values["controller.listener.names"])),
        inter_broker_listener_name="",
        quorum_voters=tuple(_voter(entry) for entry in _strings(values["controller.quorum.voters"])),
        quorum_bootstrap_servers=tuple(
            parse_host_port("controller.quorum.bootstrap.servers", entry)
            for entry in _strings(values["controller.quorum.bootstrap.servers"])
        ),
        log_dirs=_log_dirs(given, values),
        metadata_log_dir=str(values["metadata.log.dir"] or _log_dirs(given, values)[0]),
        rack=_optional(values["broker.rack"]),
        host_id=_optional(values["kraft.host.id"]),
        dial_map=dict(map(_dialled_elsewhere, _strings(values["kraft.dial.map"]))),
        warnings=tuple(warnings),
        properties=given,
        values=values,
    )
    listeners, advertised, inter_broker = resolve_listeners(config)
    config = replace(
        config, listeners=listeners, advertised_listeners=advertised, inter_broker_listener_name=inter_broker
    )
    check_roles(config)
    for listener in listeners:
        config.tls(listener.name)
    config.dial_tls(config.controller_listener_names[0])
    check_admin(config)
    check_group_bounds(config)
    return config


def _node_id(given: Mapping[str, str], values: Mapping[str, ConfigValue]) -> int:
    node_id, broker_id = values["node.id"], values["broker.id"]
    if "node.id" in given and "broker.id" in given and node_id != broker_id:
        raise ConfigError(
            "node.id", f"{node_id} and broker.id={broker_id} must be the same number; write node.id alone"
        )
    number = node_id if "node.id" in given else broker_id if "broker.id" in given else None
    if not isinstance(number, int) or number < 0:
        raise ConfigError("node.id", "is not set; give each node of the cluster its own number, 0 or above")
    return number


def _voter(entry: str) -> VoterAddress:
    number, at, address = entry.partition("@")
    if not at or not number.strip().isdigit():
        raise ConfigError(
            "controller.quorum.voters", f"{entry!r}: expected id@host:port, for example 101@localhost:9192"
        )
    host, port = parse_host_port("controller.quorum.voters", address)
    return VoterAddress(int(number), host, port)


def _dialled_elsewhere(entry: str) -> tuple[tuple[int, str], Address]:
    link, at, address = entry.partition("@")
    number, colon, listener = link.partition(":")
    if not at or not colon or not number.strip().isdigit() or not listener.strip():
        raise ConfigError("kraft.dial.map", f"{entry!r}: expected id:LISTENER@host:port, as 2:PLAINTEXT@localhost:7001")
    host, port = parse_host_port("kraft.dial.map", address)
    return (int(number), listener.strip().upper()), Address(host, port)


def _log_dirs(given: Mapping[str, str], values: Mapping[str, ConfigValue]) -> tuple[str, ...]:
    folders = _strings(values["log.dirs"]) or _strings(values["log.dir"])
    key = "log.dirs" if "log.dirs" in given else "log.dir"
    if not folders:
        raise ConfigError(key, "names no folder")
    for folder in folders:
        if folders.count(folder) > 1:
            raise ConfigError(key, f"the folder {folder} stands twice")
    return folders


def _strings(value: ConfigValue) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _optional(value: ConfigValue) -> str | None:
    return value if isinstance(value, str) and value else None
