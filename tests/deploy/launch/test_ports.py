"""Ports of a local cluster: the reason why a port cannot be used, and the choice of free ports."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from kraft.deploy.launch import ports
from kraft.deploy.launch.errors import LaunchError
from kraft.deploy.launch.layout import ClusterLayout
from kraft.deploy.launch.ports import choose_port, is_free, require_free


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "port 80: this user may not listen on it, as on most ports below 1024; choose a higher --port"),
        (errno.EADDRINUSE, "port 80 is taken; stop that process or choose another --port"),
        (errno.EADDRNOTAVAIL, "port 80: cannot listen on 127.0.0.1 (Cannot assign requested address); choose another"),
    ],
)
def test_a_port_that_cannot_be_used_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    monkeypatch.setattr(ports, "_bind_failure", lambda port: OSError(number, os.strerror(number)))
    monkeypatch.setattr(ports, "owner_of", lambda port: None)
    with pytest.raises(LaunchError) as refused:
        require_free([80])
    assert str(refused.value).startswith(said)


def test_a_port_without_permission_to_listen_is_not_reported_as_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: socket.socket, address: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(LaunchError, match="may not listen"):
        require_free([80])


def test_automatically_chosen_ports_are_free_for_every_listener() -> None:
    layout = choose_port(ClusterLayout(controllers=3, brokers=3))
    chosen = [port for node in layout.nodes() for port in node.ports]
    assert len(set(chosen)) == 6
    assert all(is_free(port) for port in chosen)


def test_no_free_ports_raises_an_error_that_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(LaunchError, match=r"no free ports .* give --port"):
        choose_port(ClusterLayout())
