"""Leash: ends processes and removes folders once the process that created the leash is gone, even after `kill -9`.

A shell reads from a pipe that only the creator of the leash can write to, so the pipe ends when the creator ends. The
shell has its own session: an interrupt from a terminal does not reach it. Invariant: a process that `start` starts is
registered with the shell before its command runs.
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
"""Shell script that reads the pipe. Each line lists everything that is to be done when the pipe ends; the last line
counts."""
_GATE = 'read -r go || exit 1; exec "$@" < /dev/null'
"""Shell script around a started command: it waits for a line on its input before it executes the command, and exits if
the parent ends first."""
_REMOVE_TRIES = 100
"""Attempts to remove a folder, 0.1 s apart: a killed process may write to it a moment longer."""
_PR_SET_PDEATHSIG = 1


class Leash:
    """Registers processes and folders that must not outlive this process; see the module. May be used by several
    threads. After `release` nothing is registered."""

    def __init__(self) -> None:
        self._shell = subprocess.Popen(["sh", "-c", _WATCH], stdin=subprocess.PIPE, text=True, start_new_session=True)
        self._pids: tuple[int, ...] = ()
        self._started: list[subprocess.Popen[Any]] = []
        self._folders: tuple[Path, ...] = ()
        self._commands: tuple[str, ...] = ()
        self._lock = threading.Lock()

    def hold(self, pids: Iterable[int]) -> None:
        """Replace the registered processes by these; processes of `start` stay registered. Call this when a process has
        ended, because another process may get its id."""
        with self._lock:
            self._pids = tuple(pids)
            self._write()

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command and register its process. `options` are those of Popen except stdin, which is empty."""
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
            process.stdin = None  # communicate() must not use the pipe
        return process

    def hold_folder(self, path: Path) -> None:
        """Register a folder, which need not exist yet. It is removed at the end, after all registered processes have
        been killed."""
        with self._lock:
            self._folders = (*self._folders, path.absolute())
            self._write()

    def at_end(self, *commands: Sequence[str]) -> None:
        """Replace the commands that run at the end, after the registered processes have been killed and before folders
        are removed."""
        with self._lock:
            self._commands = tuple(map(shlex.join, commands))
            self._write()

    def release(self) -> None:
        """Unregister everything. Does nothing on a second call."""
        with self._lock:
            if self._shell.poll() is None:
                assert self._shell.stdin is not None
                self._shell.stdin.write(":\n")
                self._shell.stdin.flush()
                self._shell.communicate()

    def _write(self) -> None:
        self._started = [process for process in self._started if process.poll() is None]
        if self._shell.poll() is not None:
            raise RuntimeError("this leash was released and holds nothing")
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
    """Run a process that outlives neither the `with` block nor this process: if it is still running at the end of
    either, it is killed."""
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
        leash.release()


def end_with_parent() -> None:
    """Make the kernel kill this process, which was forked, once the thread that forked it has ended. Linux only."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def exit_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise SystemExit in the main thread, as ctrl-C raises KeyboardInterrupt, so that `with`
    blocks end normally and release their resources. Without this the signals end Python at once, and only a leash
    cleans up. All signals after the first are ignored: `timeout` and `make` send more than one, and a second one would
    interrupt the clean-up."""

    def leave(number: int, _frame: object) -> None:
        for one in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
