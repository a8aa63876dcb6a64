"""Invalid listeners of the real network: the error names the listener and the problem of its address."""

from __future__ import annotations

import errno
import socket

import pytest

from kraft.runtime.listening import bind
from kraft.seam import Address, Binding

BACKLOG = 1


@pytest.mark.parametrize("host", ["a..b", "x" * 70])
def test_a_listener_with_an_invalid_host_name_is_an_error_with_listener_and_host(host: str) -> None:
    with pytest.raises(OSError, match=rf"^listener CLIENTS: cannot look up the host {host}"):
        bind(Binding("CLIENTS", Address(host, 0)), BACKLOG)


def test_a_listener_with_an_unknown_host_is_an_error_with_listener_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    expected = r"^listener CLIENTS: cannot look up the host nobody\.example \(Name or service not known\)$"
    with pytest.raises(OSError, match=expected):
        bind(Binding("CLIENTS", Address("nobody.example", 0)), BACKLOG)


def test_a_listener_with_another_machines_address_is_an_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, place: object) -> None:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(OSError, match=r"^listener CLIENTS: 192\.0\.2\.1:9092: Cannot assign requested address$"):
        bind(Binding("CLIENTS", Address("192.0.2.1", 9092)), BACKLOG)
