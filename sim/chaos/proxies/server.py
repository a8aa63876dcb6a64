"""A toxiproxy server as a child process, for the duration of a `with` block.

    with ToxiproxyServer(folder) as server:
        server.api.create_proxy("1-2", listen, upstream)

Invariants: no other process uses the port of its interface, not even other test processes. The process has its own
process group, so ctrl-C in a terminal does not end it before its user. If the user is killed with SIGKILL, the server
continues to run: a supervisor must end it, by `pid` or by a mark in its `environment`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from kraft.seam import Address
from kraft.sim.chaos.clusters.held_ports import HeldPorts, hold_ports
from kraft.sim.chaos.proxies.api import ToxiproxyApi
from kraft.sim.chaos.proxies.binary import Progress, toxiproxy_binary
from kraft.sim.chaos.proxies.errors import ToxiproxyError

__all__ = ["LOG_NAME", "ToxiproxyError", "ToxiproxyServer", "toxiproxy_binary"]

HOST = "127.0.0.1"
LOG_NAME = "toxiproxy.log"
START_SECONDS_MAX = 15.0
STOP_SECONDS_MAX = 3.0
"""Maximum time from SIGTERM to SIGKILL."""
LOG_LINES_SHOWN = 5
_POLL_SECONDS = 0.01


class ToxiproxyServer:
    """A toxiproxy process; see the module. `folder` must exist and receives the log file. `binary` is built or found if
    it is not given; `progress` is called with a line before each step of that. `environment` is added to this process's
    environment."""

    def __init__(
        self,
        folder: Path,
        *,
        binary: Path | None = None,
        progress: Progress | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log_path = folder / LOG_NAME
        self._environment = {**os.environ, "LOG_LEVEL": "info", **(environment or {})}
        self._binary = binary
        self._progress = progress
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: HeldPorts | None = None
        self._api: ToxiproxyApi | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the process and block until its interface answers. Raises ToxiproxyError."""
        if self._process is not None:
            raise ToxiproxyError("this toxiproxy is started already")
        binary = self._binary or toxiproxy_binary(self._progress)
        port, self._ports = hold_ports([0])
        self._api = ToxiproxyApi(Address(HOST, port))
        try:
            self._spawn(binary, port)
            self._wait_answering()
        except BaseException:
            self.stop()
            raise

    def _spawn(self, binary: Path, port: int) -> None:
        with self.log_path.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    [str(binary), "-host", HOST, "-port", str(port)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    process_group=0,
                )
            except OSError as problem:
                raise ToxiproxyError(f"toxiproxy's server {binary} cannot be started: {problem}") from problem

    def _wait_answering(self) -> None:
        """Wait until the interface answers, at most until a deadline: a server that cannot open its port keeps running
        without an interface."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                self.api.version()
                return
            except ToxiproxyError:
                self.require_running()
                if time.monotonic() > deadline:
                    raise ToxiproxyError(
                        f"toxiproxy does not answer within {START_SECONDS_MAX:g} s; {self._last_words()}"
                    ) from None
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End the process and its proxies with SIGTERM, and with SIGKILL if it does not end. Does nothing the second
        time."""
        process, self._process = self._process, None
        ports, self._ports = self._ports, None
        self._api = None
        try:
            if process is not None:
                _end(process)
        finally:
            if ports is not None:
                ports.release()

    @property
    def api(self) -> ToxiproxyApi:
        """The interface of the server. ToxiproxyError if it is not started."""
        if self._api is None:
            raise ToxiproxyError("this toxiproxy is not started: with ToxiproxyServer(folder) as server: …")
        return self._api

    @property
    def pid(self) -> int | None:
        """The process id; None before the start and after the stop."""
        return None if self._process is None else self._process.pid

    def require_running(self) -> None:
        """Raise ToxiproxyError with the end of the log if the process has ended by itself."""
        if self._process is None:
            raise ToxiproxyError("this toxiproxy is not started")
        code = self._process.poll()
        if code is not None:
            raise ToxiproxyError(f"toxiproxy (pid {self._process.pid}) ended with code {code}; {self._last_words()}")

    def _last_words(self) -> str:
        lines = self.log_path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return f"the end of {self.log_path}: {' / '.join(lines) or 'empty'}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End this child process, which may be paused, by signals."""
    try:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        process.wait()
