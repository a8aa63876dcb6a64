"""What a world is like: delays, buffers and how often the rare but legal thing happens. Drawn or set per run."""

from __future__ import annotations

from dataclasses import dataclass

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """Every `…_one_in` is the odds of an event per draw; 0 switches it off. Durations are virtual."""

    delay_min_ns: int = 40 * MICROSECOND_NS
    delay_jitter_ns: int = 160 * MICROSECOND_NS
    slow_delay_ns: int = 5 * MILLISECOND_NS
    slow_delay_one_in: int = 200
    bytes_per_microsecond: int = 1_000
    """Bandwidth of a stream: 1 GB/s."""
    stream_buffer_bytes: int = 256 * 1024
    """What a stream holds between a sender and a reader before the sender must wait."""
    partial_read_one_in: int = 16
    tiny_read_one_in: int = 128
    """A read of one to three bytes."""
    pass_delay_ns: int = 20 * MICROSECOND_NS
    """A driver's pass starts up to this long after its cause: code that takes no virtual time still races."""
    redial_delay_ns: int = SECOND_NS
    """After a partition heals, a waiting dial goes on within this time (a lost SYN is sent again)."""
    offload_delay_min_ns: int = 20 * MICROSECOND_NS
    offload_delay_jitter_ns: int = 500 * MICROSECOND_NS
    sync_delay_min_ns: int = 200 * MICROSECOND_NS
    sync_delay_jitter_ns: int = 2 * MILLISECOND_NS
    slow_sync_ns: int = 40 * MILLISECOND_NS
    slow_sync_one_in: int = 200
    cold_read_one_in: int = 64
    """How often `read_cached` says that it would have to wait."""
    write_back_age_ns: int = 30 * SECOND_NS
    """Bytes this old are on the device without a sync, as the kernel writes them back."""
    dirty_budget_bytes: int = 1 << 30
    drift_ppm_max: int = 200
    wall_offset_ms_max: int = 50
    trace_lines: int = 0
    """How many of the last trace lines are kept, to be read when a run fails."""
