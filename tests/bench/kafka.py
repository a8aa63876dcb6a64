"""Apache Kafka for comparison: clusters of the same shapes as ours, from the files that its project publishes.

`tests/interop/kafka.sh install` downloads the files. Java options and heaps are those of Kafka's own start scripts.
Settings are Kafka's defaults except for listeners, folders, the replication of internal topics, and the caller's
settings.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kraft.sim.chaos.apache.kafka_layout import KafkaLayout
from kraft.sim.chaos.apache.kafka_nodes import KafkaNodes
from tests.stages.started_clusters import LocalCluster, held_folder

SCRIPT = Path(__file__).parents[1] / "interop" / "kafka.sh"
UP_SECONDS_MAX = 120
PROBE: dict[str, str | int] = {"log_level": 0, "reconnect.backoff.max.ms": 100}
"""Settings of librdkafka for clusters that are starting. With its defaults it waits up to ten seconds before it retries
a broker that is not up yet."""


def installed() -> Path:
    """Return the folder of Kafka's files. Download the files if they are missing."""
    missing = [command for command in ("java", "mvn") if shutil.which(command) is None]
    if missing:
        raise RuntimeError(
            f"Apache Kafka needs {' and '.join(missing)}: tests/interop/tools.sh installs what is missing"
        )
    found = subprocess.run([SCRIPT, "install"], check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    return Path(found.stdout.strip()) / "libs"


def free_port() -> int:
    """Return a free port such that the two ports after it, and the three ports that are higher by 100, are free too. It
    is outside the range of our own clusters, because one of them could bind it during the seconds that formatting
    takes."""
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


@dataclass(frozen=True, slots=True)
class KafkaCluster(LocalCluster):
    """A cluster of Apache Kafka, with the same interface as our own local clusters."""

    nodes: KafkaNodes

    def start(self, node: int) -> None:
        self.nodes.start(node)


@contextmanager
def kafka_running(*, is_single: bool, settings: Iterable[str] = ()) -> Iterator[KafkaCluster]:
    """Run three controllers and three brokers, or one node of both roles. `settings` are texts KEY=VALUE."""
    with layout_running(KafkaLayout.plain(free_port(), is_single=is_single), settings) as cluster:
        yield cluster


@contextmanager
def layout_running(
    layout: KafkaLayout, settings: Iterable[str] = (), jvm: Sequence[str] = ()
) -> Iterator[KafkaCluster]:
    """Run a cluster of this layout. No process or file of the cluster remains after the `with` block, even if this
    process is killed."""
    values = dict(setting.split("=", 1) for setting in settings)
    with held_folder("kafka-") as (folder, leash):
        nodes = KafkaNodes(folder, layout, values, libraries=installed(), jvm=jvm, leash=leash)
        try:
            nodes.format()
            nodes.start_all()
            wait_serving(layout.bootstrap_servers, len(layout.brokers), nodes.require_alive)
            pids = tuple(pid for node in layout.brokers if (pid := nodes.pid(node)) is not None)
            yield KafkaCluster(layout.bootstrap_servers, pids, folder, nodes)
        finally:
            nodes.close()


def wait_serving(bootstrap: str, brokers: int, require_alive: Callable[[], None] = lambda: None) -> None:
    """Wait until every broker reports all brokers. Raise TimeoutError after two minutes, or the exception of
    `require_alive`."""
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
    """Freeze every node of a cluster, so that other measurements can use both cores without it."""
    _signal_all(folder, signal.SIGSTOP)


def resume(folder: Path) -> None:
    _signal_all(folder, signal.SIGCONT)


def _signal_all(folder: Path, number: signal.Signals) -> None:
    for path in folder.glob("*/pid"):
        # the process has ended by itself, which the code that uses the cluster will notice
        with suppress(ProcessLookupError):
            os.kill(int(path.read_text()), number)
