"""The top-level module `pyspark_kraft`, which makes `format("kraft")` work in sessions that did not register it.

In every session, Spark imports each installed top-level module with a name that begins with `pyspark_`, and registers
its `DefaultSource`. So this module loads nothing else of the project.
"""

from kraft.client.spark.source import KraftDataSource as DefaultSource

__all__ = ["DefaultSource"]
