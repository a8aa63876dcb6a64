"""Metrics that nodes report at /metrics, sampled over time for sparklines.

Nodes of a local cluster write the address of their listener to NODE/admin.address. The addresses of other nodes are
given when the console is started.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import h11
import trio

from kraft.deploy.console.settings import ConsoleSettings

SAMPLES_MAX = 180
SCRAPE_MS = 5_000
SCRAPE_TIMEOUT_MS = 3_000
ANSWER_BYTES_MAX = 16 * 1_048_576
ADDRESS_FILE = "admin.address"


@dataclass(frozen=True, slots=True)
class Series:
    """A metric to show. If `is_rate` is true, its increase per second is shown instead of its value. `unit` is the unit
    of the shown number."""

    sample: str
    unit: str = ""
    is_rate: bool = False


SERIES = MappingProxyType(
    {
        "Bytes in": Series("kafka_server_brokertopicmetrics_bytesinpersec_total", "B/s", is_rate=True),
        "Bytes out": Series("kafka_server_brokertopicmetrics_bytesoutpersec_total", "B/s", is_rate=True),
        "Messages in": Series("kafka_server_brokertopicmetrics_messagesinpersec_total", "/s", is_rate=True),
        "Produce p99": Series('kafka_network_requestmetrics_totaltimems{quantile="0.99",request="Produce"}', "ms"),
        "Partitions": Series("kafka_server_replicamanager_partitioncount"),
        "Under-replicated": Series("kafka_server_replicamanager_underreplicatedpartitions"),
        "CPU": Series("process_cpu_seconds_total", "of a core", is_rate=True),
        "Memory": Series("process_resident_memory_bytes", "B"),
    }
)
"""Metrics to show, by title."""


class NodeMetrics:
    """Samples of each node: title → values, oldest first. `problems` has the errors of nodes whose last scrape
    failed."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._samples: dict[int, dict[str, deque[float]]] = {}
        self._last: dict[int, tuple[float, dict[str, float]]] = {}
        self.problems: dict[int, str] = {}

    def of(self, node_id: int) -> Mapping[str, tuple[float, ...]]:
        return {title: tuple(values) for title, values in self._samples.get(node_id, {}).items()}

    def addresses(self) -> dict[int, str]:
        """Return the currently known addresses of the nodes' listeners."""
        found = {} if self._settings.data is None else local_addresses(self._settings.data)
        return {**found, **self._settings.metrics}

    async def poll(self) -> None:
        """Scrape all nodes periodically and concurrently."""
        while True:
            async with trio.open_nursery() as nursery:
                for node_id, address in self.addresses().items():
                    nursery.start_soon(self.scrape, node_id, address)
            await trio.sleep(SCRAPE_MS / 1000)

    async def scrape(self, node_id: int, address: str) -> None:
        """Scrape one node, and store its samples or the error."""
        try:
            with trio.fail_after(SCRAPE_TIMEOUT_MS / 1000):
                text = await get_text(address, "/metrics")
        except (OSError, trio.BrokenResourceError, trio.TooSlowError, h11.ProtocolError, ValueError) as problem:
            self.problems[node_id] = f"http://{address}/metrics: {problem or 'no answer'}"
            return
        self.problems.pop(node_id, None)
        self.take(node_id, trio.current_time(), parse_samples(text))

    def take(self, node_id: int, time_s: float, values: dict[str, float]) -> None:
        """Store the samples that a node reported at this time."""
        before = self._last.get(node_id)
        self._last[node_id] = time_s, values
        for title, series in SERIES.items():
            name = series.sample
            if name not in values:
                continue
            value = values[name]
            if series.is_rate:
                if before is None or name not in before[1] or time_s <= before[0]:
                    continue
                value = max(0.0, value - before[1][name]) / (time_s - before[0])
            self._samples.setdefault(node_id, {}).setdefault(title, deque(maxlen=SAMPLES_MAX)).append(value)


def local_addresses(folder: Path) -> dict[int, str]:
    """Return node id → HOST:PORT of the nodes in a local cluster's folder that have written an address."""
    found = {}
    for path in folder.glob(f"*/{ADDRESS_FILE}"):
        digits = "".join(filter(str.isdecimal, path.parent.name))
        try:
            address = path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            continue
        if digits and ":" in address:
            found[int(digits)] = address
    return found


def parse_samples(text: str) -> dict[str, float]:
    """Return the samples of a Prometheus text whose metrics SERIES names and whose values are numbers. Labels are
    sorted."""
    names = {series.sample.partition("{")[0] for series in SERIES.values()}
    found: dict[str, float] = {}
    for line in text.splitlines():
        key, _, value = line.rpartition(" ")
        name, brace, labels = key.partition("{")
        if name not in names:
            continue
        if brace:
            key = f"{name}{{{','.join(sorted(filter(None, labels.rstrip('}').split(','))))}}}"
        number = float(value)
        if math.isfinite(number):
            found[key] = number
    return found


async def get_text(address: str, path: str) -> str:
    """Send a GET over plain HTTP and return the body. Raise OSError, trio.BrokenResourceError or h11.ProtocolError, and
    ValueError for a response that is too long or whose status is not 200."""
    host, _, port = address.rpartition(":")
    stream = await trio.open_tcp_stream(host.strip("[]"), int(port))
    async with stream:
        connection = h11.Connection(h11.CLIENT)
        headers = [("host", address), ("connection", "close"), ("accept", "text/plain")]
        await stream.send_all(connection.send(h11.Request(method="GET", target=path, headers=headers)) or b"")
        await stream.send_all(connection.send(h11.EndOfMessage()) or b"")
        body = b""
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some())
            elif isinstance(event, h11.Response) and event.status_code != 200:
                raise ValueError(f"status {event.status_code}")
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > ANSWER_BYTES_MAX:
                    raise ValueError(f"more than {ANSWER_BYTES_MAX} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return body.decode()
