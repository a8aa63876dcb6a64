"""The zygote that `main` forks before it imports anything. This module keeps the zygote until `kraft up` uses it."""

from __future__ import annotations

from kraft.deploy.launch.zygote_start import ZygoteStart, fork_zygote

_started: list[ZygoteStart] = []


def start_zygote_early() -> None:
    """Fork the zygote now. If no command takes the zygote, it ends with this process."""
    _started.append(fork_zygote())


def take_zygote() -> ZygoteStart | None:
    """Return the zygote that was forked early; None if none was forked, or an earlier call has returned it."""
    return _started.pop() if _started else None
