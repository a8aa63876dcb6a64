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
"""Errors of this host: it has no such address family, or no route. They do not show whether the other addresses of a
name can be reached."""

PORT_MAX = 65_535

NEXT_ADDRESS_SECONDS = 0.25
"""Seconds that an address of a host name may stay silent before the next address is tried as well (RFC 8305, Connection
Attempt Delay)."""

Place = tuple[int, tuple[str, int]]
"""Address to connect to: address family, and host and port in digits."""


def outcome_of(error: OSError) -> DialOutcome:
    return _OUTCOMES.get(error.errno or 0, DialOutcome.UNREACHABLE)


async def connect(peer: Peer, address: Address) -> socket.socket:
    """Connect to the first address that answers.

    A silent address delays the next one only a little, so a name may also have addresses of machines that are gone.
    Raises DialFailed with the least certain outcome of all addresses: REFUSED only if every address that this host can
    reach at all has refused."""
    places = await _resolve(address)
    if not places:
        raise DialFailed(peer, DialOutcome.UNREACHABLE, "the address leads nowhere")
    outcomes: list[DialOutcome] = []
    connected: list[socket.socket] = []
    try:
        async with trio.open_nursery() as nursery:
            for place in places:
                failed = trio.Event()
                nursery.start_soon(_attempt, place, outcomes, connected, failed, nursery.cancel_scope)
                if place is not places[-1]:
                    with trio.move_on_after(NEXT_ADDRESS_SECONDS):
                        await failed.wait()
    except BaseException:
        for stream in connected:
            stream.close()
        raise
    if connected:
        return connected[0]
    raise DialFailed(peer, min(outcomes, key=_LEAST_CERTAIN_FIRST.index, default=DialOutcome.UNREACHABLE))


async def _attempt(
    place: Place,
    outcomes: list[DialOutcome],
    connected: list[socket.socket],
    failed: trio.Event,
    attempts: trio.CancelScope,
) -> None:
    """Connect to one address of a name. The first attempt that succeeds ends the other attempts."""
    try:
        stream = await _connect_to(*place)
    except OSError as error:
        if error.errno not in _NOT_FROM_HERE:
            outcomes.append(outcome_of(error))
        failed.set()
        return
    if connected:
        stream.close()
    else:
        connected.append(stream)
        attempts.cancel()


async def _resolve(address: Address) -> list[Place]:
    """Resolve a host name; a numeric address is not looked up, and neither is localhost.

    An invalid name or port resolves to no address. Peers report addresses to each other, and a bad one must not stop
    the node that dials it."""
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
            code = errno.ECONNREFUSED  # no process listens: the kernel connected the socket to itself
        if code:
            raise OSError(code, os.strerror(code))
    except BaseException:
        stream.close()
        raise
    return stream
