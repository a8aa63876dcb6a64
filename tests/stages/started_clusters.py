"""Local clusters for benchmarks and foreign clients: started by the `kraft` command, and always ended."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.sim.chaos.clusters.held_ports import hold_ports
from kraft.sim.chaos.hosts.leash import Leash

UP_SECONDS_MAX = 60
"""Seconds that `kraft up` waits for nodes to become ready."""
DOWN_SECONDS_MAX = 60
"""Seconds that `kraft down` may take. Nodes have 30 s to stop cleanly before they are killed."""
IN_SYNC_SECONDS_MAX = 30
KRAFT = [sys.executable, "-m", "kraft.deploy.cli"]


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A running cluster. `broker_pids` are the processes whose CPU time is counted."""

    bootstrap: str
    broker_pids: tuple[int, ...]
    folder: Path

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(host, int(port)) for host, port in (entry.split(":") for entry in self.bootstrap.split(","))]

    def cpu_seconds(self) -> float:
        """Return user and system time of all brokers so far."""
        times = [psutil.Process(pid).cpu_times() for pid in self.broker_pids]
        return sum(one.user + one.system for one in times)

    def pss_bytes(self) -> int:
        """Return the proportional set size of all brokers."""
        return sum(psutil.Process(pid).memory_full_info().pss for pid in self.broker_pids)

    def create_topic(self, name: str, *, partitions: int, replication_factor: int) -> None:
        """Create a topic and wait until every partition has a leader."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor)
        admin.create_topics([topic])[name].result(timeout=10)
        while True:
            known = admin.list_topics(topic=name, timeout=5).topics[name].partitions
            if len(known) == partitions and all(one.leader >= 0 for one in known.values()):
                return

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader of the partition; -1 if it has none."""
        known = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(topic=topic, timeout=5)
        return known.topics[topic].partitions[partition].leader

    def wait_in_sync(self, topic: str, replicas: int) -> None:
        """Wait until every partition of the topic has this many replicas in sync. Raise TimeoutError after 30 s."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        deadline = time.monotonic() + IN_SYNC_SECONDS_MAX
        while time.monotonic() < deadline:
            partitions = admin.list_topics(topic=topic, timeout=5).topics[topic].partitions
            if partitions and all(len(one.isrs) == replicas and one.leader >= 0 for one in partitions.values()):
                return
            time.sleep(0.05)
        raise TimeoutError(f"{topic} is not in sync after {IN_SYNC_SECONDS_MAX} s: {partitions}")

    @contextmanager
    def killed(self, node: int) -> Iterator[None]:
        """Kill a node, and start it again when the `with` block ends, even after an error."""
        self.kill(node)
        try:
            yield
        finally:
            self.start(node)

    def kill(self, node: int) -> None:
        """Kill a node's process with SIGKILL."""
        os.kill(int((self.folder / str(node) / "pid").read_text()), signal.SIGKILL)

    def start(self, node: int) -> None:
        subprocess.run(
            [*KRAFT, "start", str(node), "--data", str(self.folder)],
            check=True,
            timeout=UP_SECONDS_MAX,
            stdout=subprocess.DEVNULL,
        )

    def leader_address(self, topic: str, partition: int = 0) -> tuple[str, int]:
        """Return host and port of the partition's leader."""
        known = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(topic=topic, timeout=5)
        broker = known.brokers[known.topics[topic].partitions[partition].leader]
        return broker.host, broker.port


@contextmanager
def held_folder(prefix: str) -> Iterator[tuple[Path, Leash]]:
    """Create a temporary folder, and a leash that deletes it if this process is killed."""
    leash = Leash()
    try:
        folder = Path(tempfile.gettempdir()) / f"{prefix}{secrets.token_hex(8)}"
        leash.hold_folder(folder)
        folder.mkdir(mode=0o700)
        try:
            yield folder, leash
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        leash.release()


@contextmanager
def launched(shape: Iterable[str]) -> Iterator[tuple[Path, Callable[[], None]]]:
    """Yield the folder of a local cluster, and a function that starts the cluster with `kraft up --background` and
    these options. No process or file of the cluster remains after the `with` block, even if this process is killed or
    the nodes are frozen."""
    with held_folder("kraft-test-") as (folder, leash):
        down = [*KRAFT, "down", "--data", str(folder)]

        def up() -> None:
            leash.at_end(down)
            process = leash.start(
                [*KRAFT, "up", "--data", str(folder), "--background", *shape], stdout=subprocess.DEVNULL
            )
            try:
                if process.wait(UP_SECONDS_MAX):
                    raise RuntimeError(f"kraft up ended with {process.returncode}")
            finally:
                process.kill()
                process.wait()

        try:
            yield folder, up
        finally:
            subprocess.run(down, timeout=DOWN_SECONDS_MAX, stdout=subprocess.DEVNULL)


@contextmanager
def running(*, combined: int = 0, settings: Iterable[str] = ()) -> Iterator[LocalCluster]:
    """Run three controllers and three brokers, or `combined` nodes of both roles. `settings` are texts KEY=VALUE."""
    count = combined or 3
    port, ports = hold_ports(base + index for base in (0, 100) for index in range(count))
    shape = ["--port", str(port), *(["--combined", str(combined)] if combined else [])]
    shape += [word for setting in settings for word in ("--set", setting)]
    try:
        with launched(shape) as (folder, up):
            up()
            pids = tuple(int((folder / str(node) / "pid").read_text()) for node in range(1, 1 + count))
            bootstrap = ",".join(f"127.0.0.1:{port + index}" for index in range(count))
            yield LocalCluster(bootstrap, pids, folder)
    finally:
        ports.release()
