"""Benchmark of our Spark tables against Spark's own Kafka connector: `python -m tests.bench.spark`, stored in
docs/spark-figures.json.
"""
