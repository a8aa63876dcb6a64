"""Synchronous to its callers, async inside: the rows of the tables of a cluster's state.

`rows_of` sends requests to the brokers with the admin client, in its own trio run, and makes rows of the responses. The
calling thread must not be inside another trio run; the main thread of a Spark worker is not. One module per family of
tables defines the requests, and for each column a getter that takes the object from which a row is made. Only columns
that are read are computed, and live columns are requested only if they are read.

Past tables and tables of the metadata log are in `kraft.client.spark.history`. May import kraft.client.admin and
everything below, never pyspark.
"""

from kraft.client.spark.state.request import ColumnLimits, StateError, StateRequest
from kraft.client.spark.state.rows import rows_of

__all__ = ["ColumnLimits", "StateError", "StateRequest", "rows_of"]
