"""Two ways to start a zygote: fork this process at once, or run a new interpreter.

The `kraft` command forks before it imports anything, so that the zygote imports the modules of nodes while the command
parses its arguments. A program with threads, such as a test run, must use a new interpreter.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ZygoteStart:
    """A zygote without a folder: it is still importing, or waits for its first line on `connection`. It ends when
    `connection` is closed."""

    connection: socket.socket
    pid: int
    wait: Callable[[], None]

    def abandon(self) -> None:
        """End a zygote that was not given a folder."""
        self.connection.close()
        self.wait()


def fork_zygote() -> ZygoteStart:
    """Fork a zygote from this process, which must have only one thread. Return its handle."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ours.close()
            _close_inherited(theirs.fileno())
            from kraft.deploy.launch.zygote import zygote_main

            code = zygote_main(theirs)
        finally:
            os._exit(code)
    theirs.close()

    def wait() -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)

    return ZygoteStart(ours, pid, wait)


def _close_inherited(kept: int) -> None:
    """Close inherited descriptors. A cluster outlives the command that has started it, and must not keep that command's
    files (such as a lock or a pipe) open."""
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))


def spawn_zygote() -> ZygoteStart:
    """Start a zygote in a new interpreter. Return its handle."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "kraft.deploy.launch.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def wait() -> None:
        process.wait()

    return ZygoteStart(ours, process.pid, wait)
