"""One node of Apache Kafka as a process, by `kafka.sh`."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from kraft.client.cluster import Cluster, parse_bootstrap
from kraft.client.default_seam import default_seam

SCRIPT = Path(__file__).parent / "kafka.sh"
READY_MS = 60_000


@contextmanager
def kafka_running(folder: Path) -> Iterator[str]:
    """Start a combined node in an empty folder; gives its bootstrap address once it answers."""
    port = _two_free_ports()
    subprocess.run([SCRIPT, "start", folder, str(port)], check=True, timeout=300)
    try:
        bootstrap = f"127.0.0.1:{port}"
        trio.run(_wait_ready, bootstrap)
        yield bootstrap
    finally:
        subprocess.run([SCRIPT, "stop", folder], check=True, timeout=30)


async def _wait_ready(bootstrap: str) -> None:
    async with default_seam() as seam:
        cluster = Cluster(parse_bootstrap(bootstrap), seam, client_id="wait")
        with trio.fail_after(READY_MS / 1000):
            while not cluster.brokers:
                await cluster.refresh([], timeout_ms=READY_MS)
        cluster.close()


def _two_free_ports() -> int:
    """A port that is free, and the one after it too."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            try:
                other.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
