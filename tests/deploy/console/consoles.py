"""A console as a process, and HTTP requests to it as a browser would send them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlencode, urlsplit

from kraft.deploy.launch.control import LocalCluster
from kraft.deploy.launch.folder import ClusterFolder
from kraft.deploy.launch.layout import ClusterLayout, new_cluster_id
from tests.stages.kraft_command import Command, free_port

WAIT_SECONDS_MAX = 30


@dataclass(frozen=True, slots=True)
class Console:
    """Address of a running console."""

    url: str

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the text of a page."""
        return self._ask("GET", path)

    def page(self, path: str) -> str:
        """Return the text of a page that must exist."""
        status, text = self.get(path)
        assert status == 200, f"{path}: {status}\n{text}"
        return text

    def post(self, path: str, **form: str) -> tuple[int, str]:
        """Send a form as a page of this console would. Return the status, and the target of the redirect or the text of
        the error."""
        found = re.search(r'name="token" value="([^"]+)"', self.page("/topics"))
        token = found.group(1) if found else ""
        body = urlencode({**form, "token": token})
        headers = {"content-type": "application/x-www-form-urlencoded", "origin": self.url.rstrip("/")}
        return self._ask("POST", path, body, headers)

    def wait(self, path: str, holds: Callable[[str], bool]) -> str:
        """Wait until the page's text satisfies the condition, and return the text. Raise AssertionError after 30 s."""
        deadline = monotonic() + WAIT_SECONDS_MAX
        while monotonic() < deadline:
            text = self.page(path)
            if holds(text):
                return text
            sleep(0.05)
        raise AssertionError(f"{path} after {WAIT_SECONDS_MAX} s:\n{text}")

    def first_event(self) -> dict[str, object]:
        """Return the first server-sent event."""
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=WAIT_SECONDS_MAX)
        connection.request("GET", "/events")
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        try:
            while not (line := answer.readline().decode()).startswith("data: "):
                pass
            found: dict[str, object] = json.loads(line.removeprefix("data: "))
            return found
        finally:
            connection.close()

    def _ask(self, method: str, path: str, body: str = "", headers: dict[str, str] | None = None) -> tuple[int, str]:
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=WAIT_SECONDS_MAX)
        try:
            connection.request(method, path, body=body or None, headers=headers or {})
            answer = connection.getresponse()
            text = answer.read().decode()
            return answer.status, answer.headers.get("location") or text
        finally:
            connection.close()


@contextmanager
def cluster_running(path: Path, *, brokers: int) -> Iterator[LocalCluster]:
    """Run one controller and this number of brokers, with fault control. Their folder is below `path`."""
    shape = ClusterLayout(controllers=1, brokers=brokers)
    layout = ClusterLayout(controllers=1, brokers=brokers, port=free_port(shape), fault_control=True)
    cluster = LocalCluster.up(ClusterFolder(path / f"data{os.getpid()}"), layout, new_cluster_id(), is_remembered=False)
    try:
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.down()


@contextmanager
def console_running(kraft: Command, bootstrap: str, *options: str) -> Iterator[Console]:
    """Run `kraft console` for this cluster at a free port. If the console ends, raise AssertionError with its
    output."""
    with kraft.start("console", "-b", bootstrap, "--port", "0", "--json", *options) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        try:
            yield Console(told["url"])
        finally:
            if process.poll() is not None:
                raise AssertionError(f"the console ended with {process.returncode}: {process.communicate()[1]}")
