"""A node's notifications to systemd, as datagrams of a real process on a real socket."""

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
    """The socket on which systemd would listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "notify"))
        bound.settimeout(SECONDS_MAX)
        yield bound


def next_message(manager: socket.socket) -> dict[str, str]:
    """Return the next datagram."""
    return dict(line.split("=", 1) for line in manager.recv(65536).decode().splitlines())


def messages_until(manager: socket.socket, name: str) -> list[dict[str, str]]:
    """Return the datagrams up to the first one with this name."""
    rows = [next_message(manager)]
    while name not in rows[-1]:
        rows.append(next_message(manager))
    return rows


def test_a_node_reports_start_readiness_keep_alives_and_stop_to_systemd(
    kraft: Command, manager: socket.socket, tmp_path: Path
) -> None:
    config = properties(tmp_path)
    kraft.run("storage", "format", "--config", config, "--standalone")
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    with kraft.start("node", "--config", config, environment=environment) as node:
        assert next_message(manager) == {"STATUS": "starting"}
        *before, ready = messages_until(manager, "READY")
        assert ready == {"READY": "1", "STATUS": "ready"}
        assert all(row in ({"WATCHDOG": "1"}, {"STATUS": "starting"}) for row in before)
        assert [next_message(manager), next_message(manager)] == [{"WATCHDOG": "1"}] * 2
        node.send_signal(signal.SIGTERM)
        assert messages_until(manager, "STOPPING")[-1] == {"STOPPING": "1", "STATUS": "stopping"}
        node.communicate(timeout=SECONDS_MAX)
        assert node.returncode == 0


def test_a_node_that_cannot_start_reports_the_reason_to_systemd(
    kraft: Command, manager: socket.socket, tmp_path: Path
) -> None:
    config = properties(tmp_path)  # the node cannot start: its log directory is not formatted
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    with kraft.start("node", "--config", config, environment=environment) as node:
        assert next_message(manager) == {"STATUS": "starting"}
        status = next_message(manager)["STATUS"]
        assert status.startswith("failed: ")
        assert "format" in status
        node.communicate(timeout=SECONDS_MAX)
        assert node.returncode == 1


def test_a_multiline_error_is_one_short_systemd_status_line(manager: socket.socket, tmp_path: Path) -> None:
    SystemdStatus(str(tmp_path / "notify")).report(event="failed", error="first\nsecond " + "x" * 9999)
    status = next_message(manager)["STATUS"]
    assert status.startswith("failed: first second x")
    assert len(status) == len("failed: ") + TEXT_MAX


def test_a_notify_socket_with_an_at_sign_is_an_abstract_socket() -> None:
    name = f"kraft-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(f"\0{name}")
        SystemdStatus(f"@{name}").report_alive()
        assert next_message(bound) == {"WATCHDOG": "1"}


def test_a_missing_service_manager_does_not_harm_the_node(tmp_path: Path) -> None:
    SystemdStatus(str(tmp_path / "nobody")).report(event="ready")


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
def test_the_watchdog_is_notified_at_half_of_its_period(environment: dict[str, str], seconds: float | None) -> None:
    status = SystemdStatus.of_environment({"NOTIFY_SOCKET": "/run/notify", **environment})
    assert status is not None
    assert status.alive_seconds == seconds


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "relative"])
def test_a_notify_socket_that_is_not_local_gets_no_notifications(address: str) -> None:
    assert SystemdStatus.of_environment({"NOTIFY_SOCKET": address}) is None
