"""Write docs/benchmarks.md: the table of ratios with machine, date and versions, its spread, and the picture."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import confluent_kafka

from tests.bench.contest import BARE, HEAD, KAFKA, OURS, Results
from tests.bench.kafka import SCRIPT
from tests.bench.picture import draw
from tests.bench.table import number

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
_INTRODUCTION = """# Side by side with Apache Kafka

This page is generated: `make bench`. Figures are medians of {rounds}. In each round both clusters do the same
work with the same client, one after the other, in alternating order; the idle cluster is frozen. A bare loop does the
same work with no Kafka in it, and is measured between the two clusters. All processes, including the client's, share
the machine.

{machine}

- pykraft {ours} on Python {python}
- Apache Kafka {theirs} on {java}, warmed before its first figure
- confluent-kafka {client} on librdkafka {librdkafka}, with its defaults unless stated; Java: ProducerPerformance
  without its first third, and ConsumerPerformance without its rebalance
- transactions are written with the Java client, its defaults, and one transactional id; a commit is
  `commitTransaction` once all records are acknowledged; the first third of the commits is left out
- members of a share group are Kafka's ShareConsumerPerformance, without the first third of the records
- MB are 10^6 bytes of values; broker CPU is user and system time of all brokers

![ratios and curves](benchmarks.svg)

"""


def write(results: Results, rounds: int, path: Path = PAGE, *, share: float = 1) -> None:
    """Write the page, and its picture next to it. `share` is the share of the full amount of work that was done."""
    path.write_text(render(results, rounds, share=share))
    draw(results, path.with_suffix(".svg"))


def render(results: Results, rounds: int, *, share: float = 1) -> str:
    parts = [
        _INTRODUCTION.format(rounds=f"{rounds} round{'s' if rounds > 1 else ''}", machine=machine(), **_versions()),
        "" if share == 1 else f"**A trial with {share:.0%} of each line's work: these figures mean nothing yet.**\n\n",
        "The lines were measured in several goes.\n\n" if results.has_taken_over else "",
        f"## Figures\n\n{_targets(results)}\n\n",
        _markdown([HEAD, *(outcome.cells() for outcome in results.outcomes.values())]),
    ]
    spread = _spread(results)
    if spread:
        parts += ["\n## Spread\n\nLeast, median and most of the rounds.\n\n"]
        parts += [_markdown([("what", *(side for side in (OURS, KAFKA, BARE))), *spread])]
    if results.failures:
        parts.append("\n## Not measured\n\n" + "".join(f"- {text}\n" for text in results.failures))
    return "".join(parts)


def _targets(results: Results) -> str:
    """Return the number of targets, and how many of them are met."""
    met = [outcome.is_met for outcome in results.outcomes.values() if outcome.row.goal is not None]
    unknown = f", {met.count(None)} not measured" if None in met else ""
    why = "" if all(met) else " What is not met is explained in [performance](performance.md)."
    return f"Of {len(met)} targets, {met.count(True)} are met{unknown}.{why}"


def _spread(results: Results) -> list[tuple[str, ...]]:
    return [
        (outcome.row.name, *(_least_to_most(outcome.rounds.get(side, [])) for side in (OURS, KAFKA, BARE)))
        for outcome in results.outcomes.values()
        if any(len(found) > 1 for found in outcome.rounds.values())
    ]


def _least_to_most(found: list[float]) -> str:
    if not found:
        return ""
    return " / ".join(number(value) for value in (min(found), statistics.median(found), max(found)))


def _markdown(rows: list[tuple[str, ...]]) -> str:
    head, *body = rows
    lines = [head, ("---", *("---:" for _ in head[1:])), *body]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def machine() -> str:
    """Return a paragraph that describes the date and the machine: processor, memory and system."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    day = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    release = platform.release().split("-")[0]
    return f"{day}; {os.cpu_count()} cores ({_processor()}), {memory_gb:.0f} GiB, {platform.system()} {release}."


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _versions() -> dict[str, str]:
    java = subprocess.run(["java", "-version"], stderr=subprocess.PIPE, text=True, check=False).stderr
    return {
        "ours": version("pykraft"),
        "python": platform.python_version(),
        "theirs": kafka_version(),
        "java": java.splitlines()[0].replace('"', "") if java else "no Java",
        "client": version("confluent-kafka"),
        "librdkafka": confluent_kafka.libversion()[0],
    }


def kafka_version() -> str:
    """Return the Kafka version that is pinned in the project's list of Kafka's files."""
    listed = (SCRIPT.parent / "kafka" / "jars.sha256").read_text()
    return next(
        name.removeprefix("kafka-server-").removesuffix(".jar")
        for name in (line.split()[-1] for line in listed.splitlines())
        if name.startswith("kafka-server-") and name[len("kafka-server-")].isdigit()
    )
