"""Dialling: return a connected, non-blocking socket, or exactly how the dial failed.

Failure detection distinguishes a refused connection from silence. Source: docs/decisions/05-fast-fencing.md.
"""

from __future__ import annotations

import errno
import os
import socket
from types import MappingProxyType

import trio

from kraft.seam import Address, DialFailed, DialOutcome, Peer

_OUTCOMES = MappingProxyType(
    {
        errno.ECONNREFUSED: DialOutcome.REFUSED,
        errno.ECONNRESET: DialOutcome.RESET,
        errno.ECONNABORTED: DialOutcome.RESET,
        errno.EPIPE: DialOutcome.RESET,
        errno.ETIMEDOUT: DialOutcome.TIMED_OUT,
    }
)

_LEAST_CERTAIN_FIRST = (DialOutcome.TIMED_OUT, DialOutcome.UNREACHABLE, DialOutcome.RESET, DialOutcome.REFUSED)
_NOT_FROM_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH)
"""This host has no such address family or no route: it says nothing about the other places of a name."""

PORT_MAX = 65_535


def outcome_of(error: OSError) -> DialOutcome:
    return _OUTCOMES.get(error.errno or 0, DialOutcome.UNREACHABLE)


async def connect(peer: Peer, address: Address) -> socket.socket:
    """Connect to the first place that answers. DialFailed with the least certain outcome of all places: REFUSED only if
    every place that this host can reach at all has refused."""
    outcomes = []
    places = await _resolve(address)
    if not places:
        raise DialFailed(peer, DialOutcome.UNREACHABLE, "the address leads nowhere")
    for family, place in places:
        try:
            return await _connect_to(family, place)
        except OSError as error:
            if error.errno not in _NOT_FROM_HERE:
                outcomes.append(outcome_of(error))
    raise DialFailed(peer, min(outcomes, key=_LEAST_CERTAIN_FIRST.index, default=DialOutcome.UNREACHABLE))


async def _resolve(address: Address) -> list[tuple[int, tuple[str, int]]]:
    """Where a name leads; an address in digits is not looked up, and neither is localhost. What can be no name, or no
    port, leads nowhere: peers tell each other addresses, and a bad one must not end who dials it."""
    if not 0 <= address.port <= PORT_MAX:
        return []
    if address.host == "localhost":
        return [(socket.AF_INET, ("127.0.0.1", address.port)), (socket.AF_INET6, ("::1", address.port))]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, address.host)
        except (OSError, ValueError):
            continue
        return [(family, (address.host, address.port))]
    try:
        found = await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return []
    return [(int(family), (str(place[0]), int(place[1]))) for family, _, _, _, place in found]


async def _connect_to(family: int, place: tuple[str, int]) -> socket.socket:
    stream = socket.socket(family, socket.SOCK_STREAM)
    try:
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = stream.connect_ex(place)
        if code == errno.EINPROGRESS:
            await trio.lowlevel.wait_writable(stream)
            code = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        else:
            await trio.lowlevel.checkpoint()
        if code == 0 and stream.getsockname() == stream.getpeername():
            code = errno.ECONNREFUSED  # nobody listens: the kernel connected the socket to itself
        if code:
            raise OSError(code, os.strerror(code))
    except BaseException:
        stream.close()
        raise
    return stream
