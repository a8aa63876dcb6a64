"""Whether names of hosts lead anywhere."""

from __future__ import annotations

import socket


def is_known_host(host: str) -> bool:
    """Whether this name, or address in digits, leads somewhere. Blocking: it may ask a name server."""
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # a label that is empty or longer than 63 bytes is a UnicodeError
        return False
    return True
