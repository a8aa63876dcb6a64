"""Convert a topic's settings into the rules for its batches and the settings of its logs."""

from __future__ import annotations

from kraft.broker.replica.validate import BatchRules
from kraft.config import TopicConfig
from kraft.storage.log_config import LogConfig
from kraft.wire.records.compression import Compression


class _Last:
    """Cache of the settings of the last call and its result, because most topics share the same settings."""

    config: TopicConfig | None = None
    rules: BatchRules


def batch_rules(config: TopicConfig) -> BatchRules:
    """Return the rules for a producer's batch."""
    if config is not _Last.config:
        _Last.rules, _Last.config = _batch_rules(config), config
    return _Last.rules


def _batch_rules(config: TopicConfig) -> BatchRules:
    return BatchRules(
        max_message_bytes=config.max_message_bytes,
        segment_bytes=config.segment_bytes,
        compacted="compact" in config.cleanup_policy,
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        codec=None if config.compression_type == "producer" else Compression.named(config.compression_type),
    )


def log_config(config: TopicConfig, producer_id_expiration_ms: int) -> LogConfig:
    """Return a topic's settings in the form that its logs need."""
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        segment_jitter_ms=config.segment_jitter_ms,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        cleanup_policy=config.cleanup_policy,
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        file_delete_delay_ms=config.file_delete_delay_ms,
        producer_id_expiration_ms=producer_id_expiration_ms,
        delete_retention_ms=config.delete_retention_ms,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
    )
