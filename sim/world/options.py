"""Options of a world: delays, buffers and the odds of rare but legal events. Drawn or set per run."""

from __future__ import annotations

from dataclasses import dataclass

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """Options of a simulated world. Every `…_one_in` makes an event happen once in this many draws on average; 0
    disables the event. Durations are virtual."""

    delay_min_ns: int = 40 * MICROSECOND_NS
    delay_jitter_ns: int = 160 * MICROSECOND_NS
    slow_delay_ns: int = 5 * MILLISECOND_NS
    slow_delay_one_in: int = 200
    bytes_per_microsecond: int = 1_000
    """Bandwidth of a stream in bytes per microsecond; the default is 1 GB/s."""
    stream_buffer_bytes: int = 256 * 1024
    """Bytes in flight between a sender and a reader before the sender must wait."""
    partial_read_one_in: int = 16
    tiny_read_one_in: int = 128
    """One read in this many returns only one to three bytes."""
    pass_delay_ns: int = 20 * MICROSECOND_NS
    """Maximum delay from a cause, such as arriving bytes, to the pass of the driver that handles it. So passes run in
    random order, even if the code takes no virtual time."""
    redial_delay_ns: int = SECOND_NS
    """After a partition heals, a waiting dial continues within this time (a lost SYN is retransmitted)."""
    offload_delay_min_ns: int = 20 * MICROSECOND_NS
    offload_delay_jitter_ns: int = 500 * MICROSECOND_NS
    sync_delay_min_ns: int = 200 * MICROSECOND_NS
    sync_delay_jitter_ns: int = 2 * MILLISECOND_NS
    slow_sync_ns: int = 40 * MILLISECOND_NS
    slow_sync_one_in: int = 200
    cold_read_one_in: int = 64
    """One `read_cached` in this many reports that it would have to wait."""
    write_back_age_ns: int = 30 * SECOND_NS
    """Age after which written bytes are on the device without a sync, because the kernel writes them back."""
    dirty_budget_bytes: int = 1 << 30
    drift_ppm_max: int = 200
    wall_offset_ms_max: int = 50
    trace_lines: int = 0
    """Number of trace lines that are kept, the newest ones, to be read when a run fails."""
