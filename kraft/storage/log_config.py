"""LogConfig: the settings of one log, as plain numbers. The owner builds it from the topic's resolved configuration."""

from __future__ import annotations

from dataclasses import dataclass

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log. Names and defaults are those of Kafka's topic keys. -1 in a retention setting means no
    bound."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    log_append_time: bool = False
    """Whether message.timestamp.type is LogAppendTime: the leader then stamps each batch."""
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = DAY_MS
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5

    @property
    def deletes(self) -> bool:
        """Whether retention by time and size applies to this log."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Whether only the last record of each key is kept."""
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """Age in ms at which a segment is closed. With compaction it is at most max.compaction.lag.ms, because only
        closed segments are compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms
