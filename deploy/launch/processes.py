"""ProcessIdentity: a process by number and start time, so that a signal never reaches another process with a reused
number.

On Linux the start time comes from /proc, in clock ticks since boot; elsewhere from `ps`, in seconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from kraft.deploy.launch.errors import LaunchError

_HAS_PROC = os.path.exists("/proc/self/stat")
_PF_EXITING = 0x4


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identity of a process. `started` is an opaque text that differs between two processes with the same number."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        """Whether this process is still running, and not another one with the same number. False for a zombie."""
        return start_time(self.pid) == self.started

    @property
    def is_stopped(self) -> bool:
        """Whether the process is paused by SIGSTOP."""
        fields = _stat(self.pid)
        return fields is not None and fields[0] in "Tt" and self.is_alive

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to this process, but never to another one with the same number. Return whether it was running.
        Raise LaunchError if it belongs to another user."""
        if not self.is_alive:
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:
            raise LaunchError(
                "not-ours",
                f"process {self.pid} belongs to another user: {number.name} must come from that user or root",
            ) from None
        return True


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a running process; None if no such process is running."""
    started = start_time(pid)
    return None if started is None else ProcessIdentity(pid, started)


def start_time(pid: int) -> str | None:
    """Return the start time of a process; None if it is a zombie or does not exist."""
    if not _HAS_PROC:
        answer = subprocess.run(
            ["ps", "-o", "lstart=,stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        text = answer.stdout.strip()
        return None if not text or text.split()[-1].startswith("Z") else text.rpartition(" ")[0]
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else fields[19]


def is_dying(pid: int) -> bool:
    """Whether this process is about to end: a zombie, exiting, or with a SIGKILL pending."""
    fields = _stat(pid)
    if fields is None:
        return start_time(pid) is None
    return fields[0] in "ZX" or bool(int(fields[6]) & _PF_EXITING) or _kill_is_pending(pid)


def write_identity(folder: Path, identity: ProcessIdentity) -> None:
    """Record a node's process in the node's folder: `pid` for people and scripts, `process.json` for the launcher."""
    with _locked(folder):
        _replace(folder / "process.json", json.dumps(asdict(identity)))
        _replace(folder / "pid", f"{identity.pid}\n")


def read_identity(folder: Path) -> ProcessIdentity | None:
    """Return the identity of the process recorded in this folder, running or not; None if there is no valid record."""
    return read_identity_file(folder / "process.json")


def read_identity_file(path: Path) -> ProcessIdentity | None:
    """Return the identity in one record file; None as for `read_identity`."""
    try:
        noted = json.loads(path.read_text())
        return ProcessIdentity(int(noted["pid"]), str(noted["started"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def clear_identity(folder: Path, ended: ProcessIdentity) -> bool:
    """Delete the record of a process that has ended. Return False, and keep the record, if it is of another process: a
    second launcher may already have started the node again."""
    with _locked(folder):
        if read_identity(folder) != ended:
            return False
        (folder / "pid").unlink(missing_ok=True)
        (folder / "process.json").unlink(missing_ok=True)
        return True


def describe_exit(status: int) -> str:
    """Return a description of an exit status of os.waitpid in words."""
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.WEXITSTATUS(status)}"


def _kill_is_pending(pid: int) -> bool:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    masks = (int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:")))
    return any(mask & (1 << (signal.SIGKILL - 1)) for mask in masks)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat, from the field `state` on."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a node's folder, under which the record of its process is changed."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    temporary.replace(path)
