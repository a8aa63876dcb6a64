"""Synchronous: rows of Spark into topics, at least once or, by transactions, exactly once. A task (`task`) encodes
columns (`rows`, `column_encoder`), fills `batches` and sends them (`producer`, `transactions`, `progress`)."""
