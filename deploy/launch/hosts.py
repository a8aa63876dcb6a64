"""Whether names of hosts lead anywhere."""

from __future__ import annotations

import socket


def is_known_host(host: str) -> bool:
    """Whether this name, or address in digits, leads somewhere. Blocking: it may ask a name server."""
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # UnicodeError: a part of the name is empty or has more than 63 characters
        return False
    return True
