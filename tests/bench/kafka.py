"""Apache Kafka to measure beside ours: the same shapes of cluster, from the files that its project publishes.

`tests/interop/kafka.sh install` brings the files. Java options and heaps are those of Kafka's own start scripts;
settings are Kafka's defaults but for listeners, folders, the replication of internal topics, and what the caller sets.
"""

from __future__ import annotations

import base64
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.clusters import LocalCluster
from tests.leash import Leash

SCRIPT = Path(__file__).parents[1] / "interop" / "kafka.sh"
LOGGING = SCRIPT.parent / "kafka" / "log4j2.properties"
UP_SECONDS_MAX = 120
END_SECONDS_MAX = 15
PROBE: dict[str, str | int] = {"log_level": 0, "reconnect.backoff.max.ms": 100}
"""For librdkafka, which else waits up to ten seconds before it tries a broker again that is not up yet."""
FIRST_CONTROLLER = 101
BROKER_HEAP, CONTROLLER_HEAP = "1G", "512M"
NODE_JVM = (
    *("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
)
TOOL_JVM = ("-Xmx512M", "-XX:+UseG1GC")
QUICK_JVM = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def installed() -> Path:
    """The folder of Kafka's files, fetched if they are not here yet."""
    missing = [command for command in ("java", "mvn") if shutil.which(command) is None]
    if missing:
        raise RuntimeError(
            f"Apache Kafka needs {' and '.join(missing)}: tests/interop/tools.sh installs what is missing"
        )
    found = subprocess.run([SCRIPT, "install"], check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    return Path(found.stdout.strip()) / "libs"


def java(libraries: Path, options: Iterable[str], *words: str) -> list[str]:
    """The command that runs one of Kafka's classes."""
    return ["java", *options, f"-Dlog4j2.configurationFile={LOGGING}", "-cp", f"{libraries}/*", *words]


@dataclass(frozen=True, slots=True)
class Shape:
    """Nodes by id with their ports, and which of them are controllers."""

    brokers: dict[int, int]
    controllers: dict[int, int]
    directory_ids: dict[int, str]
    racks: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, port: int, *, is_single: bool) -> Shape:
        brokers = {1: port} if is_single else {index + 1: port + index for index in range(3)}
        controllers = (
            {1: port + 100} if is_single else {FIRST_CONTROLLER + index: port + 100 + index for index in range(3)}
        )
        return cls(brokers, controllers, {node: uuid() for node in controllers})

    @classmethod
    def of_racks(cls, port: int, racks: Sequence[str]) -> Shape:
        """Nodes of both roles, one in each rack."""
        nodes = {index + 1: rack for index, rack in enumerate(racks)}
        brokers = {node: port + node - 1 for node in nodes}
        controllers = {node: port + 100 + node - 1 for node in nodes}
        return cls(brokers, controllers, {node: uuid() for node in nodes}, nodes)

    @property
    def nodes(self) -> list[int]:
        """Controllers first."""
        return [*self.controllers, *(node for node in self.brokers if node not in self.controllers)]

    def properties(self, node: int, folder: Path) -> dict[str, str]:
        listeners = []
        if node in self.brokers:
            listeners.append(f"PLAINTEXT://127.0.0.1:{self.brokers[node]}")
        if node in self.controllers:
            listeners.append(f"CONTROLLER://127.0.0.1:{self.controllers[node]}")
        roles = [role for role, nodes in (("broker", self.brokers), ("controller", self.controllers)) if node in nodes]
        replicas = str(len(self.brokers))
        in_sync = str((len(self.brokers) + 1) // 2)
        rack = {"broker.rack": self.racks[node]} if node in self.racks else {}
        return rack | {
            "node.id": str(node),
            "process.roles": ",".join(roles),
            "log.dirs": str(folder / str(node) / "data"),
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in self.controllers.values()),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
        }

    @property
    def initial_controllers(self) -> str:
        return ",".join(
            f"{node}@127.0.0.1:{port}:{self.directory_ids[node]}" for node, port in self.controllers.items()
        )


def free_port() -> int:
    """A port that is free, and so are the two after it and the three 100 further on. Not from the range of our own
    clusters: formatting takes seconds, in which one of them could take the port."""
    candidates = list(range(12_000, 20_000, 200))
    random.shuffle(candidates)
    for first in candidates:
        try:
            for port in (*range(first, first + 3), *range(first + 100, first + 103)):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise RuntimeError("no free ports between 12000 and 20000")


def uuid() -> str:
    """As Kafka writes one; not with a dash first, which its tools take for an option."""
    while (text := base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")).startswith("-"):
        pass
    return text


class KafkaNodes:
    """The processes of a cluster in a folder, laid out as our launcher does: a folder per node, its pid inside. `jvm`:
    options of Java other than those of Kafka's own start scripts."""

    def __init__(self, folder: Path, shape: Shape, settings: Iterable[str], jvm: Sequence[str] = ()) -> None:
        self._folder = folder
        self._shape = shape
        self._settings = dict(setting.split("=", 1) for setting in settings)
        self._jvm = jvm
        self._libraries = installed()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._leash = Leash()

    def format(self) -> None:
        """Write every node's properties and have its folder formatted."""
        cluster_id = uuid()
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: self._format(node, cluster_id), self._shape.nodes))

    def _format(self, node: int, cluster_id: str) -> None:
        folder = self._folder / str(node)
        folder.mkdir()
        values = self._shape.properties(node, self._folder) | self._settings
        (folder / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        command = java(self._libraries, QUICK_JVM, "kafka.tools.StorageTool", "format", "-t", cluster_id)
        command += ["-c", str(folder / "server.properties")]
        if node in self._shape.controllers:
            command += ["--initial-controllers", self._shape.initial_controllers]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def start(self, node: int) -> None:
        """Start one node, or start it again after it was killed; does not wait until it serves."""
        if node in self._processes:
            self._processes[node].wait(END_SECONDS_MAX)
        folder = self._folder / str(node)
        heap = BROKER_HEAP if node in self._shape.brokers else CONTROLLER_HEAP
        options = self._jvm or (f"-Xms{heap}", f"-Xmx{heap}", *NODE_JVM)
        command = java(self._libraries, options, "kafka.Kafka", "server.properties")
        with (folder / "server.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )
        self._processes[node] = process
        self._leash.hold(one.pid for one in self._processes.values() if one.poll() is None)
        (folder / "pid").write_text(str(process.pid))

    def start_all(self) -> None:
        for node in self._shape.nodes:
            self.start(node)

    def stop_all(self) -> None:
        """SIGKILL, as nothing of their folders is kept. Does nothing to nodes that have ended."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._leash.let_go()

    def require_alive(self) -> None:
        """RuntimeError with the end of its log if a node has ended."""
        for node, process in self._processes.items():
            if process.poll() is not None:
                log = (self._folder / str(node) / "server.log").read_text()
                raise RuntimeError(f"Apache Kafka's node {node} ended with {process.returncode}: {log[-1500:]}")

    @property
    def broker_pids(self) -> tuple[int, ...]:
        return tuple(self._processes[node].pid for node in self._shape.brokers)


@dataclass(frozen=True, slots=True)
class KafkaCluster(LocalCluster):
    """Apache Kafka behind the face of our own local clusters."""

    nodes: KafkaNodes

    def start(self, node: int) -> None:
        self.nodes.start(node)


@contextmanager
def kafka_running(*, is_single: bool, settings: Iterable[str] = ()) -> Iterator[KafkaCluster]:
    """Three controllers and three brokers, or one node that is both; serving. `settings` are key=value."""
    with shape_running(Shape.of(free_port(), is_single=is_single), settings) as cluster:
        yield cluster


@contextmanager
def shape_running(shape: Shape, settings: Iterable[str] = (), jvm: Sequence[str] = ()) -> Iterator[KafkaCluster]:
    """A cluster of this shape, serving. Its processes end with the block, and with this process if that is killed."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-"))
    nodes = KafkaNodes(folder, shape, settings, jvm)
    try:
        nodes.format()
        nodes.start_all()
        bootstrap = ",".join(f"127.0.0.1:{port}" for port in shape.brokers.values())
        wait_serving(bootstrap, len(shape.brokers), nodes.require_alive)
        yield KafkaCluster(bootstrap, nodes.broker_pids, folder, nodes)
    finally:
        nodes.stop_all()
        shutil.rmtree(folder, ignore_errors=True)


def wait_serving(bootstrap: str, brokers: int, require_alive: Callable[[], None] = lambda: None) -> None:
    """Until every one of the brokers tells of all of them. TimeoutError after two minutes, or what `require_alive`
    raises."""
    deadline = time.monotonic() + UP_SECONDS_MAX
    for address in bootstrap.split(","):
        admin = AdminClient({"bootstrap.servers": address, **PROBE})
        while not _knows(admin, brokers):
            require_alive()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{address} does not know {brokers} brokers after {UP_SECONDS_MAX} s")
            time.sleep(0.02)


def _knows(admin: AdminClient, brokers: int) -> bool:
    try:
        return len(admin.list_topics(timeout=1).brokers) == brokers
    except KafkaException:
        return False


def pause(folder: Path) -> None:
    """Freeze every node of a cluster: what is measured elsewhere has both cores to itself."""
    _signal_all(folder, signal.SIGSTOP)


def resume(folder: Path) -> None:
    _signal_all(folder, signal.SIGCONT)


def _signal_all(folder: Path, number: signal.Signals) -> None:
    for path in folder.glob("*/pid"):
        os.kill(int(path.read_text()), number)
