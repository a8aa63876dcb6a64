"""ProcessClock: the wall clock of one node's process, which libfaketime moves while the process runs.

    clock = ProcessClock(node_folder, warden)              # CannotMoveClock names what is missing
    clock.open()
    NodeCommand(environment=clock.environment).write(node_folder)        # from its next start on
    clock.set_offset_ms(5_000)                          # takes effect when the node next reads its clock

The library sits between the process and the system's clock. The monotonic clock, and with it every timeout, is
unchanged, as on a host whose time is stepped. File times are unchanged too. `FaultClient.wall_ms` asks the node for its
time; `measure_offset_ms` compares that with the clock of the calling process, which is the evidence. Python's
time.sleep fails in such a process (EINVAL); nodes wait in other ways.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from kraft.deploy.launch.fault_client import FaultClient
from kraft.sim.chaos.hosts.warden import HeldResource, Warden

LIBRARIES = ("libfaketimeMT.so.1", "libfaketime.so.1")
"""File names of libfaketime's builds, in order of preference: the first is the build for processes with threads."""
FOLDERS = ("usr/lib/*/faketime", "usr/lib/faketime", "usr/lib64/faketime", "usr/local/lib/faketime")
OFFSET_FILE = "faketime"
SHARED = Path("/dev/shm")
SHARED_BYTES = 4096


class CannotMoveClock(Exception):
    """A process cannot have its own clock on this machine; the text says what to install."""


class ProcessClock:
    """Movable wall clock of a node's process; see the module. `folder` is the node's folder."""

    def __init__(self, folder: Path, warden: Warden) -> None:
        self._library = find_library()
        self._file = folder / OFFSET_FILE
        self._name = f"kraft-chaos-{secrets.token_hex(6)}"
        self._warden = warden
        self._held: list[HeldResource] = []
        self._offset_ms = 0

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which the node must be started."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",  # the same for older releases
            "NO_FAKE_STAT": "1",
            "FAKETIME_SHARED": f"/{self._name}.lock /{self._name}",
        }

    @property
    def offset_ms(self) -> int:
        """How far the node's clock is set ahead (negative: behind)."""
        return self._offset_ms

    def open(self) -> None:
        """Create the library's semaphore and shared memory before the node starts. The library would create its own per
        process, and a killed process would leave those behind. These are created and removed here."""
        self._held = [self._warden.file(path) for path in self._shared_files]
        libc = ctypes.CDLL(None, use_errno=True)
        libc.sem_open.restype = ctypes.c_void_p
        if not libc.sem_open(f"/{self._name}.lock".encode(), os.O_CREAT | os.O_EXCL, 0o600, 1):
            raise CannotMoveClock(f"cannot make a semaphore below {SHARED}: {os.strerror(ctypes.get_errno())}")
        self._shared_files[1].write_bytes(bytes(SHARED_BYTES))
        self.set_offset_ms(0)

    def set_offset_ms(self, offset_ms: int) -> None:
        """Set the node's clock this far ahead of the system's from now on, also after a restart."""
        draft = self._file.with_name(OFFSET_FILE + ".tmp")
        draft.write_text(f"{offset_ms / 1000:+.3f}\n")
        draft.replace(self._file)
        self._offset_ms = offset_ms

    def close(self) -> None:
        """Remove the semaphore and the shared memory that `open` created. The node must have ended."""
        for path in (*self._shared_files, self._file):
            with suppress(FileNotFoundError):
                path.unlink()
        for resource in self._held:
            self._warden.release(resource)
        self._held = []

    @property
    def _shared_files(self) -> tuple[Path, Path]:
        return SHARED / f"sem.{self._name}.lock", SHARED / self._name


def find_library(root: Path = Path("/")) -> Path:
    """Return the path of libfaketime below a root folder. Raises CannotMoveClock."""
    for folder in FOLDERS:
        for name in LIBRARIES:
            found = sorted(root.glob(f"{folder}/{name}"))
            if found:
                return found[0]
    raise CannotMoveClock(
        f"libfaketime is not installed (looked in {', '.join('/' + folder for folder in FOLDERS)}): "
        "apt-get install libfaketime"
    )


def can_move_clocks() -> str:
    """Return "" if processes can have their own clocks, otherwise the reason why not."""
    try:
        find_library()
    except CannotMoveClock as problem:
        return str(problem)
    return ""


def measure_offset_ms(node: FaultClient) -> int:
    """Return how far a running node's clock is ahead of this process's clock, accurate to a few ms. LaunchError if the
    node does not answer."""
    before_ns = time.time_ns()
    theirs_ms = node.wall_ms()
    after_ns = time.time_ns()
    return theirs_ms - (before_ns + after_ns) // 2_000_000
