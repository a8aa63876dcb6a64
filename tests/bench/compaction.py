"""`python -m tests.bench.compaction`: commit very many offsets, with and without the log cleaner.

The cluster is one node, with one group that commits a hundred partitions at a time, one commit in flight. The benchmark
measures the size of the group's partition of `__consumer_offsets`, the time of a commit, and the broker's CPU time. The
cleaner works in a thread of the broker's process; the difference between the two runs is its cost for the event loop.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraft.sim.chaos.hosts.leash import exit_on_signals
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from tests.bench.admin import Admin, Refused
from tests.bench.table import Line, percentile, render
from tests.stages.started_clusters import LocalCluster, running

COMMITS = 8_000
PARTITIONS = 100
SEGMENT_BYTES = 4 << 20
LAST_ROUNDS_S = 3
"""Seconds that the cleaner has for its last rounds after the last commit."""
LESS_IS_BETTER = False
GROUP = "storm"
RETRIED = (14, 15, 16)
"""Errors of commits that are retried: the coordinator is loading, does not exist yet, or has moved."""


@dataclass(frozen=True, slots=True)
class Storm:
    """Figures of a run in which a consumer group commits offsets as fast as possible. `left_bytes` is the final size of
    the partition of `__consumer_offsets`."""

    milliseconds: list[float]
    seconds: float
    cpu_seconds: float
    left_bytes: int


def storm(*, cleans: bool) -> Storm:
    """Send all commits, one after another, to a fresh node, and return the figures."""
    settings = [
        f"offsets.topic.segment.bytes={SEGMENT_BYTES}",
        "offsets.topic.num.partitions=1",
        "log.cleaner.backoff.ms=500",
        "log.segment.delete.delay.ms=0",
        f"log.cleaner.enable={str(cleans).lower()}",
    ]
    with running(combined=1, settings=settings) as cluster:
        admin = Admin(cluster.addresses[0])
        admin.create_topics(["orders"], partitions=PARTITIONS, replication_factor=1)
        _commit_until_accepted(admin)
        taken: list[float] = []
        cpu, began = cluster.cpu_seconds(), time.monotonic()
        for number in range(COMMITS):
            start = time.perf_counter()
            _commit(admin, number)
            taken.append(1000 * (time.perf_counter() - start))
        seconds = time.monotonic() - began
        cpu = cluster.cpu_seconds() - cpu
        admin.close()
        time.sleep(LAST_ROUNDS_S)
        return Storm(taken, seconds, cpu, _size(cluster))


def _commit_until_accepted(admin: Admin) -> None:
    """Retry the first commit, which creates the topic and its coordinator."""
    for _ in range(200):
        admin.ask(ApiKey.FIND_COORDINATOR, coordinator_keys=[GROUP], key_type=0)
        try:
            _commit(admin, 0)
        except Refused as error:
            if error.args[0] not in RETRIED:
                raise
            time.sleep(0.05)
        else:
            return
    raise TimeoutError("the group has no coordinator")


def _commit(admin: Admin, number: int) -> None:
    """Send one commit of all partitions. Raise Refused with the error code."""
    topic = messages.nested_class(messages.request_class(ApiKey.OFFSET_COMMIT), "topics")
    row = messages.nested_class(topic, "partitions")
    rows = [messages.build(row, partition_index=index, committed_offset=number) for index in range(PARTITIONS)]
    answer: Any = admin.ask(
        ApiKey.OFFSET_COMMIT, group_id=GROUP, topics=[messages.build(topic, name="orders", partitions=rows)]
    )
    codes = {one.error_code for found in answer.topics for one in found.partitions} - {0}
    if codes:
        raise Refused(codes.pop())


def _size(cluster: LocalCluster) -> int:
    """Return the size of the offsets partition's segments in bytes."""
    folder = Path(cluster.folder) / "1" / "data" / "__consumer_offsets-0"
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def main() -> int:
    without, cleaned = storm(cleans=False), storm(cleans=True)
    rows = COMMITS * PARTITIONS
    lines = [
        Line(f"{rows:,} offsets committed: log without cleaner", "MB", without.left_bytes / 1e6, None, None),
        Line("log with cleaner", "MB", cleaned.left_bytes / 1e6, 6, 20, LESS_IS_BETTER),
    ]
    for name, found in (("without", without), ("with", cleaned)):
        lines += [
            Line(f"commit of {PARTITIONS}, {name} cleaner, p50", "ms", percentile(found.milliseconds, 0.5), None, None),
            Line(
                f"commit of {PARTITIONS}, {name} cleaner, p99", "ms", percentile(found.milliseconds, 0.99), None, None
            ),
            Line(f"offsets/s, {name} cleaner", "/s", rows / found.seconds, None, None),
            Line(f"broker CPU, {name} cleaner", "s", found.cpu_seconds, None, None, LESS_IS_BETTER),
        ]
    print(render(lines))
    return int(any(line.is_alarming for line in lines))


if __name__ == "__main__":
    exit_on_signals()
    sys.exit(main())
