"""A distributed cluster of Kafka Connect's workers, and its REST interface.

Source: Kafka's ConnectDistributed; KIP-618; KIP-875.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from kraft.sim.chaos.clusters.held_ports import hold_ports
from tests.interop.connect.jvm import KafkaProgram, wait_for

GROUP = "connect"
CONFIGS, OFFSETS, STATUSES = "connect-configs", "connect-offsets", "connect-statuses"
INTERNAL_TOPICS = {CONFIGS: 1, OFFSETS: 3, STATUSES: 2}
"""Topics that the workers make for themselves, and their partitions."""
SESSION_MS = 6_000
"""Session timeout of a worker: its tasks move to other workers after it is killed or paused for this time."""
REQUEST_SECONDS_MAX = 90
"""Seconds that a request may take. Connect itself gives up after 90 s."""
READY_SECONDS_MAX = 120
HTTP_CONFLICT = 409
"""Status of a request that arrives during a rebalance; Connect's documentation asks for a retry."""
HTTP_NOT_FOUND = 404
"""Status of a connector that a worker does not know yet."""
HTTP_UNAVAILABLE_MIN = 500
"""Least status of requests that fail while the leader of the workers changes."""


class NotReadyError(OSError):
    """The workers cannot answer at the moment."""


def settings(bootstrap: str, port: int) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": GROUP,
        "listeners": f"http://127.0.0.1:{port}",
        "exactly.once.source.support": "enabled",
        "config.storage.topic": CONFIGS,
        "offset.storage.topic": OFFSETS,
        "offset.storage.partitions": INTERNAL_TOPICS[OFFSETS],
        "status.storage.topic": STATUSES,
        "status.storage.partitions": INTERNAL_TOPICS[STATUSES],
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "consumer.isolation.level": "read_committed",
        "offset.flush.interval.ms": 1_000,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 1_000,
        "rebalance.timeout.ms": 15_000,
        "scheduled.rebalance.max.delay.ms": 0,
        "metadata.max.age.ms": 2_000,
        "consumer.metadata.max.age.ms": 2_000,
        "plugin.discovery": "service_load",
    }


class Workers:
    """The workers by number, from 0. Requests go to the first worker that runs and is not paused."""

    def __init__(self, programs: Sequence[KafkaProgram], ports: Sequence[int]) -> None:
        self.programs = programs
        self._ports = ports
        self._silent: set[int] = set()

    def start(self, number: int) -> None:
        self.programs[number].start()
        self._silent.discard(number)

    def kill(self, number: int) -> None:
        self.programs[number].kill()
        self._silent.add(number)

    def pause(self, number: int) -> None:
        self.programs[number].pause()
        self._silent.add(number)

    def resume(self, number: int) -> None:
        self.programs[number].resume()
        self._silent.discard(number)

    def wait_ready(self) -> None:
        """Wait until the workers answer requests."""
        self.wait_for("the workers answer", lambda: self.request("GET", "/connectors") is not None, READY_SECONDS_MAX)

    def wait_for(self, what: str, is_so: Callable[[], bool], seconds: float) -> None:
        wait_for(what, is_so, seconds, self.programs)

    def request(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Send a request and return the decoded answer. Raise NotReadyError if it is to be sent again, HTTPError if
        the workers refuse it, OSError if a worker does not answer."""
        port = next(port for number, port in enumerate(self._ports) if number not in self._silent)
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_SECONDS_MAX) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            said = error.read().decode()
            if error.code in (HTTP_CONFLICT, HTTP_NOT_FOUND) or error.code >= HTTP_UNAVAILABLE_MIN:
                raise NotReadyError(f"{error.code}: {said}") from None
            raise AssertionError(f"{method} {path}: {error.code}: {said}") from None
        return json.loads(text) if text else {}

    def configure(self, name: str, config: Mapping[str, object]) -> None:
        """Create a connector, or replace its configuration."""

        texts = {key: str(value) for key, value in config.items()}

        def is_accepted() -> bool:
            answer = self.request("PUT", f"/connectors/{name}/config", texts)
            return bool(answer["name"] == name)

        self.wait_for(f"the workers accept {name}", is_accepted, READY_SECONDS_MAX)

    def tasks(self, name: str) -> dict[int, int]:
        """Return for each running task the number of its worker. Raise AssertionError if a task has failed."""
        status = self.request("GET", f"/connectors/{name}/status")
        for task in status["tasks"]:
            assert task["state"] != "FAILED", task
        return {
            task["id"]: self._ports.index(int(task["worker_id"].rsplit(":", 1)[1]))
            for task in status["tasks"]
            if task["state"] == "RUNNING"
        }

    def wait_tasks(self, name: str, count: int) -> None:
        self.wait_for(f"{name} has {count} running tasks", lambda: len(self.tasks(name)) == count, READY_SECONDS_MAX)

    def offsets(self, name: str) -> dict[str, Any]:
        """Return the stored offset of each source partition; keys are JSON."""
        answer = self.request("GET", f"/connectors/{name}/offsets")
        return {json.dumps(entry["partition"]): entry["offset"] for entry in answer["offsets"]}


@contextmanager
def workers_running(bootstrap: str, folder: Path, count: int = 2) -> Iterator[Workers]:
    """Start workers, and kill them at the end."""
    first, held = hold_ports(range(count))
    ports = range(first, first + count)
    try:
        with ExitStack() as stack:
            programs = [
                stack.enter_context(
                    KafkaProgram(
                        "org.apache.kafka.connect.cli.ConnectDistributed",
                        settings(bootstrap, port),
                        folder / f"worker-{port - first}",
                    )
                )
                for port in ports
            ]
            for program in programs:
                program.start()
            workers = Workers(programs, ports)
            workers.wait_ready()
            yield workers
    finally:
        held.release()
