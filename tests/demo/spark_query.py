"""The last step of the demo: a SQL query over the history of the demo's cluster, if Spark can run on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

QUERY = (
    "SELECT timestamp AS time, concat_ws('-', topic, partition) AS partition, leader, array_join(isr, ',') AS isr "
    "FROM metadata_events WHERE topic = 'chaos' AND leader IS NOT NULL ORDER BY offset"
)
"""Query of the leaders of partitions over time, each with the time at which it became leader. Topics that the demo's
clients create and delete are left out."""
ROWS_MAX = 25
SECONDS_MAX = 180
METADATA_LOG = "__cluster_metadata-0"


def why_not() -> str:
    """Return why Spark cannot run on this machine, and what to do about it; "" if Spark can run."""
    from kraft.client.spark.java import SparkNotReady, find_java
    from kraft.client.spark.packages import check_packages

    try:
        check_packages()
        find_java()
    except SparkNotReady as reason:
        return str(reason)
    return ""


def shown_command(folder: Path) -> str:
    """Return the command as a user types it."""
    return f'$ kraft spark sql --folder {folder} "{QUERY}"'


def show_who_led(run: Path) -> bool:
    """Query the metadata log that the nodes of the run have left, and print the result. Return whether there was a
    result. Without one, the demo prints the reason and continues."""
    missing = why_not()
    if missing:
        print(f"\nWho led what, and when? SQL over the cluster's history would say: {missing}")
        return False
    folder = run / "nodes"
    if next(folder.glob(f"**/{METADATA_LOG}"), None) is None:
        return False
    print(f"\nWho led what, and when? Spark reads the metadata log of the controllers:\n{shown_command(folder)}")
    command = [sys.executable, "-m", "kraft.deploy.cli", "spark", "sql", "--folder", str(folder)]
    command += ["--master", "local[1]", "--limit", str(ROWS_MAX), QUERY]
    sys.stdout.flush()
    try:
        return subprocess.run(command, timeout=SECONDS_MAX, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"no answer within {SECONDS_MAX} s", file=sys.stderr)
        return False
