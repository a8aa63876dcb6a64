"""SystemdStatus: tell systemd how a node fares, and prove to its watchdog that the event loop turns.

A service of `Type=notify` is started with `NOTIFY_SOCKET`: each message is one datagram of `NAME=value` lines. With
`WatchdogSec=` it has `WATCHDOG_USEC` too: systemd ends a process that sends no `WATCHDOG=1` for that long. Nothing
here raises or waits: a service manager that does not listen must not harm the node.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

MICROSECONDS = 1_000_000
TEXT_MAX = 400
"""Characters of a status text; systemd shows it in one line."""


class SystemdStatus:
    """The service manager at the other end of `address`, a path or `@` and an abstract name."""

    def __init__(self, address: str, watchdog_seconds: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.alive_seconds = None if watchdog_seconds is None else watchdog_seconds / 2
        """How often `tell_alive` is due; None if no watchdog looks."""

    @staticmethod
    def of_environment(environment: Mapping[str, str]) -> SystemdStatus | None:
        """None unless systemd, on this machine, waits to be told."""
        address = environment.get("NOTIFY_SOCKET", "")
        if address[:1] not in ("/", "@"):
            return None
        period = environment.get("WATCHDOG_USEC", "")
        watched = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        seconds = int(period) / MICROSECONDS if watched and period.isdigit() and int(period) else None
        return SystemdStatus(address, seconds)

    def tell(self, **fields: object) -> None:
        """Send an event of the node, as its launcher reads it, as a status text; ready also ends the start."""
        event = fields["event"]
        error = " ".join(str(fields.get("error", "")).split())
        status = f"STATUS={event}" + (f": {error[:TEXT_MAX]}" if error else "")
        self._send(*(("READY=1",) if event == "ready" else ()), status)

    def tell_stopping(self) -> None:
        """The node has been asked to stop, and does so in order."""
        self._send("STOPPING=1", "STATUS=stopping")

    def tell_alive(self) -> None:
        """Send what the watchdog waits for."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            pass  # systemd restarts what does not tell it that it lives; a log line per datagram would help nobody
