"""SystemdStatus: report a node's state to systemd, and notify its watchdog that the event loop runs.

A service of `Type=notify` is started with `NOTIFY_SOCKET`: each message is one datagram of `NAME=value` lines. With
`WatchdogSec=` it also gets `WATCHDOG_USEC`: systemd kills a process that sends no `WATCHDOG=1` for that long. Nothing
here raises or waits: a service manager that does not listen must not harm the node.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

MICROSECONDS = 1_000_000
TEXT_MAX = 400
"""Maximum number of characters in a status text, because systemd shows it in one line."""


class SystemdStatus:
    """Notifies the service manager that listens at `address`: a path, or `@` and an abstract socket name."""

    def __init__(self, address: str, watchdog_seconds: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.alive_seconds = None if watchdog_seconds is None else watchdog_seconds / 2
        """Maximum seconds between two calls of `report_alive`; None without a watchdog."""

    @staticmethod
    def of_environment(environment: Mapping[str, str]) -> SystemdStatus | None:
        """Return the notifier for the service manager that the environment names; None if it names none on this
        machine."""
        address = environment.get("NOTIFY_SOCKET", "")
        if address[:1] not in ("/", "@"):
            return None
        period = environment.get("WATCHDOG_USEC", "")
        watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        seconds = int(period) / MICROSECONDS if watched and period.isdigit() and int(period) else None
        return SystemdStatus(address, seconds)

    def report(self, **fields: object) -> None:
        """Send an event of the node, in the form that the launcher uses, as a status text. The event ready also tells
        systemd that the unit has started."""
        event = fields["event"]
        error = " ".join(str(fields.get("error", "")).split())
        status = f"STATUS={event}" + (f": {error[:TEXT_MAX]}" if error else "")
        self._send(*(("READY=1",) if event == "ready" else ()), status)

    def report_stopping(self) -> None:
        """Report that the node is stopping cleanly, as requested."""
        self._send("STOPPING=1", "STATUS=stopping")

    def report_alive(self) -> None:
        """Send the watchdog's keep-alive."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            pass  # a lost datagram needs no log line: systemd restarts a service without keep-alives
