"""Pure: the pipelines that `kraft spark run` offers, and their options.

Each option is a keyword argument of the pipeline's `run`, with the same default. Listing the pipelines does not load
pyspark.
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
    """An option of a pipeline. `name` is the keyword argument; with dashes it is the command-line option. `type`: str,
    int, float or bool."""

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
    """A pipeline. `name` is its name on the command line; its module has the same name with underscores."""

    name: str
    about: str
    options: tuple[JobOption, ...]

    def load(self) -> Callable[..., Any]:
        """Return the pipeline's function `run(spark, cluster, **options)`. Imports pyspark."""
        module = import_module(f"kraft.client.spark.jobs.{self.name.replace('-', '_')}")
        run: Callable[..., Any] = module.run
        return run


def _out(default: str) -> JobOption:
    return JobOption("out", str, default, "The report to write; empty: none.", "FILE")


_TRIGGER = (
    JobOption("checkpoint", str, REQUIRED, "Folder in which the query keeps its position.", "DIR"),
    JobOption("available_now", bool, False, "Process the present records, then end, instead of waiting for more."),
)

CLUSTER_HEALTH = Job(
    "cluster-health",
    "Report skew, out-of-sync replicas, leaders that are not preferred, and consumer lag.",
    (_out("cluster-health.html"),),
)
INCIDENT_TIMELINE = Job(
    "incident-timeline",
    "Report the cluster's events second by second, from its metadata log and a run of kraft chaos.",
    (
        JobOption("folder", str, None, "Read the metadata log from the files below this folder.", "DIR"),
        JobOption("chaos_run", str, None, "The folder of a run of kraft chaos: faults, clients, samples.", "DIR"),
        JobOption("start", str, None, "Leave out events before this time, such as 2026-11-21T10:00:00.", "TIME"),
        JobOption("end", str, None, "Leave out events at this time or later.", "TIME"),
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
        JobOption("slide", str, None, "Interval at which windows begin. Default: the window's length.", "INTERVAL"),
        JobOption("watermark", str, "10 seconds", "How late a record may come and still count.", "INTERVAL"),
        JobOption("by", str, "CAST(key AS STRING)", "What to group by: a SQL expression.", "EXPRESSION"),
        JobOption("total", str, None, "What to sum: a SQL expression that gives a number.", "EXPRESSION"),
        JobOption("prefix", str, None, "Write exactly once, with this prefix of transactional ids.", "PREFIX"),
        *_TRIGGER,
    ),
)
ARCHIVE = Job(
    "archive",
    "Copy topics into Parquet files by topic, date and partition, each record exactly once.",
    (
        JobOption("topics", str, REQUIRED, "The topics, with commas between them.", "TOPIC,…"),
        JobOption("path", str, REQUIRED, "The folder to write, or any path that Spark can write to.", "DIR"),
        JobOption("per_trigger", int, 1_000_000, "Maximum records of a step.", "N"),
        JobOption("checkpoint", str, None, "Folder for its position. Default: PATH/_checkpoint.", "DIR"),
        JobOption("available_now", bool, False, "Archive the present records, then end, instead of waiting for more."),
    ),
)
REPLAY = Job(
    "replay",
    "Write the records of an archive to a topic again, in their order and partitions.",
    (
        JobOption("path", str, REQUIRED, "The archive.", "DIR"),
        JobOption("target", str, None, "The topic to write. Default: the one that each record came from.", "TOPIC"),
        JobOption(
            "where", str, None, "Only these records: a SQL condition, such as \"date = '2026-11-21'\".", "CONDITION"
        ),
        JobOption(
            "shift", str, None, "Add this to each record's time, such as '1 day'. now: the first record is from now."
        ),
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
"""Name → pipeline, in listing order."""
