"""Throughput of Kafka's share consumers (KIP-932), measured with Apache Kafka's ShareConsumerPerformance.

The tool starts its clock before its consumers join. Their share partitions may take a heartbeat interval to be
initialized. So the rate comes from the progress that the consumers print, without the first third of the records, in
which Java compiles.
"""

from __future__ import annotations

import re
import secrets
from datetime import datetime
from typing import NamedTuple

import trio

from kraft.client.admin import Admin, ConfigChange, ConfigOperation, ConfigResource, ResourceType
from tests.bench import java_tools
from tests.bench.bare import Bulk
from tests.stages.started_clusters import LocalCluster

REPORT_EACH_MS = 200
CLOCK = "%Y-%m-%d %H:%M:%S:%f"
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
_FIGURES = rf"{_TIME}, ({_TIME}), [\d.]+, [\d.]+, [\d.]+, (\d+), \d+"
_PROGRESS = re.compile(_FIGURES + r" for share consumer (\d)")
"""The progress of one of at most nine consumers. The tool prints the end of a line on its own, so the next consumer's
line may follow without one."""
_TOTAL = re.compile(_FIGURES + "$", re.MULTILINE)


class Progress(NamedTuple):
    """The number of records that the consumers have read, as last reported at a time in seconds."""

    at_s: float
    records: int


async def begin_at_start(bootstrap: str, group: str) -> None:
    """Let a share group begin at the start of its topics."""
    change = ConfigChange(ConfigOperation.SET, "share.auto.offset.reset", "earliest")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.configs.alter(ConfigResource(ResourceType.GROUP, group), [change])


def consume(cluster: LocalCluster, topic: str, *, size: int, megabytes: int, consumers: int) -> Bulk:
    """Read so many megabytes from the start of a topic, as the members of a new share group. Records are acknowledged
    by the next poll. Return the rate without the first third, and the brokers' CPU time over the whole run."""
    count, group = megabytes * 1_000_000 // size, f"share-{secrets.token_hex(4)}"
    trio.run(begin_at_start, cluster.bootstrap, group)
    cpu_s = cluster.cpu_seconds()
    text = java_tools.run(
        "ShareConsumerPerformance",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--group", group),
        *("--num-records", str(count), "--threads", str(consumers), "--timeout", str(java_tools.SECONDS_MAX * 1_000)),
        *("--hide-header", "--show-detailed-stats", "--reporting-interval", str(REPORT_EACH_MS)),
    )
    cpu_s = cluster.cpu_seconds() - cpu_s
    return parse(text, size=size, count=count, cpu_s=cpu_s)


def parse(text: str, *, size: int, count: int, cpu_s: float) -> Bulk:
    """Return the figures from the tool's output. The CPU time is per GB of all records that were read, at least
    `count`."""
    total = max((int(records) for _, records in _TOTAL.findall(text)), default=0)
    if total < count:
        raise RuntimeError(f"ShareConsumerPerformance did not read {count} records: {text[-500:]}")
    progress = _progress(text)
    steady = [one for one in progress if 3 * one.records >= progress[-1].records]
    if not steady or steady[-1].at_s <= steady[0].at_s:
        raise RuntimeError(f"ShareConsumerPerformance ran too briefly for a steady rate: {text[-500:]}")
    rate = (steady[-1].records - steady[0].records) / (steady[-1].at_s - steady[0].at_s)
    return Bulk(rate * size / 1e6, cpu_s / (total * size / 1e9))


def _progress(text: str) -> list[Progress]:
    """Return the progress of all consumers together, in the order of time."""
    found = [(_seconds(time), int(records), consumer) for time, records, consumer in _PROGRESS.findall(text)]
    read: dict[str, int] = {}
    progress = []
    for at_s, records, consumer in sorted(found):
        read[consumer] = records
        progress.append(Progress(at_s, sum(read.values())))
    return progress


def _seconds(time: str) -> float:
    return datetime.strptime(time, CLOCK).timestamp()
