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

from tests.bench import bare, clients, frames
from tests.bench.table import Line, percentile, render
from tests.clusters import LocalCluster, running

PARTITIONS = 6
KILOBYTE = 1000


def bare_loops() -> list[Line]:
    return [
        Line("bare: receive + CRC + append", "MB/s", bare.receive_check_append(), None, None),
        Line("bare: sendfile", "MB/s", bare.sendfile(), None, None),
    ]


def requests(cluster: LocalCluster, replicas: int, acks: int, targets: tuple[float, ...]) -> list[Line]:
    """Prebuilt frames: pipelined on one connection, and one in flight on 64."""
    topic = f"requests-rf{replicas}"
    cluster.create_topic(topic, partitions=1, replication_factor=replicas)
    address = cluster.leader_address(topic)
    frame = frames.produce_frame(topic, bytes(100), acks=acks)
    frames.run(address, frame, connections=1, window=50, total=5_000)
    one = frames.run(address, frame, connections=1, window=200, total=120_000)
    many = frames.run(address, frame, connections=64, window=1, total=60_000)
    name = f"RF {replicas}, 100 B requests"
    return [
        Line(f"{name}, 1 connection, 200 in flight", "/s", one.requests_per_second, targets[0], targets[1]),
        Line(f"{name}, 64 connections, 1 in flight", "/s", many.requests_per_second, targets[2], targets[3]),
    ]


def large_requests(cluster: LocalCluster, bare_line: Line) -> Line:
    """1 MB requests against the bare loop."""
    cluster.create_topic("large", partitions=1, replication_factor=1)
    frame = frames.produce_frame("large", bytes(1_000_000), acks=1)
    address = cluster.leader_address("large")
    frames.run(address, frame, connections=1, window=4, total=100)
    result = frames.run(address, frame, connections=1, window=4, total=1_500)
    share = 100 * result.requests_per_second * len(frame) / 1e6 / bare_line.figure
    return Line("RF 1, 1 MB requests, of the bare loop", "%", share, 85, 70)


def one_broker(bare_line: Line) -> list[Line]:
    with running(combined=1) as cluster:
        cluster.create_topic("bulk", partitions=PARTITIONS, replication_factor=1)
        clients.produce(cluster, "bulk", size=KILOBYTE, megabytes=100, acks="1", partitions=PARTITIONS)
        bulk = clients.produce(cluster, "bulk", size=KILOBYTE, megabytes=700, acks="1", partitions=PARTITIONS)
        consumed = clients.consume(cluster, "bulk", partitions=PARTITIONS, size=KILOBYTE)
        name = "RF 1 acks=1, 1 KB, client default"
        return [
            Line(name, "MB/s", bulk.megabytes_per_second, 800, 500),
            Line(f"{name}: broker CPU", "s/GB", bulk.cpu_seconds_per_gigabyte, 0.5, 0.8, more_is_better=False),
            Line("consumer, RF 1, 1 KB", "MB/s", consumed.megabytes_per_second, 1000, 700),
            *requests(cluster, 1, 1, (60_000, 35_000, 50_000, 30_000)),
            large_requests(cluster, bare_line),
        ]


def three_brokers() -> list[Line]:
    with running() as cluster:
        cluster.create_topic("bulk", partitions=PARTITIONS, replication_factor=3)
        clients.produce(cluster, "bulk", size=KILOBYTE, megabytes=100, acks="all", partitions=PARTITIONS)
        bulk = clients.produce(cluster, "bulk", size=KILOBYTE, megabytes=400, acks="all", partitions=PARTITIONS)
        lines = [
            Line("RF 3 acks=all, 1 KB, client default", "MB/s", bulk.megabytes_per_second, 400, 300),
            Line("RF 3 acks=all, 1 KB: broker CPU", "s/GB", bulk.cpu_seconds_per_gigabyte, 2.4, 3.5, False),
            *requests(cluster, 3, -1, (50_000, 25_000, 35_000, 20_000)),
        ]
        cluster.create_topic("single", partitions=1, replication_factor=3)
        singles = [1000 * value for value in clients.one_in_flight(cluster, "single", size=KILOBYTE, count=3000)]
        rated = clients.at_rate(cluster, "single", size=KILOBYTE, per_second=2000, duration_s=8)
        return [
            *lines,
            Line("RF 3, 1 KB, one in flight: p50", "ms", percentile(singles, 0.5), 0.30, 0.45, False),
            Line("RF 3, 1 KB, one in flight: p99", "ms", percentile(singles, 0.99), 0.6, 2, False),
            Line("RF 3, 2,000 a second: ack p50", "ms", 1000 * percentile(rated.seconds, 0.5), 0.35, 0.6, False),
            Line("RF 3, 2,000 a second: broker CPU", "% of a core", 100 * rated.core_share, 60, None, False),
        ]


def measure(runs: int) -> list[Line]:
    """Every line; with several runs, the median of each."""
    found: dict[str, list[Line]] = defaultdict(list)
    for _ in range(runs):
        loops = bare_loops()
        for line in (*loops, *one_broker(loops[0]), *three_brokers()):
            found[line.name].append(line)
    return [
        Line(
            one.name,
            one.unit,
            statistics.median(line.figure for line in lines),
            one.target,
            one.alarm,
            one.more_is_better,
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
