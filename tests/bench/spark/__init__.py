"""Benchmark of our Spark tables and Spark's own Kafka connector: `python -m tests.bench.spark`, stored in
docs/spark-figures.json.
"""
