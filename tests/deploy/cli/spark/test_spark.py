"""Output, options and error messages of `kraft spark`, without starting a session."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kraft.deploy.cli.app import command_line
from kraft.deploy.cli.connection import ClusterConnection
from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.spark.printed_rows import row_values, shown
from kraft.deploy.cli.spark.progress_bar import stream_note
from kraft.deploy.cli.spark.spark_session import cluster_options, spark_to_command_failed, time_options

WORKER = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source: Traceback (most recent call last):
  File "/x/kraft/client/spark/options/given.py", line 93, in _accepted_without_effect
    raise OptionError(f"there is no option")
kraft.client.spark.options.given.OptionError: there is no option tabel; did you mean table?
 SQLSTATE: 38000
\tat org.apache.spark.sql.X(X.scala:1)"""


def test_shared_connection_options_become_options_of_the_spark_format() -> None:
    connection = ClusterConnection("h:1,h:2", {"security.protocol": "SSL"}, 2_500, "")
    assert cluster_options(connection, None) == {
        "bootstrap": "h:1,h:2",
        "kafka.security.protocol": "SSL",
        "kafka.request.timeout.ms": "2500",
    }
    assert cluster_options(ClusterConnection("h:1", {}, None, ""), Path("/d")) == {"bootstrap": "h:1", "folder": "/d"}


def test_spark_as_of_accepts_offsets_and_times() -> None:
    assert time_options("asOf", None) == {}
    assert time_options("from", "17") == {"fromOffset": "17"}
    assert time_options("to", "1970-01-01T00:00:05") == {"toTimestamp": "5000"}
    with pytest.raises(CommandFailed, match="is not a time"):
        time_options("asOf", "yesterday")


@pytest.mark.parametrize(
    ("text", "kind", "said", "code"),
    [
        (WORKER, "AnalysisException", "there is no option tabel; did you mean table?", 2),
        (
            WORKER.replace("given.OptionError", "link.LinkFailed"),
            "",
            "there is no option tabel; did you mean table?",
            3,
        ),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] No `x`. SQLSTATE: 42P01; line 1",
            "AnalysisException",
            "[TABLE_OR_VIEW_NOT_FOUND] No `x`.",
            2,
        ),
        ("Job aborted\n\nJVM stacktrace:\norg.x", "SparkException", "Job aborted", 1),
        ("Traceback (most recent call last):\n  x\nValueError: a\nb\n\nDriver", "", "a\nb", 1),
    ],
)
def test_spark_failures_are_reported_with_the_message_of_their_cause(
    text: str, kind: str, said: str, code: int
) -> None:
    failure = spark_to_command_failed(text, kind)
    assert (str(failure), failure.code) == (said, code)


def test_stream_progress_shows_the_number_of_records_behind() -> None:
    def source(end: Any, latest: Any) -> dict[str, Any]:
        return {"endOffset": end, "latestOffset": latest}

    orders = source('{"orders": {"0": 5, "1": 7}, "@epochs": {"orders": {"0": 1}}}', '{"orders": {"0": 9, "1": 7}}')
    progress = {"batchId": 3, "numInputRows": 1_200, "processedRowsPerSecond": 310.4, "sources": [orders]}
    assert stream_note(progress) == "batch 3: 1,200 rows, 310 rows/s, 4 behind"
    assert (
        stream_note({**progress, "sources": [source("17", "20"), source(None, None)]})
        == "batch 3: 1,200 rows, 310 rows/s"
    )
    assert stream_note(None) == ""


def test_spark_values_are_printed_in_json_types() -> None:
    from pyspark.sql import Row

    row = Row(
        at=datetime(2026, 11, 21, 10), day=date(2026, 11, 21), key=bytearray(b"a\xff"), ids=[1, 2], n=Decimal("1.5")
    )
    assert row_values(row) == {
        "at": "2026-11-21T10:00:00.000",
        "day": "2026-11-21",
        "key": "a\\xff",
        "ids": [1, 2],
        "n": 1.5,
    }
    assert shown(row.ids) == [1, 2]
    assert shown([Row(topic="t", partition=1)]) == '[{"topic": "t", "partition": 1}]'


def test_spark_tables_are_listed_without_starting_a_session(capsys: pytest.CaptureFixture[str]) -> None:
    kraft = command_line("spark")
    kraft(["spark", "tables", "brokers"], standalone_mode=False)
    assert "is_fenced" in capsys.readouterr().out
    with pytest.raises(CommandFailed, match="brokers"):
        kraft(["spark", "tables", "broker"], standalone_mode=False)


def test_an_unknown_spark_output_format_is_refused_before_a_session_is_started() -> None:
    with pytest.raises(CommandFailed, match="expected table, csv, json"):
        command_line("spark")(["spark", "sql", "-b", "h:1", "--format", "xml", "select 1"], standalone_mode=False)


def test_the_spark_command_line_does_not_import_pyspark() -> None:
    code = "from kraft.deploy.cli.app import command_line; command_line('spark'); assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", f"import sys; {code}"], check=True)
