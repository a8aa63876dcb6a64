"""Measurements of the Java client with Apache Kafka's own performance tools."""

from __future__ import annotations

import re
import subprocess
from typing import Final

from kraft.sim.chaos.apache.kafka_files import TOOL_JVM, java
from kraft.sim.chaos.hosts.leash import leashed
from tests.bench.bare import Bulk
from tests.bench.kafka import installed
from tests.stages.started_clusters import LocalCluster

SECONDS_MAX = 300
BINARY_MEGABYTE: Final = 1.048576
_STEADY = re.compile(r"steady state records sent, ([\d.]+) records/sec")


def produce(cluster: LocalCluster, topic: str, *, size: int, megabytes: int, acks: str) -> Bulk:
    """Run ProducerPerformance with the client's defaults. Return its rate without the first third, in which Java
    compiles, and the brokers' CPU time over the whole run."""
    count = megabytes * 1_000_000 // size
    cpu_s = cluster.cpu_seconds()
    text = run(
        "ProducerPerformance",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--throughput", "-1"),
        *("--num-records", str(count), "--record-size", str(size), "--warmup-records", str(count // 3)),
        *("--command-property", f"acks={acks}"),
    )
    cpu_s = cluster.cpu_seconds() - cpu_s
    found = _STEADY.search(text)
    if found is None:
        raise RuntimeError(f"ProducerPerformance told no steady rate: {text[-500:]}")
    return Bulk(float(found[1]) * size / 1e6, cpu_s / (megabytes / 1e3))


def consume(cluster: LocalCluster, topic: str, *, size: int, megabytes: int) -> Bulk:
    """Run ConsumerPerformance as the only member of a group. Return the rate of its fetch phase, without the
    rebalance."""
    count = megabytes * 1_000_000 // size
    cpu_s = cluster.cpu_seconds()
    text = run(
        "ConsumerPerformance",
        *("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--num-records", str(count), "--hide-header"),
    )
    cpu_s = cluster.cpu_seconds() - cpu_s
    cells = [cell.strip() for cell in text.strip().splitlines()[-1].split(",")]
    if len(cells) < 10 or int(cells[4]) < count:
        raise RuntimeError(f"ConsumerPerformance did not read {count} records: {text[-500:]}")
    return Bulk(float(cells[8]) * BINARY_MEGABYTE, cpu_s / (megabytes / 1e3))


def run(name: str, *words: str) -> str:
    """Run one of Kafka's tools, and return what it prints."""
    command = java(installed(), TOOL_JVM, f"org.apache.kafka.tools.{name}", *words)
    with leashed(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said, complained = process.communicate(timeout=SECONDS_MAX)
    if process.returncode:
        raise RuntimeError(f"{name} ended with {process.returncode}: {said[-500:]} {complained[-500:]}")
    return str(said)
