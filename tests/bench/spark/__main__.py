"""`python -m tests.bench.spark`: measure our tables and Spark's own Kafka connector in turn, in one session.

The figures are stored in docs/spark-figures.json, from which a section of docs/benchmarks.md is made.

Nothing else should run on the machine during a measurement. The first round is dropped, because the JVM compiles in it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession

from kraft.sim.chaos.hosts.leash import exit_on_signals
from tests.bench.spark import tables
from tests.bench.spark.cost import cost_of
from tests.bench.spark.lines import Line, fill, lines, topics
from tests.bench.spark.section import Figure, Figures, Measured, render, write
from tests.client.spark.sessions import connector_jars, session_running
from tests.stages.started_clusters import LocalCluster, running

ROUNDS = 3
BENCH_JVM = "-XX:+UseSerialGC"


def measure(line: Line, rounds: int, jvm_pid: int) -> Measured:
    """Return the median rows per CPU second of each side over these rounds. An additional first round is dropped."""
    rates: dict[str, list[float]] = {side: [] for side in line.sides}
    walls: dict[str, list[float]] = {side: [] for side in line.sides}
    for number in range(rounds + 1):
        for side, work in sorted(line.sides.items(), reverse=bool(number % 2)):
            cost = cost_of(jvm_pid, work)
            print(f"{line.name}: {side}: {line.rows / cost.cpu_s:,.0f} rows/cpu-s, {cost.wall_s:.1f} s", flush=True)
            if number:
                rates[side].append(line.rows / cost.cpu_s)
                walls[side].append(line.rows / cost.wall_s)
    return Measured(
        name=line.name,
        rows=line.rows,
        target=line.target,
        rates={side: statistics.median(rates[side]) for side in line.sides},
        walls={side: statistics.median(walls[side]) for side in line.sides},
        spread={side: (min(found), max(found)) for side, found in rates.items()},
    )


def _alone(spark: SparkSession, cluster: LocalCluster, jvm_pid: int, share: float) -> Iterator[Figure]:
    topic = topics(share)["100"]
    yield tables.topic_range(cluster, topic.name, topic.rows)
    yield from tables.large_tables(spark, jvm_pid, share)
    yield from tables.history(share)
    yield tables.imports()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark", description=__doc__)
    parser.add_argument("--runs", type=int, default=ROUNDS, help="rounds after the first; medians are shown")
    parser.add_argument("--share", type=float, default=1.0, help="this share of the rows, to see that it runs")
    parser.add_argument("--only", action="append", help="lines whose name contains this")
    arguments = parser.parse_args(argv)
    wanted = arguments.only or [""]
    found: list[Measured] = []
    settings = {
        "spark.jars": connector_jars(),
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": BENCH_JVM,
    }
    with running(combined=1) as cluster, session_running("local[2]", settings) as spark:
        spark.sparkContext.setLogLevel("ERROR")
        for topic in topics(arguments.share).values():
            fill(cluster, topic)
        jvm_pid = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
        for line in lines(spark, cluster, arguments.share):
            if any(part in line.name for part in wanted):
                found.append(measure(line, arguments.runs, jvm_pid))
        alone = [] if arguments.only else [*_alone(spark, cluster, jvm_pid, arguments.share)]
    figures = Figures.of(found, alone, rounds=arguments.runs)
    print(render(figures))
    if arguments.share == 1 and not arguments.only:
        write(figures)
    return 0


if __name__ == "__main__":
    exit_on_signals()
    sys.exit(main())
