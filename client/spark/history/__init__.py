"""Synchronous: tables made from the metadata log.

They are the cluster as of a past point (`asOfOffset`, `asOfTimestamp`), its changes (`metadata_events`,
`metadata_diff`), and those columns of present tables that only the log has.

`tables`, `events` and `diff` are functions without I/O; `network` and `points` read the log. May import
kraft.client.metadata_log and everything below, never pyspark.
"""

from kraft.client.spark.history.events import EventRange
from kraft.client.spark.history.rows import LogValues, log_values, plan_events, read_events, rows_as_of

__all__ = ["EventRange", "LogValues", "log_values", "plan_events", "read_events", "rows_as_of"]
