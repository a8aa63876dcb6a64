"""Pure: the pipelines that `kraft spark run` knows, and their options.

Each option is a keyword argument of the pipeline's `run`, with the same default. Listing them loads no pyspark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

REQUIRED = object()
"""Default of an option that must be given."""


@dataclass(frozen=True, slots=True)
class JobOption:
    """`name` is the keyword argument, and with dashes the command's option. `type`: str, int, float or bool."""

    name: str
    type: type
    default: Any
    help: str
    metavar: str | None = None

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True, slots=True)
class Job:
    """A pipeline. `name` is the command's; the module is named alike, with underscores."""

    name: str
    about: str
    options: tuple[JobOption, ...]

    def load(self) -> Callable[..., Any]:
        """Its function `run(spark, cluster, **options)`. Imports pyspark."""
        module = import_module(f"kraft.client.spark.jobs.{self.name.replace('-', '_')}")
        run: Callable[..., Any] = module.run
        return run


def _out(default: str) -> JobOption:
    return JobOption("out", str, default, "The report to write; empty: none.", "FILE")


_TRIGGER = (
    JobOption("checkpoint", str, REQUIRED, "Folder in which the query keeps how far it is.", "DIR"),
    JobOption("available_now", bool, False, "Process what is there, then end, instead of waiting for more."),
)

CLUSTER_HEALTH = Job(
    "cluster-health",
    "Report skew, replicas out of sync, leaders in the wrong place and consumer lag.",
    (_out("cluster-health.html"),),
)
INCIDENT_TIMELINE = Job(
    "incident-timeline",
    "Report second by second what the cluster did, from its metadata log and a run of kraft chaos.",
    (
        JobOption("folder", str, None, "Read the metadata log from the files below this folder.", "DIR"),
        JobOption("chaos_run", str, None, "The folder of a run of kraft chaos: faults, clients, samples.", "DIR"),
        JobOption("start", str, None, "Leave out what was before this time, as 2026-11-21T10:00:00.", "TIME"),
        JobOption("end", str, None, "Leave out what was at this time or later.", "TIME"),
        _out("incident-timeline.html"),
    ),
)
CHAOS_ANALYSIS = Job(
    "chaos-analysis",
    "Judge the histories of many runs of kraft chaos: anomalies, and how long nothing was acknowledged.",
    (
        JobOption("runs", str, "chaos-runs", "The folder that holds the folders of the runs.", "DIR"),
        _out("chaos-analysis.html"),
    ),
)
WINDOWED_AGGREGATION = Job(
    "windowed-aggregation",
    "Count and sum the records of a topic by time and key, and write the results to another topic.",
    (
        JobOption("source", str, REQUIRED, "The topic to read.", "TOPIC"),
        JobOption("target", str, REQUIRED, "The topic to write.", "TOPIC"),
        JobOption("window", str, "1 minute", "Length of a window.", "INTERVAL"),
        JobOption("slide", str, None, "A new window begins so often. Default: when the last one ends.", "INTERVAL"),
        JobOption("watermark", str, "10 seconds", "How late a record may come and still count.", "INTERVAL"),
        JobOption("by", str, "CAST(key AS STRING)", "What to group by: a SQL expression.", "EXPRESSION"),
        JobOption("total", str, None, "What to sum: a SQL expression that gives a number.", "EXPRESSION"),
        JobOption("prefix", str, None, "Write exactly once, by transactions whose ids begin so.", "PREFIX"),
        *_TRIGGER,
    ),
)
ARCHIVE = Job(
    "archive",
    "Copy topics into Parquet files by topic, date and partition, each record exactly once.",
    (
        JobOption("topics", str, REQUIRED, "The topics, with commas between them.", "TOPIC,…"),
        JobOption("path", str, REQUIRED, "The folder to write, or any path that Spark can write to.", "DIR"),
        JobOption("per_trigger", int, 1_000_000, "Records of a step, at most.", "N"),
        JobOption("checkpoint", str, None, "Where to keep how far it is. Default: PATH/_checkpoint.", "DIR"),
        JobOption("available_now", bool, False, "Archive what is there, then end, instead of waiting for more."),
    ),
)
REPLAY = Job(
    "replay",
    "Write the records of an archive to a topic again, in the order and the partitions that they had.",
    (
        JobOption("path", str, REQUIRED, "The archive.", "DIR"),
        JobOption("target", str, None, "The topic to write. Default: the one that each record came from.", "TOPIC"),
        JobOption("where", str, None, "Only these records: a SQL condition, as \"date = '2026-11-21'\".", "CONDITION"),
        JobOption("shift", str, None, "Add this to each record's time, as '1 day'; or now: the first is from now."),
        JobOption("speed", float, None, "1: at the pace of the records' times; 2: twice as fast. Default: no pause."),
        JobOption("step", float, 5.0, "With --speed: seconds of real time that are written together.", "SECONDS"),
    ),
)

JOBS = MappingProxyType(
    {
        job.name: job
        for job in (CLUSTER_HEALTH, INCIDENT_TIMELINE, CHAOS_ANALYSIS, WINDOWED_AGGREGATION, ARCHIVE, REPLAY)
    }
)
"""Name → pipeline, in the order in which they are listed."""
