"""Read the files of `kraft chaos` runs as DataFrames. Each row has a column `run`, the name of the run's folder.

docs/chaos.md describes the files. Spark reads them in parallel, for any number of runs; no Python code loops over
records. An incomplete last line, which a killed run leaves, is ignored.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

HISTORY = (
    "index BIGINT, time_ns BIGINT, process STRING, type STRING, f STRING, error STRING, place ARRAY<STRING>, "
    "value STRING, offset BIGINT, acks STRING, idempotent BOOLEAN, topic STRING, records ARRAY<ARRAY<STRING>>"
)
FAULTS = "kind STRING, text STRING, begin_ms DOUBLE, end_ms DOUBLE, nodes ARRAY<INT>, role STRING, missed STRING"
SAMPLES = (
    "time_ms DOUBLE, controller INT, controller_epoch INT, brokers ARRAY<INT>, running ARRAY<INT>, partitions "
    "ARRAY<STRUCT<topic: STRING, partition: INT, leader: INT, leader_epoch: INT, "
    "isr: ARRAY<INT>, replicas: ARRAY<INT>>>"
)
INFO = (
    "scenario STRING, cluster STRING, client STRING, seed BIGINT, started_at TIMESTAMP, duration_ms DOUBLE, "
    "healed_ms DOUBLE, end_ms DOUBLE, application ARRAY<STRING>"
)
VERDICT = (
    "verdict STRING, anomaly_counts MAP<STRING, BIGINT>, "
    "gaps ARRAY<STRUCT<fault: INT, f: STRING, gap_ms: DOUBLE, first_success_ms: DOUBLE, places: ARRAY<STRING>>>"
)
FINAL_READER = "final-reader"
"""Name of the client that reads every partition from its beginning at the end of a run, after all faults are healed."""


def read_history(spark: SparkSession, runs: str) -> DataFrame:
    """Return a row per event in the clients' histories. `runs` is the folder of one run, or a pattern such as
    `chaos-runs/*`."""
    return _lines(spark, HISTORY, f"{runs}/history.jsonl").where("index IS NOT NULL")


def read_faults(spark: SparkSession, runs: str) -> DataFrame:
    """Return a row per fault; `fault` is the fault's number in its run, from 0."""
    in_order = Window.partitionBy("run").orderBy("line")
    lines = _lines(spark, FAULTS, f"{runs}/faults.jsonl").withColumn("line", sf.monotonically_increasing_id())
    return lines.withColumn("fault", sf.row_number().over(in_order) - 1).drop("line")


def read_samples(spark: SparkSession, runs: str) -> DataFrame:
    """Return the observer's samples of the cluster's state, ten per second of a run."""
    return _lines(spark, SAMPLES, f"{runs}/samples.jsonl").where("time_ms IS NOT NULL")


def read_info(spark: SparkSession, runs: str) -> DataFrame:
    """Return a row per run, with its configuration and times."""
    return _with_run(spark.read.schema(INFO).option("multiLine", "true").json(f"{runs}/run.json"))


def read_verdicts(spark: SparkSession, runs: str) -> DataFrame:
    """Return a row per run that has a verdict of `kraft chaos`."""
    return _with_run(spark.read.schema(VERDICT).option("multiLine", "true").json(f"{runs}/verdict.json"))


def operations(history: DataFrame) -> DataFrame:
    """Return a row per client operation: its invocation, with `outcome` (ok, fail or info), `error`, `offset`,
    `records` and `end_ns` of its completion. If the run ended before the operation did, `end_ns` is NULL and the
    outcome is info, that is, unknown."""
    in_order = Window.partitionBy("run", "process").orderBy("index")
    completion = sf.lead(sf.struct("type", "time_ns", "error", "offset", "records")).over(in_order)
    return (
        history.withColumn("then", completion)
        .where("type = 'invoke'")
        .withColumn("outcome", sf.coalesce("then.type", sf.lit("info")))
        .withColumn("end_ns", sf.col("then.time_ns"))
        .withColumn("error", sf.col("then.error"))
        .withColumn("offset", sf.col("then.offset"))
        .withColumn("records", sf.col("then.records"))
        .withColumn("lineage", sf.regexp_replace("process", r"\.\d+$", ""))
        .drop("then", "type")
    )


def sends(operations_: DataFrame) -> DataFrame:
    """Return a row per record that a client sent. `place` is TOPIC-PARTITION; times are in ms since the
    clients began."""
    acks = sf.coalesce("acks", sf.lit("all"))
    return operations_.where("f = 'send'").select(
        "run",
        "process",
        "index",
        sf.concat_ws("-", "place").alias("place"),
        sf.col("place")[0].alias("topic"),
        "value",
        "outcome",
        "error",
        "offset",
        (sf.col("time_ns") / 1e6).alias("begin_ms"),
        (sf.col("end_ns") / 1e6).alias("end_ms"),
        (acks != "0").alias("is_awaited"),
        (sf.coalesce("idempotent", sf.lit(True)) & acks.isin("all", "-1")).alias("is_once"),
    )


def reads(operations_: DataFrame) -> DataFrame:
    """Return a row per record that a client received. `is_final` is true if that client is the final reader."""
    given = operations_.where("f = 'poll' AND outcome = 'ok'").select(
        "run", "index", "lineage", sf.explode("records").alias("records")
    )
    record = sf.from_json(sf.col("records")[2], "ARRAY<ARRAY<STRING>>")
    return given.withColumn("record", sf.explode(record)).select(
        "run",
        "index",
        (sf.col("lineage") == FINAL_READER).alias("is_final"),
        sf.concat_ws("-", sf.col("records")[0], sf.col("records")[1]).alias("place"),
        sf.col("records")[0].alias("topic"),
        sf.col("record")[0].cast("bigint").alias("offset"),
        sf.col("record")[1].alias("value"),
    )


def _lines(spark: SparkSession, schema: str, path: str) -> DataFrame:
    return _with_run(spark.read.schema(schema).json(path))


def _with_run(frame: DataFrame) -> DataFrame:
    """Add the column `run` in front: the name of the folder that contains the row's file. Spark gives the file's path
    as a URL."""
    folder = sf.element_at(sf.split("_metadata.file_path", "/"), -2)
    name = sf.url_decode(sf.replace(folder, sf.lit("+"), sf.lit("%2B")))
    return frame.select(name.alias("run"), "*")
