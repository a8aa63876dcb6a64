"""Listeners of the real network that cannot be: the error names the listener and what is wrong with its address."""

from __future__ import annotations

import errno
import socket

import pytest

from kraft.runtime.listening import bind
from kraft.seam import Address, Binding

BACKLOG = 1


@pytest.mark.parametrize("host", ["a..b", "x" * 70])
def test_a_listener_whose_host_can_be_no_name_is_an_error_that_names_both(host: str) -> None:
    with pytest.raises(OSError, match=rf"^listener CLIENTS: cannot look up the host {host}"):
        bind(Binding("CLIENTS", Address(host, 0)), BACKLOG)


def test_a_listener_whose_host_is_unknown_is_an_error_that_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    expected = r"^listener CLIENTS: cannot look up the host nobody\.example \(Name or service not known\)$"
    with pytest.raises(OSError, match=expected):
        bind(Binding("CLIENTS", Address("nobody.example", 0)), BACKLOG)


def test_an_address_of_another_machine_is_an_error_that_names_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, place: object) -> None:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(OSError, match=r"^listener CLIENTS: 192\.0\.2\.1:9092: Cannot assign requested address$"):
        bind(Binding("CLIENTS", Address("192.0.2.1", 9092)), BACKLOG)
