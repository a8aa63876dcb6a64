"""Check that host names resolve."""

from __future__ import annotations

import socket


def is_known_host(host: str) -> bool:
    """Whether this host name resolves, or is a numeric address. Blocking: it may query a name server."""
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # UnicodeError: a label of the name is empty or has more than 63 characters
        return False
    return True
