"""Dialling: a connected, non-blocking socket, or exactly how it failed (DESIGN 12 tells REFUSED from silence)."""

from __future__ import annotations

import errno
import os
import socket

import trio

from kraft.seam import Address, DialFailed, DialOutcome, Peer

_OUTCOMES = {
    errno.ECONNREFUSED: DialOutcome.REFUSED,
    errno.ECONNRESET: DialOutcome.RESET,
    errno.ECONNABORTED: DialOutcome.RESET,
    errno.EPIPE: DialOutcome.RESET,
    errno.ETIMEDOUT: DialOutcome.TIMED_OUT,
}


def outcome_of(error: OSError) -> DialOutcome:
    return _OUTCOMES.get(error.errno or 0, DialOutcome.UNREACHABLE)


async def connect(peer: Peer, address: Address) -> socket.socket:
    """Connect to the first place that answers. DialFailed with the last place's outcome."""
    outcome = DialOutcome.UNREACHABLE
    for family, place in await _resolve(address):
        try:
            return await _connect_to(family, place)
        except OSError as error:
            outcome = outcome_of(error)
    raise DialFailed(peer, outcome)


async def _resolve(address: Address) -> list[tuple[int, tuple[str, int]]]:
    """Where a name leads; an address in digits is not looked up."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, address.host)
        except OSError:
            continue
        return [(family, (address.host, address.port))]
    try:
        found = await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError:
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
