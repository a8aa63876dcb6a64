"""Transactions of the Java client: how fast they are written, and how long a commit takes.

The program is Java source, compiled when it starts, against the files of Kafka that both sides are measured with.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from kraft.sim.chaos.apache.kafka_files import TOOL_JVM, java
from kraft.sim.chaos.hosts.leash import leashed
from tests.bench.bare import Bulk
from tests.bench.kafka import installed
from tests.bench.table import percentile
from tests.stages.started_clusters import LocalCluster

PROGRAM = Path(__file__).with_name("TransactionalLoad.java")
SECONDS_MAX = 300
UNBOUNDED = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Commits:
    """When a transaction is committed: after so many records, or at this age."""

    records: int = UNBOUNDED
    age_ms: int = UNBOUNDED

    @property
    def are_timed(self) -> bool:
        return self.age_ms < UNBOUNDED


@dataclass(frozen=True, slots=True)
class Written:
    """Throughput without the first third of the commits, and the time of `commitTransaction` once all records are
    acknowledged."""

    bulk: Bulk
    commit_p50_ms: float
    commit_p99_ms: float


def write(
    cluster: LocalCluster,
    topic: str,
    *,
    partitions: int,
    size: int,
    commits: Commits,
    megabytes: int = UNBOUNDED,
    seconds: float = SECONDS_MAX,
) -> Written:
    """Write transactions until so many megabytes are written, or for so many seconds."""
    cpu_s = cluster.cpu_seconds()
    bounds = (megabytes * 1_000_000 // size, max(1, round(seconds)), commits.records, commits.age_ms)
    text = _run(cluster.bootstrap, topic, *map(str, (partitions, size, *bounds)))
    cpu_s = cluster.cpu_seconds() - cpu_s
    return parse(text, size=size, cpu_s=cpu_s)


def parse(text: str, *, size: int, cpu_s: float) -> Written:
    """Return the figures that the program printed, between lines of its log."""
    found: dict[str, list[list[float]]] = {"sent": [], "steady": [], "commit": []}
    for line in text.splitlines():
        word, *figures = line.split() or [""]
        if word in found:
            found[word].append([float(figure) for figure in figures])
    commit_ms = [milliseconds for (milliseconds,) in found["commit"]]
    if len(commit_ms) <= 1:
        raise RuntimeError(f"too few transactions for a figure: {text[:500]}")
    ((sent,),), ((records, seconds),) = found["sent"], found["steady"]
    bulk = Bulk(records * size / 1e6 / seconds, cpu_s / (sent * size / 1e9))
    return Written(bulk, percentile(commit_ms, 0.5), percentile(commit_ms, 0.99))


def _run(*words: str) -> str:
    command = java(installed(), TOOL_JVM, str(PROGRAM), *words)
    with leashed(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said, complained = process.communicate(timeout=SECONDS_MAX)
    if process.returncode:
        raise RuntimeError(f"{PROGRAM.name} ended with {process.returncode}: {said[-500:]} {complained[-500:]}")
    return str(said)
