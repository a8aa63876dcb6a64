"""Synchronous: pipelines over a cluster, each a short file of PySpark code that users can copy.

`kraft spark run NAME` runs one; `registry` lists them with their options and loads nothing else. Each module has a
function `run(spark, cluster, ...)`. `cluster` holds the options of `format("kraft")` that reach the cluster, such as
`{"bootstrap": "localhost:9092"}`. May import pyspark, and matplotlib and jinja2 when a report is made.
"""
