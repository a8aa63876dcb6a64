"""Tools for tests: run the command `kraft chaos` as a process, and find resources that remain after its end."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

SECONDS_MAX = 100
POLL_SECONDS = 0.02
MARK = "KRAFT_TEST_MARK"
"""Environment variable that marks the command and every process that it starts."""


@dataclass(slots=True)
class Chaos:
    """Runs `kraft chaos` with temporary files, a home folder and run folders below one folder of a test."""

    folder: Path
    mark: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def temporary(self) -> Path:
        return self.folder / "t"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def environment(self) -> Mapping[str, str]:
        self.temporary.mkdir(exist_ok=True)
        own = {"TMPDIR": str(self.temporary), "XDG_STATE_HOME": str(self.folder / "state"), MARK: self.mark}
        inherited = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
        return {**inherited, **own}

    def words(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "kraft.deploy.cli", "chaos", *map(str, arguments)]

    def scenario(self, text: str, name: str = "short") -> Path:
        """Write a scenario file with this text."""
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        return path

    def run(self, *arguments: str | Path, code: int = 0) -> str:
        """Run the command, which must end with exit code `code`. Return its output; for exit code 2, its standard
        error."""
        done = subprocess.run(
            self.words(*arguments), capture_output=True, text=True, env=self.environment, timeout=SECONDS_MAX
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stderr if code == 2 else done.stdout

    @contextmanager
    def start(self, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
        """Start the command. It is killed at the end of the `with` block if it is still running."""
        process = subprocess.Popen(
            self.words("run", *arguments[:1], "--out", self.runs, *arguments[1:]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def verdict(self, folder: Path | None = None) -> dict[str, object]:
        """Read verdict.json in a run's folder. Without a named folder there must be only one run."""
        chosen = folder or next(self.runs.glob("*/verdict.json")).parent
        found: dict[str, object] = json.loads((chosen / "verdict.json").read_text())
        return found


@dataclass(slots=True)
class Left:
    """The resources that a command creates: they are recorded while it runs, and searched for afterwards."""

    chaos: Chaos
    _processes: set[psutil.Process] = field(default_factory=set)
    _memory: set[str] = field(default_factory=set)

    def note(self, pid: int) -> int:
        """Record the resources that exist now; return the number of processes."""
        command = psutil.Process(pid)
        self._processes |= {command, *command.children(recursive=True)}
        for path in self.chaos.temporary.glob("kraft-cluster-*/*/exec.json"):
            shared = json.loads(path.read_text())["environment"].get("FAKETIME_SHARED", "").split()
            self._memory |= {name.removeprefix("/") for name in shared}
        return len(self._processes)

    @property
    def shared_memory(self) -> list[str]:
        """Names in /dev/shm that belong to the recorded clocks."""
        return [name for name in os.listdir("/dev/shm") if name.removeprefix("sem.") in self._memory]

    def mounts(self) -> list[str]:
        return [line for line in Path("/proc/mounts").read_text().splitlines() if str(self.chaos.folder) in line]

    def found(self) -> list[str]:
        """Return a description of each recorded resource that still exists."""
        alive = {one for one in self._processes if one.is_running()} | set(_started_by(self.chaos))
        left = [f"process {_described(one)}" for one in alive]
        left += [f"port {port}" for one in alive for port in _ports(one)]
        left += [f"mount {line}" for line in self.mounts()]
        left += [f"shared memory {name}" for name in self.shared_memory]
        left += [f"file {path}" for path in self.chaos.temporary.rglob("*") if not _is_users(path, self.chaos)]
        return left

    def wait_nothing(self) -> None:
        """Wait until no recorded resource exists. On timeout the AssertionError names the remaining resources."""
        deadline = time.monotonic() + SECONDS_MAX / 2
        while (found := self.found()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        assert found == []


def _is_users(path: Path, chaos: Chaos) -> bool:
    """Return whether this is the folder for sockets that all clusters of a user share."""
    return path.name == f"kraft-{os.getuid()}" and path.parent == chaos.temporary


def _started_by(chaos: Chaos) -> Iterator[psutil.Process]:
    """Return whether the command started this process. The process has the mark in its environment, or, like a node,
    the test's folder in its command line."""
    mark = f"{MARK}={chaos.mark}".encode()
    for one in psutil.process_iter():
        try:
            is_marked = mark in Path(f"/proc/{one.pid}/environ").read_bytes()
            if is_marked or any(str(chaos.folder) in word for word in one.cmdline()):
                yield one
        except (OSError, psutil.Error):
            continue


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {process.status()} {' '.join(process.cmdline())}"
    except psutil.Error:
        return f"{process.pid}"


def _ports(process: psutil.Process) -> list[int]:
    try:
        return [one.laddr.port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    except psutil.Error:
        return []


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(POLL_SECONDS)


def read_until(process: subprocess.Popen[str], *texts: str) -> str:
    """Read a command's output until each of these texts has appeared."""
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if all(text in printed for text in texts):
            return printed
    raise AssertionError(f"it ended, and did not print {texts}:\n{printed}")
