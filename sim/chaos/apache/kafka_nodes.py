"""KafkaNodes: the processes of an Apache Kafka cluster in one folder. Each node has a folder with its `pid`, its
properties and its log, as a node that `kraft up` starts has.

Invariant: no process outlives the process that started it, however the starting process ends; see
`kraft.sim.chaos.hosts.leash`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kraft.deploy.launch.processes import identify
from kraft.sim.chaos.apache.kafka_files import BROKER_HEAP, CONTROLLER_HEAP, NODE_JVM, QUICK_JVM, java
from kraft.sim.chaos.apache.kafka_layout import KafkaLayout, uuid
from kraft.sim.chaos.hosts.leash import Leash
from kraft.sim.shapes import ClusterError

FORMAT_SECONDS_MAX = 60
END_SECONDS_MAX = 15
PAUSE_SECONDS_MAX = 5.0
LOG_BYTES_SHOWN = 1_500
LOG = "server.log"
_POLL_SECONDS = 0.005


class KafkaNodes:
    """Processes of an Apache Kafka cluster; see the module. `jvm` are Java options used instead of those in Kafka's
    start scripts. `leash` is the process that ends the nodes if this process is killed; a caller that passes one must
    release it. Methods raise ClusterError if a node cannot do what is requested."""

    def __init__(
        self,
        folder: Path,
        layout: KafkaLayout,
        settings: Mapping[str, str],
        *,
        libraries: Path,
        jvm: Sequence[str] = (),
        leash: Leash | None = None,
    ) -> None:
        self.folder = folder
        self.layout = layout
        self._settings = settings
        self._libraries = libraries
        self._jvm = jvm
        self._processes: dict[int, subprocess.Popen[Any]] = {}
        self._leash = leash or Leash()
        self._owns_leash = leash is None

    def format(self) -> None:
        """Write every node's properties and format its folder; as many nodes in parallel as there are processors."""
        cluster_id = uuid()
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda node: self._format(node, cluster_id), self.layout.nodes))

    def _format(self, node: int, cluster_id: str) -> None:
        folder = self.folder / str(node)
        folder.mkdir()
        values = {**self.layout.properties(node, self.folder), **self._settings}
        (folder / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        command = java(self._libraries, QUICK_JVM, "kafka.tools.StorageTool", "format", "-t", cluster_id)
        command += ["-c", str(folder / "server.properties")]
        if node in self.layout.controllers:
            command += ["--initial-controllers", self.layout.initial_controllers]
        process = self._leash.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, process_group=0)
        try:
            said = process.communicate(timeout=FORMAT_SECONDS_MAX)[0].decode(errors="replace")
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            raise ClusterError(f"Apache Kafka did not format the folder of node {node}: {said[-LOG_BYTES_SHOWN:]}")

    def start(self, node: int) -> None:
        """Start or restart one node; does not wait until it serves."""
        if node in self._processes:
            self.wait_ended(node)
        folder = self.folder / str(node)
        heap = BROKER_HEAP if node in self.layout.brokers else CONTROLLER_HEAP
        options = self._jvm or (f"-Xms{heap}", f"-Xmx{heap}", *NODE_JVM)
        command = java(self._libraries, options, "kafka.Kafka", "server.properties")
        with (folder / LOG).open("ab") as log:
            process = self._leash.start(command, cwd=folder, stdout=log, stderr=log, process_group=0)
        self._processes[node] = process
        (folder / "pid").write_text(str(process.pid))

    def start_all(self) -> None:
        """Start every node, controllers first."""
        for node in self.layout.nodes:
            self.start(node)

    def kill(self, node: int) -> None:
        """End a node's process with SIGKILL, and wait until the process is gone."""
        self._process(node).kill()
        self.wait_ended(node)

    def ask_to_stop(self, node: int) -> None:
        """Send SIGTERM, on which Kafka shuts down cleanly; a paused node is resumed for that."""
        self._process(node).send_signal(signal.SIGCONT)
        self._process(node).send_signal(signal.SIGTERM)

    def wait_ended(self, node: int, timeout_s: float = END_SECONDS_MAX) -> None:
        """Block until a node's process is gone."""
        try:
            self._processes[node].wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ClusterError(f"node {node} has not ended within {timeout_s:g} s; {self.hint(node)}") from None

    def pause(self, node: int) -> None:
        """Send SIGSTOP, and wait until the process is stopped."""
        self._process(node).send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + PAUSE_SECONDS_MAX
        while not self.is_paused(node):
            if time.monotonic() > deadline:
                raise ClusterError(f"node {node} still runs {PAUSE_SECONDS_MAX:g} s after SIGSTOP")
            time.sleep(_POLL_SECONDS)

    def resume(self, node: int) -> None:
        """Send SIGCONT."""
        self._process(node).send_signal(signal.SIGCONT)

    def is_running(self, node: int) -> bool:
        """Return whether the node has a process; a paused node has one."""
        return node in self._processes and self._processes[node].poll() is None

    def is_paused(self, node: int) -> bool:
        """Return whether the node's process is frozen by SIGSTOP."""
        identity = identify(self._processes[node].pid) if self.is_running(node) else None
        return identity is not None and identity.is_stopped

    def exit_code(self, node: int) -> int | None:
        """Exit code of the node's last process, negative for a signal. None if it is running or was never started."""
        return self._processes[node].poll() if node in self._processes else None

    def pid(self, node: int) -> int | None:
        """The process id of a node; None if it is not running."""
        return self._processes[node].pid if self.is_running(node) else None

    def close(self) -> None:
        """Send SIGKILL to all nodes, because nothing in their folders is kept. Does nothing to nodes that have
        ended."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        if self._owns_leash:
            self._leash.release()

    def require_alive(self) -> None:
        """Raise ClusterError with the end of its log if a node has ended."""
        for node, process in self._processes.items():
            if process.poll() is not None:
                raise ClusterError(f"Apache Kafka's node {node} ended with {process.returncode}: {self.logged(node)}")

    def logged(self, node: int) -> str:
        """Return the last lines of a node's log."""
        log = self.folder / str(node) / LOG
        return log.read_text(errors="replace")[-LOG_BYTES_SHOWN:] if log.exists() else ""

    def hint(self, node: int) -> str:
        """Return a sentence for error texts that names the log to read."""
        return f"see the end of {self.folder / str(node) / LOG}"

    def _process(self, node: int) -> subprocess.Popen[Any]:
        if not self.is_running(node):
            raise ClusterError(f"node {node} does not run")
        return self._processes[node]
