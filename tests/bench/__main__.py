"""python -m tests.bench: ours and the bare loops in one go, each line with its target and its alarm value.

Exit code 1 if a figure is at its alarm value. Nothing else should run on the machine meanwhile; --runs N takes the
median of N rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass

from tests.bench import bare, chain, clients, frames
from tests.bench.table import Line, percentile, render
from tests.clusters import LocalCluster, running

PARTITIONS = 6
KILOBYTE = 1000
BULK_MEGABYTES = 700
REPLICATED_MEGABYTES = 400


@dataclass(frozen=True, slots=True)
class Bare:
    """What the bare loops reach in this run; each other line is shown with its ratio to one of these."""

    append: float
    sendfile: float
    pipelined: dict[int, float]
    """Requests a second by replication factor, one connection, 200 in flight."""
    many: dict[int, float]
    """The same, 64 connections, one in flight."""
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """Of the three processes for one request that is alone."""

    def lines(self) -> list[Line]:
        rows = [
            ("receive + CRC + append", "MB/s", self.append),
            ("sendfile", "MB/s", self.sendfile),
            *((f"RF {rf}, 1 connection, 200 in flight", "/s", rate) for rf, rate in self.pipelined.items()),
            *((f"RF {rf}, 64 connections, 1 in flight", "/s", rate) for rf, rate in self.many.items()),
            ("RF 3, one in flight: p50", "ms", self.p50_ms),
            ("RF 3, one in flight: p99", "ms", self.p99_ms),
            ("RF 3, one in flight: CPU of all three", "us", self.cpu_us),
        ]
        return [Line(f"bare: {name}", unit, figure, None, None) for name, unit, figure in rows]


def bare_loops() -> Bare:
    bare.touch_memory(1100)
    append, sendfile = bare.receive_check_append(), bare.sendfile()
    frame = frames.produce_frame("bare", bytes(100), acks=-1)
    pipelined, many = {}, {}
    for replicas in (1, 3):
        with chain.running(len(frame.request), frame.answer, followers=replicas - 1) as running_chain:
            address = running_chain.address
            frames.run(address, frame, connections=1, window=50, total=5_000)
            pipelined[replicas] = _rate(address, frame, connections=1, window=200, total=120_000)
            many[replicas] = _rate(address, frame, connections=64, window=1, total=60_000)
            cpu_s, count = running_chain.cpu_seconds(), 5_000
            alone = frames.run(address, frame, connections=1, window=1, total=count)
            cpu_s = running_chain.cpu_seconds() - cpu_s
    times = [1000 * value for value in alone.latencies]
    return Bare(append, sendfile, pipelined, many, percentile(times, 0.5), percentile(times, 0.99), 1e6 * cpu_s / count)


def _rate(address: tuple[str, int], frame: frames.Frame, *, connections: int, window: int, total: int) -> float:
    return frames.run(address, frame, connections=connections, window=window, total=total).requests_per_second


def requests(cluster: LocalCluster, replicas: int, acks: int, targets: tuple[float, ...], limits: Bare) -> list[Line]:
    """Prebuilt frames: pipelined on one connection, and one in flight on 64."""
    topic = f"requests-rf{replicas}"
    cluster.create_topic(topic, partitions=1, replication_factor=replicas)
    address = cluster.leader_address(topic)
    frame = frames.produce_frame(topic, bytes(100), acks=acks)
    frames.run(address, frame, connections=1, window=50, total=5_000)
    one = _rate(address, frame, connections=1, window=200, total=120_000)
    many = _rate(address, frame, connections=64, window=1, total=60_000)
    name = f"RF {replicas}, 100 B requests"
    high, low = targets[0], targets[1]
    return [
        Line(f"{name}, 1 connection, 200 in flight", "/s", one, high, low, bare=limits.pipelined[replicas]),
        Line(f"{name}, 64 connections, 1 in flight", "/s", many, targets[2], targets[3], bare=limits.many[replicas]),
    ]


def one_request(cluster: LocalCluster, limits: Bare) -> list[Line]:
    """One prebuilt request in flight: what the client library adds is not in it."""
    cluster.create_topic("alone", partitions=1, replication_factor=3)
    cluster.wait_in_sync("alone", 3)
    frame = frames.produce_frame("alone", bytes(100), acks=-1)
    address = cluster.leader_address("alone")
    frames.run(address, frame, connections=1, window=1, total=500)
    cpu_s, count = cluster.cpu_seconds(), 5_000
    times = frames.run(address, frame, connections=1, window=1, total=count).latencies
    cpu_us = 1e6 * (cluster.cpu_seconds() - cpu_s) / count
    p50, p99 = 1000 * percentile(times, 0.5), 1000 * percentile(times, 0.99)
    name = "RF 3, 100 B requests, one in flight"
    return [
        Line(f"{name}: p50", "ms", p50, None, None, False, limits.p50_ms),
        Line(f"{name}: p99", "ms", p99, None, None, False, limits.p99_ms),
        Line(f"{name}: broker CPU", "us", cpu_us, None, None, False, limits.cpu_us),
    ]


def large_requests(cluster: LocalCluster, limits: Bare) -> Line:
    """1 MB requests against the bare loop."""
    cluster.create_topic("large", partitions=1, replication_factor=1)
    frame = frames.produce_frame("large", bytes(1_000_000), acks=1)
    address = cluster.leader_address("large")
    frames.run(address, frame, connections=1, window=4, total=100)
    bare.touch_memory(1100)
    rate = _rate(address, frame, connections=1, window=4, total=1_000)
    share = 100 * rate * len(frame.request) / 1e6 / limits.append
    return Line("RF 1, 1 MB requests, of the bare loop", "%", share, 85, 70)


def one_broker(limits: Bare) -> list[Line]:
    with running(combined=1) as cluster:
        cluster.create_topic("bulk", partitions=PARTITIONS, replication_factor=1)
        bulk = _bulk(cluster, BULK_MEGABYTES, acks="1", replicas=1)
        consumed = clients.consume(cluster, "bulk", partitions=PARTITIONS, size=KILOBYTE)
        name, rate, cpu_s = (
            "RF 1 acks=1, 1 KB, client default",
            bulk.megabytes_per_second,
            bulk.cpu_seconds_per_gigabyte,
        )
        return [
            Line(name, "MB/s", rate, 800, 500, bare=limits.append),
            Line(f"{name}: broker CPU", "s/GB", cpu_s, 0.5, 0.8, more_is_better=False),
            Line("consumer, RF 1, 1 KB", "MB/s", consumed.megabytes_per_second, 1000, 700, bare=limits.sendfile),
            *requests(cluster, 1, 1, (60_000, 35_000, 50_000, 30_000), limits),
            large_requests(cluster, limits),
        ]


def _bulk(cluster: LocalCluster, megabytes: int, *, acks: str, replicas: int) -> clients.Bulk:
    clients.produce(cluster, "bulk", size=KILOBYTE, megabytes=100, acks=acks, partitions=PARTITIONS)
    bare.touch_memory(11 * megabytes * replicas // 10)
    return clients.produce(cluster, "bulk", size=KILOBYTE, megabytes=megabytes, acks=acks, partitions=PARTITIONS)


def three_brokers(limits: Bare) -> list[Line]:
    with running() as cluster:
        cluster.create_topic("bulk", partitions=PARTITIONS, replication_factor=3)
        bulk = _bulk(cluster, REPLICATED_MEGABYTES, acks="all", replicas=3)
        rate, cpu_s = bulk.megabytes_per_second, bulk.cpu_seconds_per_gigabyte
        lines = [
            Line("RF 3 acks=all, 1 KB, client default", "MB/s", rate, 400, 300, bare=limits.append),
            Line("RF 3 acks=all, 1 KB: broker CPU", "s/GB", cpu_s, 2.4, 3.5, False),
            *requests(cluster, 3, -1, (50_000, 25_000, 35_000, 20_000), limits),
            *one_request(cluster, limits),
        ]
        cluster.create_topic("single", partitions=1, replication_factor=3)
        singles = [1000 * value for value in clients.one_in_flight(cluster, "single", size=KILOBYTE, count=3000)]
        rated = clients.at_rate(cluster, "single", size=KILOBYTE, per_second=2000, duration_s=8)
        p50, p99, rated_p50 = percentile(singles, 0.5), percentile(singles, 0.99), percentile(rated.seconds, 0.5)
        core, bare_core = 100 * rated.core_share, limits.cpu_us * 2000 / 1e4
        return [
            *lines,
            Line("RF 3, 1 KB, one in flight: p50", "ms", p50, 0.30, 0.45, False, limits.p50_ms),
            Line("RF 3, 1 KB, one in flight: p99", "ms", p99, 0.6, 2, False, limits.p99_ms),
            Line("RF 3, 2,000 a second: ack p50", "ms", 1000 * rated_p50, 0.35, 0.6, False, limits.p50_ms),
            Line("RF 3, 2,000 a second: broker CPU", "% of a core", core, 60, None, False, bare_core),
        ]


def measure(runs: int) -> list[Line]:
    """Every line; with several runs, the median of each."""
    found: dict[str, list[Line]] = defaultdict(list)
    for _ in range(runs):
        limits = bare_loops()
        for line in (*limits.lines(), *one_broker(limits), *three_brokers(limits)):
            found[line.name].append(line)
    return [
        Line(
            one.name,
            one.unit,
            statistics.median(line.figure for line in lines),
            one.target,
            one.alarm,
            one.more_is_better,
            None if one.bare is None else statistics.median(line.bare or 0 for line in lines),
        )
        for lines in found.values()
        for one in lines[:1]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=1, help="rounds; the median of each line is shown")
    parser.add_argument("--json", action="store_true", help="print one JSON value")
    arguments = parser.parse_args()
    lines = measure(arguments.runs)
    if arguments.json:
        print(
            json.dumps(
                [{"name": one.name, "unit": one.unit, "figure": one.figure, "verdict": one.verdict} for one in lines]
            )
        )
    else:
        print(render(lines))
    return int(any(line.is_alarming for line in lines))


if __name__ == "__main__":
    sys.exit(main())
