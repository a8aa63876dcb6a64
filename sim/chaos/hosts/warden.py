"""Warden: a small process that cleans up after a run, whatever ends the run: also kill -9.

    with Warden() as warden:
        warden.folder(path)                      # before anything is in it
        sleeper = subprocess.Popen(["sleep", "600"], env={**os.environ, **warden.environment})
        held = warden.process(sleeper.pid)
        …
        warden.release(held)                     # it has ended in another way
    assert not warden.left

The process reads one JSON line per thing from a pipe that only the runner can write to. The end of the pipe is the end
of the runner. Then it kills the processes and their children, unmounts, deletes namespaces and links, and removes
files and folders, in this order. It has a session of its own: ctrl-C in the terminal does not reach it.

Invariant: only what is provably the run's is touched. A process is known by its start time, or by a random mark in the
environment that it was started with, which also covers the moment before it is registered. Anything else must not exist
when it is registered (a folder may, if it is empty), so register it first and make it then.

A process that is forked without exec holds the pipe as well; whoever forks must close it (`Warden.fileno`).
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import kraft
from kraft.deploy.launch.processes import identify

CLOSE_SECONDS_MAX = 60.0
"""How long `close` waits for the cleaning; it takes well below a second unless something hangs in the kernel."""
MARK = "KRAFT_CHAOS_RUN"
"""The variable in the environment of a run's processes; its value is random."""
NETWORK_NAMES = Path("/sys/class/net")
NAMESPACES = Path("/run/netns")


class WardenError(Exception):
    """Something cannot be registered: it is not provably the run's, or the warden has ended. The text says which."""


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that the warden cleans. `kind` is process, mark, folder, mount, namespace, link or file. `proof` is a
    process's start time, or device and inode of a folder that existed; it must be the same then."""

    kind: str
    name: str
    proof: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Warden:
    """See the module. Methods that register give the thing, for `release`; WardenError if they cannot."""

    def __init__(self) -> None:
        # A folder with the package in it, so that the warden starts quickly: without the site's packages.
        environment = {
            "PYTHONPATH": str(Path(kraft.__file__).parent.parent),
            "PATH": os.environ.get("PATH", os.defpath),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-m", "kraft.sim.chaos.hosts.warden_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
        self._left: tuple[str, ...] | None = None
        self._mark = secrets.token_hex(16)
        self._hold(Thing("mark", f"{MARK}={self._mark}"))

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the environment of the run's processes: those that have them are killed in the end."""
        return {MARK: self._mark}

    @property
    def pid(self) -> int:
        """The warden's own process id."""
        return self._process.pid

    @property
    def left(self) -> tuple[str, ...]:
        """What could not be cleaned, in words; () before `close`."""
        return self._left or ()

    def fileno(self) -> int:
        """The writing end of the pipe."""
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def process(self, pid: int) -> Thing:
        """Kill this process, and all processes below it, in the end."""
        identity = identify(pid)
        if identity is None:
            raise WardenError(f"process {pid} does not run: register it while it does")
        return self._hold(Thing("process", str(pid), identity.started))

    def folder(self, path: str | os.PathLike[str]) -> Thing:
        """Remove this folder, which is empty or not there yet, and all that will be in it."""
        where = _own_path(path)
        proof = ""
        if where.is_symlink() or (where.exists() and not where.is_dir()):
            raise WardenError(f"{where} is not a folder")
        if where.exists():
            if any(where.iterdir()):
                raise WardenError(f"the folder {where} is not empty: register it before anything is in it")
            state = where.stat()
            proof = f"{state.st_dev}:{state.st_ino}"
        return self._hold(Thing("folder", str(where), proof))

    def file(self, path: str | os.PathLike[str]) -> Thing:
        """Remove this file, which does not exist yet."""
        where = _own_path(path)
        if where.exists() or where.is_symlink():
            raise WardenError(f"the file {where} exists already: register it before it is made")
        return self._hold(Thing("file", str(where)))

    def mount(self, path: str | os.PathLike[str]) -> Thing:
        """Unmount what will be mounted at this path, at which nothing is mounted yet."""
        where = _own_path(path)
        if os.path.ismount(where):
            raise WardenError(f"something is mounted at {where} already: register it before it is mounted")
        return self._hold(Thing("mount", str(where)))

    def namespace(self, name: str) -> Thing:
        """Delete the network namespace of this name, which does not exist yet, and end the processes in it."""
        _require_name(name)
        if (NAMESPACES / name).exists():
            raise WardenError(f"the network namespace {name} exists already: register it before it is made")
        return self._hold(Thing("namespace", name))

    def link(self, name: str) -> Thing:
        """Delete the network link (a bridge, an end of a veth pair) of this name, which does not exist yet."""
        _require_name(name)
        if (NETWORK_NAMES / name).exists():
            raise WardenError(f"the network link {name} exists already: register it before it is made")
        return self._hold(Thing("link", name))

    def release(self, thing: Thing) -> None:
        """Leave this thing alone: it is gone already, or is to stay. Nothing once the warden is closed."""
        if self._left is None:
            self._tell("release", thing)

    def close(self) -> tuple[str, ...]:
        """Clean all that is registered, and wait until that is done. Gives what could not be cleaned, in words."""
        if self._left is None:
            try:
                with suppress(BrokenPipeError):
                    printed, _ = self._process.communicate(timeout=CLOSE_SECONDS_MAX)
                self._left = tuple(json.loads(printed))
            except (subprocess.TimeoutExpired, ValueError, UnboundLocalError):
                self._left = (f"the warden (pid {self.pid}) did not report what it has cleaned",)
        return self._left

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _hold(self, thing: Thing) -> Thing:
        self._tell("hold", thing)
        return thing

    def _tell(self, verb: str, thing: Thing) -> None:
        if self._left is not None:
            raise WardenError("the warden is closed")
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), json.dumps({"verb": verb, **asdict(thing)}).encode() + b"\n")
        except BrokenPipeError:
            raise WardenError(f"the warden (pid {self.pid}) has ended; nothing would clean up {thing}") from None


def _own_path(path: str | os.PathLike[str]) -> Path:
    """The path from the root without symbolic links above it. WardenError if no run can have made it."""
    given = Path(os.path.abspath(path))
    where = given.parent.resolve() / given.name
    kept = {Path.home().resolve(), Path.cwd(), Path(sys.executable).resolve(), Path(kraft.__file__).resolve()}
    if len(where.parts) < 3 or any(item.is_relative_to(where) for item in kept):
        raise WardenError(f"{where} is not a run's own: a run's paths are below a folder that it has made")
    return where


def _require_name(name: str) -> None:
    if not name or len(name) > 15 or not name.isalnum():
        raise WardenError(f"{name!r} names no network link: 1 to 15 letters and digits")
