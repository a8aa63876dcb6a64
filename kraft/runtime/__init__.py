"""Async: the real seam on trio: epoll driver, TLS, files and threads, clocks. May import kraft.seam, kraft.wire
and kraft.config.

`open_seam` gives it. Nothing is opened or seeded at import: a node is forked from a zygote that has imported this."""

from kraft.runtime.links import LinkPolicies
from kraft.runtime.open import RuntimeSettings, open_seam
from kraft.runtime.tls import ClientAuth, TlsConfigError, TlsSettings

__all__ = ["ClientAuth", "LinkPolicies", "RuntimeSettings", "TlsConfigError", "TlsSettings", "open_seam"]
