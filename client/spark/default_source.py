"""The module `pyspark_kraft` of an installation: `format("kraft")` works in a session that has registered nothing.

Spark imports each top-level module whose name begins with `pyspark_`, in every session, and registers its
`DefaultSource`. For that reason this module loads nothing else of the project.
"""

from kraft.client.spark.source import KraftDataSource as DefaultSource

__all__ = ["DefaultSource"]
