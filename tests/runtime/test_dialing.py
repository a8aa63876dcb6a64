"""Dialing a name that has several addresses: silent, refusing and answering ones."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest
import trio

from kraft.runtime import dialing
from kraft.seam import Address, DialFailed, DialOutcome, Peer
from tests.stages.ports import hold_ports

NAME = Address("controller.example", 9093)
BACKLOG_TRIES = 64


@contextmanager
def silent_address() -> Iterator[tuple[str, int]]:
    """Provide an address that answers no connection attempt: its listener's backlog is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(BACKLOG_TRIES):
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.2)
            try:
                waiting.connect(address)
            except TimeoutError:
                break
        else:
            pytest.fail("the backlog of a listener never fills")
        yield address


@contextmanager
def listening_address() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()


def refusing_address() -> tuple[str, int]:
    (port,) = hold_ports(1)
    return ("127.0.0.1", port)


async def dial(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> tuple[str, int]:
    """Dial a name with these addresses; return the one that was reached."""

    async def resolve(address: Address) -> list[dialing.Place]:
        assert address == NAME
        await trio.lowlevel.checkpoint()
        return [(socket.AF_INET, one) for one in addresses]

    monkeypatch.setattr(dialing, "_resolve", resolve)
    with trio.fail_after(30):
        stream = await dialing.connect(Peer(1, "CONTROLLER", NAME), NAME)
    with stream:
        host, port = stream.getpeername()
    return (host, port)


def test_dial_tries_the_next_address_of_a_name_in_parallel_with_a_silent_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with silent_address() as silent, listening_address() as listening:
        assert trio.run(dial, monkeypatch, silent, listening) == listening


def test_dial_tries_the_next_address_of_a_name_after_one_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening_address() as listening:
        assert trio.run(dial, monkeypatch, refusing_address(), listening) == listening


def test_dial_uses_the_first_of_two_answering_addresses_of_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening_address() as first, listening_address() as second:
        assert trio.run(dial, monkeypatch, first, second) == first


def test_a_dial_is_refused_only_if_every_address_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DialFailed) as failure:
        trio.run(dial, monkeypatch, refusing_address(), refusing_address())
    assert failure.value.outcome is DialOutcome.REFUSED


def test_a_cancelled_dial_leaves_no_socket_open(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []

    class Recorded(socket.socket):
        def __init__(self, *arguments: int) -> None:
            super().__init__(*arguments)
            opened.append(self)

    async def cancelled(*addresses: tuple[str, int]) -> None:
        with trio.move_on_after(1) as scope:
            await dial(monkeypatch, *addresses)
        assert scope.cancelled_caught

    with silent_address() as first, silent_address() as second:
        monkeypatch.setattr(dialing, "socket", SimpleNamespace(**{**vars(socket), "socket": Recorded}))
        trio.run(cancelled, first, second)
    assert len(opened) == 2
    assert all(stream.fileno() == -1 for stream in opened)
