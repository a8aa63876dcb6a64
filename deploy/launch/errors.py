"""LaunchError: the launcher cannot carry out a request. The text gives the reason and the remedy."""

from __future__ import annotations


class LaunchError(Exception):
    """The launcher cannot carry out a request. `kind` is a stable word for programs: arguments, busy, port, folder,
    no-cluster, unknown-node, not-running, not-ours, running, start, late, request, zygote."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
