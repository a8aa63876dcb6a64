"""Produce while a reader reads records that are no longer in memory, and again while it reads records that are in
memory. The first measurement shows how the reader's disk reads affect the producer, the second how the reader's use of
CPU and network does.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

from kraft.sim.chaos.hosts.leash import leashed
from tests.bench import clients
from tests.bench.contest import Figures, Goal, Row
from tests.bench.own import KILOBYTE, Amounts
from tests.bench.table import percentile
from tests.stages.started_clusters import LocalCluster

PARTITIONS = 6
COLD_MEGABYTES = 10_000
PER_SECOND = 500
"""Records per second, one per request: a rate that a cluster of freshly started JVMs can handle."""
ALONE_S = 10.0
SETTLE_S = 10.0
"""Seconds to wait before measuring: a virtual machine returns freed pages to its host for some seconds, and stalls
meanwhile."""
READER_SECONDS_MAX = 300.0
LESS = False

ROWS = (
    Row("cold-alone-p99", f"hot producer ({PER_SECOND}/s) alone: p99", "ms", LESS),
    Row("cold-p99", "hot producer while 10 GB are read cold: p99", "ms", LESS),
    Row("cold-share", "the same as a multiple of its p99 alone", "×", LESS, Goal(3)),
    Row("cold-read", "reader of 10 GB cold", "MB/s"),
    Row("cold-warm-p99", "hot producer while the same is read again, from memory: p99", "ms", LESS),
    Row("cold-warm-read", "reader of 10 GB from memory", "MB/s"),
)


def measure(cluster: LocalCluster, amounts: Amounts) -> Figures:
    """Measure the producer while a reader runs. The reader's topic has one replica of each partition; the producer's
    topic has three, with acks=all."""
    share = amounts.megabytes / Amounts().megabytes
    hot, cold = f"hot-{secrets.token_hex(4)}", f"cold-{secrets.token_hex(4)}"
    cluster.create_topic(hot, partitions=1, replication_factor=len(cluster.broker_pids))
    cluster.create_topic(cold, partitions=PARTITIONS, replication_factor=1)
    cluster.wait_in_sync(hot, len(cluster.broker_pids))
    duration_s = max(1.0, ALONE_S * share)
    alone = clients.at_rate(cluster, hot, size=KILOBYTE, per_second=PER_SECOND, duration_s=duration_s)
    megabytes = max(20, int(COLD_MEGABYTES * share))
    clients.produce(cluster, cold, size=KILOBYTE, megabytes=megabytes, acks="1", partitions=PARTITIONS)
    forget(cluster.folder, cold)
    time.sleep(SETTLE_S * share)
    beside, cold_rate = _beside_a_reader(cluster, hot, cold)
    beside_warm, warm_rate = _beside_a_reader(cluster, hot, cold)
    alone_ms, beside_ms = _p99_ms(alone), _p99_ms(beside)
    return {
        "cold-alone-p99": alone_ms,
        "cold-p99": beside_ms,
        "cold-share": beside_ms / alone_ms,
        "cold-read": cold_rate,
        "cold-warm-p99": _p99_ms(beside_warm),
        "cold-warm-read": warm_rate,
    }


def _beside_a_reader(cluster: LocalCluster, hot: str, cold: str) -> tuple[clients.AtRate, float]:
    """Run the producer while another process reads all records of `cold`. Return the producer's figures and the
    reader's MB/s."""
    command = [sys.executable, "-m", "tests.bench.cold", cluster.bootstrap, cold]
    with leashed(command, stdout=subprocess.PIPE, text=True) as reader:
        beside = clients.at_rate(
            cluster,
            hot,
            size=KILOBYTE,
            per_second=PER_SECOND,
            duration_s=READER_SECONDS_MAX,
            is_over=lambda: reader.poll() is not None,
        )
        told = reader.communicate()[0]
    if reader.returncode:
        raise RuntimeError(f"the reader ended with {reader.returncode}")
    return beside, float(told)


def _p99_ms(rated: clients.AtRate) -> float:
    return 1000 * percentile(rated.seconds, 0.99)


def forget(folder: Path, topic: str) -> None:
    """Make the kernel drop a topic's files from the page cache."""
    for path in folder.glob(f"*/data/{topic}-*/*"):
        with path.open("rb+") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    """Read the topic that the arguments name, and print the rate in MB/s."""
    bootstrap, topic = sys.argv[1:]
    reader = LocalCluster(bootstrap, (), Path())
    print(clients.consume(reader, topic, partitions=PARTITIONS, size=KILOBYTE).megabytes_per_second)


if __name__ == "__main__":
    main()
