"""Helpers: a folder and ports for a local cluster, and the kraft command as a child process."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

import pytest

from kraft.deploy.cli.app import run
from kraft.deploy.launch.layout import ClusterLayout
from tests.stages.ports import hold_block


def free_port(layout: ClusterLayout) -> int:
    """Return a free port for broker 1 of a layout of this shape. This port and all others of the layout are held for
    the test module."""
    return hold_block(port - layout.port for node in layout.nodes() for port in node.ports)


HEARD_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Command:
    """The `kraft` command with its own state folder. It is called in this process, which is quick, or as a child
    process."""

    state: Path

    def run(self, *arguments: str | Path, text: str = "", code: int = 0) -> str:
        """Run the command, which must end with exit code `code`. Return its standard output if `code` is 0, otherwise
        its standard error."""
        printed, said = self._run(*arguments, text=text, code=code)
        return said if code else printed

    def both(self, *arguments: str | Path) -> tuple[str, str]:
        """Run the command, which must succeed, and return its standard output and standard error."""
        return self._run(*arguments, text="", code=0)

    def printed(self, *arguments: str | Path, text: str = "", code: int) -> str:
        """Run the command, which must fail with this exit code, and return its standard output."""
        return self._run(*arguments, text=text, code=code)[0]

    def _run(self, *arguments: str | Path, text: str, code: int) -> tuple[str, str]:
        out, error = _stream(), _stream()
        home = mock.patch.dict(os.environ, {"XDG_STATE_HOME": str(self.state)})
        given = mock.patch.object(sys, "stdin", _stream(text))
        with home, given, redirect_stdout(out), redirect_stderr(error), pytest.raises(SystemExit) as ended:
            run([str(word) for word in arguments])
        printed, said = _text(out), _text(error)
        assert ended.value.code == code, f"{arguments}: {ended.value.code}\n{printed}{said}"
        return printed, said

    def spawn(self, *arguments: str | Path, code: int = 0) -> str:
        """Run the command in a child process."""
        command = [sys.executable, "-m", "kraft.deploy.cli", *map(str, arguments)]
        environment = {**os.environ, "XDG_STATE_HOME": str(self.state)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=90)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stderr if code else done.stdout

    @contextmanager
    def start(
        self, *arguments: str | Path, environment: Mapping[str, str] | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """Start the command as a child process, which ends when the context ends."""
        command = [sys.executable, "-m", "kraft.deploy.cli", *map(str, arguments)]
        variables = {**os.environ, "XDG_STATE_HOME": str(self.state), **(environment or {})}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=variables)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    @contextmanager
    def watch(self, *arguments: str | Path, environment: Mapping[str, str] | None = None) -> Iterator[TextIO]:
        """Return the output of a process that `spawn` has started."""
        with self.start(*arguments, environment=environment) as process:
            assert process.stdout is not None
            yield process.stdout

    def json(self, *arguments: str | Path, text: str = "") -> Any:
        """Run the command with --json, and return the JSON value that it prints."""
        return json.loads(self.run(*arguments, "--json", text=text))

    def json_when(self, is_due: Callable[[Any], object], *arguments: str | Path) -> Any:
        """Run the command until its JSON value satisfies the condition, and return that value. One run may not be
        enough, because each broker reports the metadata that it has received, as in Kafka."""
        deadline = time.monotonic() + HEARD_SECONDS_MAX
        while not is_due(found := self.json(*arguments)):
            assert time.monotonic() < deadline, found
        return found


def _stream(text: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
