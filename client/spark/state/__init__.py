"""Synchronous outside, async within: the rows of the tables of a cluster's state.

`rows_of` asks the brokers with the admin client, in a trio run of its own, and makes rows of the answers. Its caller's
thread must run no loop yet, as in the main thread of a Spark worker. A module for each family of tables says how its
answers are asked for, and has for each column a getter over what a row is made of. Only columns that are read are
computed, and live columns are asked for only if they are read.

What lies in the past, or in the metadata log, is `kraft.client.spark.history`'s. May import kraft.client.admin and
everything below, never pyspark.
"""

from kraft.client.spark.state.request import Limits, StateError, StateRequest
from kraft.client.spark.state.rows import rows_of

__all__ = ["Limits", "StateError", "StateRequest", "rows_of"]
