"""kafka-python and aiokafka, imported without the deprecation warnings that kafka-python raises on import."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import aiokafka.record.default_records
    import aiokafka.record.memory_records
    import kafka
    import kafka.codec
    import kafka.record.memory_records

__all__ = ["aiokafka", "kafka"]
