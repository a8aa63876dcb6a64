"""Leash: ends processes and removes folders once the process that holds them is gone, even after `kill -9`.

A shell reads from a pipe that only the holder can write to, so the end of the pipe is the end of the holder. The shell
has a session of its own: an interrupt from a terminal does not reach it. Invariant: a process that `start` has started
is held before its command runs.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_WATCH = "trap '' HUP INT TERM; last=:; while IFS= read -r line; do last=$line; done; eval \"$last\""
"""Each line is all that is to be done at the end; the last one counts."""
_GATE = 'read -r go || exit 1; exec "$@" < /dev/null'
"""A child waits for a line before it becomes its command, and ends if its parent is gone instead."""
_REMOVE_TRIES = 100
"""A process that was killed may write a moment longer; 0.1 s between tries."""
_PR_SET_PDEATHSIG = 1


class Leash:
    """See the module. May be used by several threads. `let_go` ends it; a leash that was let go holds nothing."""

    def __init__(self) -> None:
        self._shell = subprocess.Popen(["sh", "-c", _WATCH], stdin=subprocess.PIPE, text=True, start_new_session=True)
        self._pids: tuple[int, ...] = ()
        self._started: list[subprocess.Popen[Any]] = []
        self._folders: tuple[Path, ...] = ()
        self._commands: tuple[str, ...] = ()
        self._lock = threading.Lock()

    def hold(self, pids: Iterable[int]) -> None:
        """Hold these processes from now on, and no others than those of `start`. Another process may get the id of one
        that has ended."""
        with self._lock:
            self._pids = tuple(pids)
            self._write()

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command and hold its process; `options` are those of Popen, without stdin, which is empty."""
        with self._lock:
            process = subprocess.Popen(["sh", "-c", _GATE, "sh", *command], stdin=subprocess.PIPE, **options)
            assert process.stdin is not None
            self._started.append(process)
            self._write()
            line = "go\n" if process.text_mode else b"go\n"  # type: ignore[attr-defined]
            try:
                process.stdin.write(line)
                process.stdin.close()
            except BrokenPipeError:
                pass  # killed already
            process.stdin = None  # communicate() must not use it
        return process

    def hold_folder(self, path: Path) -> None:
        """Remove this folder, which need not exist yet, once all held processes have been killed."""
        with self._lock:
            self._folders = (*self._folders, path.absolute())
            self._write()

    def at_end(self, *commands: Sequence[str]) -> None:
        """Run these commands, and no others, after held processes have been killed and before folders are removed."""
        with self._lock:
            self._commands = tuple(map(shlex.join, commands))
            self._write()

    def let_go(self) -> None:
        """Hold nothing any more. Does nothing the second time."""
        with self._lock:
            if self._shell.poll() is None:
                assert self._shell.stdin is not None
                self._shell.stdin.write(":\n")
                self._shell.stdin.flush()
                self._shell.communicate()

    def _write(self) -> None:
        self._started = [process for process in self._started if process.poll() is None]
        if self._shell.poll() is not None:
            raise RuntimeError("this leash was let go and holds nothing any more")
        pids = [*self._pids, *(process.pid for process in self._started)]
        steps = ["kill -KILL " + " ".join(map(str, pids))] if pids else []
        steps += [f"{command} < /dev/null > /dev/null 2>&1" for command in self._commands]
        if self._folders:
            folders = shlex.join(map(str, self._folders))
            tries = " ".join(map(str, range(_REMOVE_TRIES)))
            steps.append(f"for try in {tries}; do rm -rf -- {folders} 2> /dev/null && break; sleep 0.1; done")
        line = "; ".join(steps) or ":"
        if "\n" in line:
            raise ValueError(f"a leash holds no path or command with a line break: {line!r}")
        assert self._shell.stdin is not None
        self._shell.stdin.write(line + "\n")
        self._shell.stdin.flush()


@contextmanager
def leashed(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that does not outlive the block, nor this process: where it still runs at the end, it is killed."""
    leash = Leash()
    try:
        process = leash.start(command, **options)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
            if process.stderr is not None:
                process.stderr.close()
    finally:
        leash.let_go()


def end_with_parent() -> None:
    """Have the kernel kill this process, a fork, once the thread that forked it has ended. Linux only."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def exit_on_signals() -> None:
    """Let SIGTERM and SIGHUP raise SystemExit in the main thread, as ctrl-C raises KeyboardInterrupt: blocks are left,
    and what they hold is ended. Without this they end Python at once, and a leash does the rest. All after the first
    are ignored: `timeout` and `make` send more than one, and one within the clean-up would end that."""

    def leave(number: int, _frame: object) -> None:
        for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
