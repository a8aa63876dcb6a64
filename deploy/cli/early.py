"""The zygote that `main` forked before anything was imported, until `kraft up` takes it."""

from __future__ import annotations

from kraft.deploy.launch.zygote_start import ZygoteStart, fork_zygote

_started: list[ZygoteStart] = []


def start_zygote_early() -> None:
    """Fork now. If nobody takes the zygote, it ends with this process."""
    _started.append(fork_zygote())


def take_zygote() -> ZygoteStart | None:
    """The zygote, to its one user; None if none was forked."""
    return _started.pop() if _started else None
