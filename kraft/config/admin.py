"""Rules for the configuration key `kraft.admin.listener`: its address, its TLS settings, and a check that other
machines cannot reach it without credentials by mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft.config.errors import ConfigError
from kraft.config.listeners import ListenerConfig, SecurityProtocol, parse_host_port
from kraft.config.tls import TlsConfig, tls_config

if TYPE_CHECKING:
    from kraft.config.node import NodeConfig

KEY = "kraft.admin.listener"
LISTENER = "ADMIN"
"""The admin listener's name in keys (`listener.name.admin.ssl.…`), logs and metrics."""


def admin_address(config: NodeConfig) -> tuple[str, int]:
    """Return the admin listener's host and port; the loopback address if the host is empty."""
    host, port = parse_host_port(KEY, config.string(KEY))
    return host or "127.0.0.1", port


def admin_tls(config: NodeConfig) -> TlsConfig | None:
    """Return the admin listener's TLS settings; None for plain HTTP."""
    if config.string("kraft.admin.security.protocol") != SecurityProtocol.SSL.name:
        return None
    return tls_config(ListenerConfig(LISTENER, *admin_address(config), SecurityProtocol.SSL), config.values)


def check_admin(config: NodeConfig) -> None:
    """Raise ConfigError if other machines could reach the admin listener without credentials and that is not allowed
    explicitly."""
    if not config.string(KEY):
        return
    tls = admin_tls(config)
    host, _ = admin_address(config)
    needs_credentials = bool(config.string("kraft.admin.token")) or (tls is not None and tls.client_auth == "required")
    if _is_loopback(host) or needs_credentials or config.boolean("kraft.admin.anonymous"):
        return
    raise ConfigError(
        KEY,
        f"{host} can be reached from other machines, and requests need no token: set kraft.admin.token (with "
        "kraft.admin.security.protocol=SSL, or it is sent in the clear), or bind 127.0.0.1, or set "
        "kraft.admin.anonymous=true where only your monitoring reaches the port",
    )


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
