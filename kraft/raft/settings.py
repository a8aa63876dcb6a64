"""The time-outs of the quorum, in ms, with Kafka's defaults (controller.quorum.*), and those of fast elections."""

from __future__ import annotations

from dataclasses import dataclass

EPOCH_MAX = 2**31 - 1
"""Epochs have 32 bits on the wire and in the log."""


@dataclass(frozen=True, slots=True)
class RaftSettings:
    election_timeout_ms: int = 1000
    """A random one is drawn from [T, 2T)."""
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
    """A voter that lost its leader waits rank * step + jitter before it asks, so that two rarely ask at once."""
    jitter_ms: int = 10
    hurry_min_ms: int = 20
    hurry_max_ms: int = 50
    """While no leader can be reached, a pre-vote that failed is repeated after [20, 50] ms, doubling."""
    lost_round_retry_ms: int = 20
    """A candidate that lost retries after about this, times two to the power of the rounds lost."""
    epochs_ahead_max: int = 1000
    """How far ahead of ours the epoch of a request may be. A replica that is further behind asks the voters, whose
    answers may name any epoch: so one forged request does not use up the epochs."""
    resign_wait_ms: int = 1000
    """How long a clean stop waits for voters to acknowledge EndQuorumEpoch."""

    def __post_init__(self) -> None:
        if not self.hurry_min_ms <= self.hurry_max_ms <= self.election_timeout_ms:
            raise ValueError("hurry_min_ms <= hurry_max_ms <= election_timeout_ms must hold")
        if self.fetch_wait_ms >= self.fetch_timeout_ms:
            raise ValueError("a parked fetch (fetch_wait_ms) must be answered within fetch_timeout_ms")

    @property
    def check_quorum_ms(self) -> int:
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_epoch_ms(self) -> int:
        return self.fetch_timeout_ms // 2
