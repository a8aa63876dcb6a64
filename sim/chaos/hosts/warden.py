"""Warden: a small process that cleans up after a run, however the run ends, including kill -9.

    with Warden() as warden:
        warden.folder(path)                      # before anything is in it
        sleeper = subprocess.Popen(["sleep", "600"], env={**os.environ, **warden.environment})
        held = warden.process(sleeper.pid)
        …
        warden.release(held)                     # it has ended in another way
    assert not warden.leftovers

The process reads one JSON line per registered resource from a pipe that only the runner can write to. The end of the
pipe is the end of the runner. Then it kills the processes and their children, unmounts, deletes namespaces and links,
and removes files and folders, in this order. It has its own session: ctrl-C in the terminal does not reach it.

Invariant: only resources that are provably the run's are touched. A process is identified by its start time, or by a
random mark in the environment that it was started with. The mark also covers the moment before the registration.
Anything else must not exist when it is registered (a folder may, if it is empty), so register it first and create it
then.

A process that is forked without exec holds the pipe as well; the forking code must close it there (`Warden.fileno`).
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
"""How long `close` waits for the clean-up, which takes well below a second unless something hangs in the kernel."""
MARK = "KRAFT_CHAOS_RUN"
"""The variable in the environment of a run's processes; its value is random."""
NETWORK_NAMES = Path("/sys/class/net")
NAMESPACES = Path("/run/netns")


class WardenError(Exception):
    """A resource cannot be registered: it is not provably the run's, or the cleanup process (warden) has ended. The
    text says which."""


@dataclass(frozen=True, slots=True)
class HeldResource:
    """A resource that the cleanup process (warden) removes after the run. `kind` is process, mark, folder, mount,
    namespace, link or file. `proof` is a process's start time, or device and inode of a folder that existed; it must be
    unchanged at the clean-up."""

    kind: str
    name: str
    proof: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Warden:
    """Client of a cleanup process, used by the run; see the module. Methods that register a resource return it, for
    `release`. They raise WardenError if they cannot register it."""

    def __init__(self) -> None:
        # A folder that contains only the package, so that the cleanup process starts quickly, without the site's
        # packages.
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
        self._hold(HeldResource("mark", f"{MARK}={self._mark}"))

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the environment of the run's processes: at the end the cleanup process kills every process that
        has them."""
        return {MARK: self._mark}

    @property
    def pid(self) -> int:
        """The process id of the cleanup process."""
        return self._process.pid

    @property
    def leftovers(self) -> tuple[str, ...]:
        """Descriptions of what could not be cleaned up; () before `close`."""
        return self._left or ()

    def fileno(self) -> int:
        """Return the file descriptor of the pipe's writing end."""
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def process(self, pid: int) -> HeldResource:
        """Register this process: it and all its descendants are killed at the end."""
        identity = identify(pid)
        if identity is None:
            raise WardenError(f"process {pid} does not run: register it while it does")
        return self._hold(HeldResource("process", str(pid), identity.started))

    def folder(self, path: str | os.PathLike[str]) -> HeldResource:
        """Register this folder, which is empty or does not exist yet: at the end of the run it is removed with all that
        is in it."""
        where = _own_path(path)
        proof = ""
        if where.is_symlink() or (where.exists() and not where.is_dir()):
            raise WardenError(f"{where} is not a folder")
        if where.exists():
            if any(where.iterdir()):
                raise WardenError(f"the folder {where} is not empty: register it before anything is in it")
            state = where.stat()
            proof = f"{state.st_dev}:{state.st_ino}"
        return self._hold(HeldResource("folder", str(where), proof))

    def file(self, path: str | os.PathLike[str]) -> HeldResource:
        """Register this file, which does not exist yet: it is removed at the end of the run."""
        where = _own_path(path)
        if where.exists() or where.is_symlink():
            raise WardenError(f"the file {where} exists already: register it before it is created")
        return self._hold(HeldResource("file", str(where)))

    def mount(self, path: str | os.PathLike[str]) -> HeldResource:
        """Register this path, at which nothing is mounted yet: what is mounted there later is unmounted at the end of
        the run."""
        where = _own_path(path)
        if os.path.ismount(where):
            raise WardenError(f"something is mounted at {where} already: register it before it is mounted")
        return self._hold(HeldResource("mount", str(where)))

    def namespace(self, name: str) -> HeldResource:
        """Register the network namespace of this name, which does not exist yet: at the end of the run it is deleted,
        and the processes in it are killed."""
        _require_name(name)
        if (NAMESPACES / name).exists():
            raise WardenError(f"the network namespace {name} exists already: register it before it is created")
        return self._hold(HeldResource("namespace", name))

    def link(self, name: str) -> HeldResource:
        """Register the network link (a bridge, an end of a veth pair) of this name, which does not exist yet: it is
        deleted at the end of the run."""
        _require_name(name)
        if (NETWORK_NAMES / name).exists():
            raise WardenError(f"the network link {name} exists already: register it before it is created")
        return self._hold(HeldResource("link", name))

    def release(self, resource: HeldResource) -> None:
        """Unregister this resource: it is gone already, or is to stay. Does nothing after `close`."""
        if self._left is None:
            self._send("release", resource)

    def close(self) -> tuple[str, ...]:
        """Clean up all registered resources, wait until that is done, and describe what could not be cleaned up."""
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

    def _hold(self, resource: HeldResource) -> HeldResource:
        self._send("hold", resource)
        return resource

    def _send(self, verb: str, resource: HeldResource) -> None:
        if self._left is not None:
            raise WardenError("the warden is closed")
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), json.dumps({"verb": verb, **asdict(resource)}).encode() + b"\n")
        except BrokenPipeError:
            raise WardenError(f"the warden (pid {self.pid}) has ended; nothing would clean up {resource}") from None


def _own_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path without symbolic links above it. WardenError if no run can have created it."""
    given = Path(os.path.abspath(path))
    where = given.parent.resolve() / given.name
    kept = {Path.home().resolve(), Path.cwd(), Path(sys.executable).resolve(), Path(kraft.__file__).resolve()}
    if len(where.parts) < 3 or any(item.is_relative_to(where) for item in kept):
        raise WardenError(f"{where} is not a run's own: a run's paths are below a folder that it has created")
    return where


def _require_name(name: str) -> None:
    if not name or len(name) > 15 or not name.isalnum():
        raise WardenError(f"{name!r} names no network link: 1 to 15 letters and digits")
