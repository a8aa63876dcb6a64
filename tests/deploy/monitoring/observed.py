"""A real cluster scraped by a real Prometheus, with this project's rules on shortened intervals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout
from tests.deploy.monitoring.expressions import MONITORING, RULES
from tests.stages.kraft_command import Command, free_port
from tests.stages.ports import hold_ports

SECONDS_MAX = 90
SHAPE = ClusterLayout(controllers=3, brokers=3)
CONFIGURATION = MONITORING / "prometheus.yml"


def tool(variable: str) -> str:
    """Return the path of a program from this environment variable, which a script of deploy/check sets."""
    path = os.environ.get(variable, "")
    if not path:
        pytest.skip(f"{variable} does not name the program: run deploy/check/monitoring.sh")
    return path


def wait_until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    """Wait for a condition. After SECONDS_MAX, raise AssertionError with `what`."""
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


def quick(text: str) -> str:
    """Shorten the intervals of a configuration: a scrape every half second, and rules over seconds instead of
    minutes."""
    for pattern, quicker in ((r"for: \w+", "for: 1s"), (r"_interval: \w+", "_interval: 500ms"), (r"\[\d+m\]", "[10s]")):
        text = re.sub(pattern, quicker, text)
    return text


@dataclass(frozen=True, slots=True)
class Observed:
    """A running cluster, the port of its Prometheus, and the port of broker 1."""

    kraft: Command
    home: Path
    port: int
    broker_port: int = 0

    @property
    def folder(self) -> ClusterFolder:
        return ClusterFolder(self.home / "data")

    def scrape_all(self) -> None:
        """Let Prometheus scrape each running node at its current address."""
        addresses = [self.folder.admin_address(node.node_id) for node in SHAPE.nodes()]
        draft = self.home / "targets.tmp"
        draft.write_text(json.dumps([{"targets": [address for address in addresses if address]}]))
        (self.home / "targets").mkdir(exist_ok=True)
        draft.replace(self.home / "targets" / "local.yml")

    def ask(self, path: str, **query: str) -> Any:
        """Send a request to Prometheus, and return the data of its response."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # Prometheus is still starting
                raise
            raise AssertionError(f"{path} {query}: {error.read().decode()}") from None

    def has_started(self) -> bool:
        try:
            self.ask("status/buildinfo")
        except OSError:
            return False
        return True

    def samples(self, expression: str) -> list[dict[str, Any]]:
        return list(self.ask("query", query=expression)["result"])

    def firing(self) -> set[str]:
        """Return the names of firing alerts."""
        return {one["labels"]["alertname"] for one in self.ask("alerts")["alerts"] if one["state"] == "firing"}

    def wait_firing(self, *alerts: str) -> None:
        wait_until(lambda: set(alerts) <= self.firing(), lambda: f"firing: {self.firing()}, expected {alerts}")

    def wait_ended(self, *alerts: str) -> None:
        wait_until(lambda: not set(alerts) & self.firing(), lambda: f"firing: {self.firing()}, some of {alerts} still")

    def wait_quiet(self) -> None:
        """Wait until no alert fires."""
        wait_until(lambda: self.firing() == set(), lambda: f"firing: {self.firing()}")

    def restart(self, *nodes: int) -> None:
        """Restart nodes, and let Prometheus scrape them at their new addresses."""
        for node in nodes:
            self.kraft.run("start", str(node))
        self.scrape_all()

    def pid(self, node: int) -> int:
        rows = self.kraft.json("status", "--data", self.home / "data")
        return int(next(row["pid"] for row in rows["nodes"] if row["node"] == node))

    def active_controller(self) -> int:
        return int(self.kraft.json("quorum")["leader"])


@contextmanager
def observed(home: Path, *settings: str, options: Sequence[str] = (), jobs: str = "") -> Iterator[Observed]:
    """Run three controllers, three brokers and a Prometheus that scrapes them. `options` are options of `kraft up`, and
    `jobs` are further jobs of Prometheus."""
    program = tool("PROMETHEUS")
    kraft = Command(home / "state")
    port = free_port(SHAPE)
    given = [word for setting in ("broker.session.timeout.ms=3000", *settings) for word in ("--set", setting)]
    kraft.spawn("up", "--data", home / "data", "--port", str(port), "--background", *options, *given)
    try:
        (own_port,) = hold_ports(1)
        one = Observed(kraft, home, own_port, port)
        one.scrape_all()
        (home / "prometheus.yml").write_text(quick(CONFIGURATION.read_text()) + jobs)
        (home / "alerts.yml").write_text(quick(RULES.read_text()))
        with prometheus(program, home, own_port) as process:
            wait_until(lambda: _is_up(one), lambda: (process.poll(), (home / "log").read_text()[-2000:]))
            yield one
    finally:
        kraft.run("down", "--data", home / "data")


def _is_up(one: Observed) -> bool:
    try:
        return len(one.samples('up{job="kafka"} == 1')) == len(SHAPE.nodes())
    except OSError:
        return False


@contextmanager
def prometheus(program: str, home: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run Prometheus with the prometheus.yml in this folder, until the context ends."""
    command = [program, f"--config.file={home / 'prometheus.yml'}", f"--storage.tsdb.path={home / 'series'}"]
    with (home / "log").open("wb") as log:
        address = f"--web.listen-address=127.0.0.1:{port}"
        process = subprocess.Popen([*command, address], stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(SECONDS_MAX)
