"""What ends the processes that tests start, when the tests themselves are ended with `kill -9`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

_SHELL = 'while read -r line; do pids=$line; done; [ -z "$pids" ] || kill -KILL $pids'


class Leash:
    """Kills the processes that it holds once this process is gone, however it went.

    A shell reads from a pipe that only this process can write to, so that its end is this process's end. It has a
    process group of its own: what interrupts the tests does not interrupt it.
    """

    def __init__(self) -> None:
        self._shell = subprocess.Popen(["sh", "-c", _SHELL], stdin=subprocess.PIPE, text=True, process_group=0)

    def hold(self, pids: Iterable[int]) -> None:
        """These from now on, and no others: an id that is free again may be anybody's."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(" ".join(map(str, pids)) + "\n")
        self._shell.stdin.flush()

    def let_go(self) -> None:
        """They have been ended in another way; does nothing the second time."""
        if self._shell.poll() is None:
            self.hold([])
            self._shell.communicate()
