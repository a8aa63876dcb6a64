"""A node tells systemd how it fares: datagrams on a real socket, of a real process."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft.deploy.launch.systemd import TEXT_MAX, SystemdStatus
from tests.deploy.systemd.single import SECONDS_MAX, properties
from tests.stages.kraft_command import Command


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket that systemd would listen on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "notify"))
        bound.settimeout(SECONDS_MAX)
        yield bound


def told(manager: socket.socket) -> dict[str, str]:
    """The next datagram."""
    return dict(line.split("=", 1) for line in manager.recv(65536).decode().splitlines())


def told_until(manager: socket.socket, name: str) -> list[dict[str, str]]:
    """The datagrams up to the first that has this name."""
    rows = [told(manager)]
    while name not in rows[-1]:
        rows.append(told(manager))
    return rows


def test_a_node_reports_start_readiness_life_and_stop_to_systemd(
    kraft: Command, manager: socket.socket, tmp_path: Path
) -> None:
    config = properties(tmp_path)
    kraft.run("storage", "format", "--config", config, "--standalone")
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    with kraft.start("node", "--config", config, environment=environment) as node:
        assert told(manager) == {"STATUS": "starting"}
        *before, ready = told_until(manager, "READY")
        assert ready == {"READY": "1", "STATUS": "ready"}
        assert all(row in ({"WATCHDOG": "1"}, {"STATUS": "starting"}) for row in before)
        assert [told(manager), told(manager)] == [{"WATCHDOG": "1"}] * 2
        node.send_signal(signal.SIGTERM)
        assert told_until(manager, "STOPPING")[-1] == {"STOPPING": "1", "STATUS": "stopping"}
        node.communicate(timeout=SECONDS_MAX)
        assert node.returncode == 0


def test_a_node_that_cannot_start_reports_why_to_systemd(
    kraft: Command, manager: socket.socket, tmp_path: Path
) -> None:
    config = properties(tmp_path)  # its folder is not formatted
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    with kraft.start("node", "--config", config, environment=environment) as node:
        assert told(manager) == {"STATUS": "starting"}
        status = told(manager)["STATUS"]
        assert status.startswith("failed: ")
        assert "format" in status
        node.communicate(timeout=SECONDS_MAX)
        assert node.returncode == 1


def test_an_error_of_many_lines_is_one_short_status_line(manager: socket.socket, tmp_path: Path) -> None:
    SystemdStatus(str(tmp_path / "notify")).tell(event="failed", error="first\nsecond " + "x" * 9999)
    status = told(manager)["STATUS"]
    assert status.startswith("failed: first second x")
    assert len(status) == len("failed: ") + TEXT_MAX


def test_an_address_with_an_at_sign_is_an_abstract_socket() -> None:
    name = f"kraft-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(f"\0{name}")
        SystemdStatus(f"@{name}").tell_alive()
        assert told(bound) == {"WATCHDOG": "1"}


def test_a_manager_that_has_gone_does_not_harm_the_node(tmp_path: Path) -> None:
    SystemdStatus(str(tmp_path / "nobody")).tell(event="ready")


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_the_watchdog_is_told_at_half_of_its_period(environment: dict[str, str], seconds: float | None) -> None:
    status = SystemdStatus.of_environment({"NOTIFY_SOCKET": "/run/notify", **environment})
    assert status is not None
    assert status.alive_seconds == seconds


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "relative"])
def test_an_address_that_is_no_socket_of_this_machine_is_not_told(address: str) -> None:
    assert SystemdStatus.of_environment({"NOTIFY_SOCKET": address}) is None
