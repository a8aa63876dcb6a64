"""Synchronous: write rows of Spark to topics, at least once or, with transactions, exactly once.

The module `task` writes the rows of one Spark task. It encodes columns (`rows`, `column_encoder`), fills `batches` and
sends them (`producer`, `transactions`, `progress`).
"""
