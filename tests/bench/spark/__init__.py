"""Spark's tables beside Spark's own Kafka connector: `python -m tests.bench.spark`, kept in docs/spark-figures.json."""
