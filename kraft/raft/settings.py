"""Timeouts of the quorum, in ms, with Kafka's defaults (controller.quorum.*), and those of fast elections."""

from __future__ import annotations

from dataclasses import dataclass

EPOCH_MAX = 2**31 - 1
"""The largest epoch: epochs have 32 bits on the wire and in the log."""


@dataclass(frozen=True, slots=True)
class RaftSettings:
    election_timeout_ms: int = 1000
    """The election timeout T; a random one is drawn from [T, 2T)."""
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_wait_ms: int = 500
    fetch_bytes_max: int = 8 * 1024 * 1024
    snapshot_chunk_bytes: int = 8 * 1024 * 1024
    observer_session_ms: int = 300_000
    observer_retry_max_ms: int = 100
    rank_step_ms: int = 15
    """Delay per rank. A voter that lost its leader waits rank * step + jitter before its first pre-vote round, so that
    two voters rarely start at once."""
    jitter_ms: int = 10
    fast_round_min_ms: int = 20
    fast_round_max_ms: int = 50
    """Upper end of the delay [20, 50] ms after which a lost pre-vote round is repeated while no leader can be reached.
    The delay doubles with each lost round."""
    lost_round_retry_ms: int = 20
    """Milliseconds after which a candidate that lost its election first retries; doubled for each lost election."""
    epochs_ahead_max: int = 1000
    """Maximum distance by which the epoch of a request may exceed this node's epoch. A replica that is further behind
    learns the epoch from the voters' responses, which may name any epoch. One forged request therefore cannot use up
    the epochs."""
    resign_wait_ms: int = 1000
    """Maximum milliseconds that a clean stop waits for voters to acknowledge EndQuorumEpoch."""

    def __post_init__(self) -> None:
        if not self.fast_round_min_ms <= self.fast_round_max_ms <= self.election_timeout_ms:
            raise ValueError("fast_round_min_ms <= fast_round_max_ms <= election_timeout_ms must hold")
        if self.fetch_wait_ms >= self.fetch_timeout_ms:
            raise ValueError("a parked fetch (fetch_wait_ms) must be answered within fetch_timeout_ms")

    @property
    def check_quorum_ms(self) -> int:
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_ms(self) -> int:
        return self.fetch_timeout_ms // 2
