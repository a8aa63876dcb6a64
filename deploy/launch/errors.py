"""LaunchError: the launcher cannot do what it was asked; the text says why and what to do next."""

from __future__ import annotations


class LaunchError(Exception):
    """`kind` is a stable word for programs: arguments, busy, port, folder, no-cluster, unknown-node,
    not-running, not-ours, running, start, late, request, zygote."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
