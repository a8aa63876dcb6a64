"""NodeClock: the wall clock of one node's process is moved, by libfaketime, while it runs.

    clock = NodeClock(node_folder, warden)              # CannotMoveClock names what is missing
    clock.open()
    NodeCommand(environment=clock.environment).write(node_folder)        # from its next start on
    clock.set_offset_ms(5_000)                          # takes effect with the node's next look at its clock

The library stands between the process and the system's clock. The monotonic clock, and with it every timeout, is left
alone, as on a host whose time is stepped. So are the times of files. `FaultClient.wall_ms` asks the node what it
believes; `measure_offset_ms` compares that with our own clock, which is the evidence. Python's time.sleep fails in such
a process (EINVAL); nodes wait in other ways.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from kraft.deploy.launch.fault_client import FaultClient
from kraft.sim.chaos.hosts.warden import Thing, Warden

LIBRARIES = ("libfaketimeMT.so.1", "libfaketime.so.1")
"""In order: the first one is for processes with threads."""
FOLDERS = ("usr/lib/*/faketime", "usr/lib/faketime", "usr/lib64/faketime", "usr/local/lib/faketime")
OFFSET_FILE = "faketime"
SHARED = Path("/dev/shm")
SHARED_BYTES = 4096


class CannotMoveClock(Exception):
    """A process cannot be given a clock of its own here; the text says what to install."""


class NodeClock:
    """See the module. `folder` is the node's."""

    def __init__(self, folder: Path, warden: Warden) -> None:
        self._library = find_library()
        self._file = folder / OFFSET_FILE
        self._name = f"kraft-chaos-{secrets.token_hex(6)}"
        self._warden = warden
        self._held: list[Thing] = []
        self._offset_ms = 0

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which the node is to be started."""
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
        """How far the node's clock is to be ahead (negative: behind)."""
        return self._offset_ms

    def open(self) -> None:
        """Make what the library needs, before the node starts. It would make its own semaphore and shared memory per
        process, and a killed process leaves those behind; these are made and removed here."""
        self._held = [self._warden.file(path) for path in self._shared_files]
        libc = ctypes.CDLL(None, use_errno=True)
        libc.sem_open.restype = ctypes.c_void_p
        if not libc.sem_open(f"/{self._name}.lock".encode(), os.O_CREAT | os.O_EXCL, 0o600, 1):
            raise CannotMoveClock(f"cannot make a semaphore below {SHARED}: {os.strerror(ctypes.get_errno())}")
        self._shared_files[1].write_bytes(bytes(SHARED_BYTES))
        self.set_offset_ms(0)

    def set_offset_ms(self, offset_ms: int) -> None:
        """Let the node's clock be so far ahead of the system's from now on, also when it is started again."""
        draft = self._file.with_name(OFFSET_FILE + ".tmp")
        draft.write_text(f"{offset_ms / 1000:+.3f}\n")
        draft.replace(self._file)
        self._offset_ms = offset_ms

    def close(self) -> None:
        """Remove what was made; the node must have ended."""
        for path in (*self._shared_files, self._file):
            with suppress(FileNotFoundError):
                path.unlink()
        for thing in self._held:
            self._warden.release(thing)
        self._held = []

    @property
    def _shared_files(self) -> tuple[Path, Path]:
        return SHARED / f"sem.{self._name}.lock", SHARED / self._name


def find_library(root: Path = Path("/")) -> Path:
    """Where libfaketime is below a root folder. CannotMoveClock."""
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
    """ "" if processes can be given clocks of their own, else why not."""
    try:
        find_library()
    except CannotMoveClock as problem:
        return str(problem)
    return ""


def measure_offset_ms(node: FaultClient) -> int:
    """How far a running node's clock is ahead of ours, to a few ms. LaunchError if the node does not answer."""
    before_ns = time.time_ns()
    theirs_ms = node.wall_ms()
    after_ns = time.time_ns()
    return theirs_ms - (before_ns + after_ns) // 2_000_000
