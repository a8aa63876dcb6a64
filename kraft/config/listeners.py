"""Listeners: the grammar of `listeners`, `advertised.listeners` and `listener.security.protocol.map`.

A list entry is `NAME://host:port`. An IPv6 host is written in brackets. An empty host means every address where a
listener is bound, and this host's own name where it is advertised. Source: Kafka's KafkaConfig, KIP-103.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from kraft.config.errors import ConfigError


class SecurityProtocol(Enum):
    """Security protocol of a listener; the value is Kafka's code on the wire."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class ListenerConfig:
    """One listener. An empty `host` means every address; with `port` 0 the operating system picks a free port."""

    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_security_map(key: str, entries: Sequence[str]) -> dict[str, SecurityProtocol]:
    """Parse `NAME:PROTOCOL` entries into a map from listener name to protocol."""
    protocols: dict[str, SecurityProtocol] = {}
    for entry in entries:
        name, colon, protocol = entry.partition(":")
        name = name.strip().upper()
        try:
            protocols[name] = SecurityProtocol[protocol.strip().upper()]
        except KeyError:
            known = ", ".join(item.name for item in SecurityProtocol)
            raise ConfigError(key, f"{entry!r}: expected NAME:PROTOCOL with a protocol of {known}") from None
        if not colon or not name:
            raise ConfigError(key, f"{entry!r}: expected NAME:PROTOCOL")
    return protocols


def parse_listeners(
    key: str, entries: Sequence[str], protocols: Mapping[str, SecurityProtocol]
) -> tuple[ListenerConfig, ...]:
    """Parse a list of listeners, in order. ConfigError on a malformed entry, or if a name or port occurs twice."""
    listeners = tuple(_parse_listener(key, entry, protocols) for entry in entries)
    names = [listener.name for listener in listeners]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(key, f"the listener name {name} stands twice; each listener needs its own name")
    return listeners


def parse_host_port(key: str, text: str) -> tuple[str, int]:
    """Parse `host:port`; an IPv6 host may be in brackets."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(key, f"{text!r}: expected host:port with a port from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(key, f"{text!r}: an IPv6 address stands in brackets: [{host}]:{port}")
    return host, int(port)


def _parse_listener(key: str, entry: str, protocols: Mapping[str, SecurityProtocol]) -> ListenerConfig:
    name, separator, address = entry.partition("://")
    name = name.strip().upper()
    if not separator or not name:
        raise ConfigError(key, f"{entry!r}: expected NAME://host:port, for example PLAINTEXT://localhost:9092")
    if name not in protocols:
        known = ", ".join(sorted(protocols))
        raise ConfigError(
            key,
            f"no security protocol is defined for the listener {name}; add {name}:PLAINTEXT (or SSL, …) to "
            f"listener.security.protocol.map, which knows {known}",
        )
    host, port = parse_host_port(key, address)
    return ListenerConfig(name, host, port, protocols[name])
