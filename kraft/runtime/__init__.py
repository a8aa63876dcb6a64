"""Async: the implementation of the seam on trio: epoll driver, TLS, files and threads, clocks. May import kraft.seam,
kraft.wire and kraft.config.

`open_seam` provides it. Nothing is opened or seeded at import, as a node is forked from a zygote that has imported
this. Names are loaded on first use (PEP 562): blocking clients, which need no trio, use `kraft.runtime.tls` too.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraft.runtime.links import LinkPolicies
    from kraft.runtime.open import RuntimeSettings, open_seam
    from kraft.runtime.tls import ClientAuth, TlsConfigError, TlsSettings

__all__ = ["ClientAuth", "LinkPolicies", "RuntimeSettings", "TlsConfigError", "TlsSettings", "open_seam"]

_HOME = MappingProxyType(
    {
        "ClientAuth": "tls",
        "LinkPolicies": "links",
        "RuntimeSettings": "open",
        "TlsConfigError": "tls",
        "TlsSettings": "tls",
        "open_seam": "open",
    }
)
"""Public name → the module below kraft.runtime that defines it."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
