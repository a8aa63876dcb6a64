"""Decide how a follower acts on the leader's response for one partition of a fetch.

Invariants:
- a response is applied only if fetch offset, leader epoch and status are unchanged since the request was sent (B07);
- from a response that reports a divergence, only the truncation is applied (B06);
- a log is truncated to an offset that follows from the follower's own epoch history, never directly to the leader's
  offset, and never lower than needed; several rounds may be necessary;
- the follower's high watermark is the leader's, limited to the range of the local log; it may decrease (B26).
Source: KIP-101, KIP-279, KIP-595 (truncation on fetch), Kafka's AbstractFetcherThread.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from kraft.wire.error_codes import ErrorCode

UNDEFINED_EPOCH = -1
BACKOFF_MS_FIRST = 10


class LocalLog(Protocol):
    """The properties of the local log that a follower's decisions depend on."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Return the newest local epoch that is not above the given epoch, and its exclusive end offset. Return (-1,
        -1) if the local epoch history has no such epoch."""
        ...


class FollowerStatus(Enum):
    """State of a followed partition in its fetcher."""

    FETCHING = "in the next request"
    BACKOFF = "left out until `retry_at_ms`"
    RESOLVING = "out of range: asking the leader for its ends"
    STOPPED = "fenced or failed: only new metadata starts it again"


class FollowerState:
    """The state of one partition that this broker follows, in one leader epoch."""

    __slots__ = (
        "backoff_ms",
        "fetch_offset",
        "last_fetched_epoch",
        "leader_epoch",
        "leader_id",
        "retry_at_ms",
        "status",
    )

    def __init__(self, leader_id: int, leader_epoch: int, fetch_offset: int, last_fetched_epoch: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.status = FollowerStatus.FETCHING
        self.retry_at_ms = 0
        self.backoff_ms = 0

    def back_off(self, now_ms: int, backoff_ms_max: int) -> None:
        """Omit the partition from fetch requests for a while. The first backoff is short (metadata is usually a few ms
        behind); each further one is twice as long."""
        self.backoff_ms = min(max(2 * self.backoff_ms, BACKOFF_MS_FIRST), backoff_ms_max)
        self.status = FollowerStatus.BACKOFF
        self.retry_at_ms = now_ms + self.backoff_ms

    def resume(self, fetch_offset: int, last_fetched_epoch: int) -> None:
        """Continue fetching from this offset."""
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.status = FollowerStatus.FETCHING


def start_offset(log: LocalLog, latest_epoch: int) -> int:
    """Return the offset at which a new follower begins to fetch: its log end, or its high watermark if its log has no
    epoch to compare with the leader's."""
    return log.log_end_offset if latest_epoch != UNDEFINED_EPOCH else log.high_watermark


class StepKind(Enum):
    """The next action of the follower after the response for one partition."""

    IGNORE = "it no longer matters"
    APPEND = "append the records (if any), then take high watermark and log start"
    TRUNCATE = "cut the local log to `offset`, and fetch from there"
    RESOLVE = "ask the leader for its latest and earliest offsets"
    BACK_OFF = "leave it out for a while"
    STOP = "wait for metadata"


class FollowerStep(NamedTuple):
    kind: StepKind
    offset: int = -1


IGNORE = FollowerStep(StepKind.IGNORE)
APPEND = FollowerStep(StepKind.APPEND)
RESOLVE = FollowerStep(StepKind.RESOLVE)
BACK_OFF = FollowerStep(StepKind.BACK_OFF)
STOP = FollowerStep(StepKind.STOP)


@dataclass(frozen=True, slots=True)
class SentFetch:
    """The fields of a sent fetch request for one partition."""

    fetch_offset: int
    leader_epoch: int


def decide_answer(
    state: FollowerState,
    sent: SentFetch,
    log: LocalLog,
    error: int,
    diverging: tuple[int, int] | None,
) -> FollowerStep:
    """Decide the follower's next action. `error` is the partition's error code. `diverging` is the leader's (epoch, end
    offset) if the leader reports that the logs diverge."""
    if (
        state.status is not FollowerStatus.FETCHING
        or state.fetch_offset != sent.fetch_offset
        or state.leader_epoch != sent.leader_epoch
    ):
        return IGNORE
    if error == ErrorCode.NONE:
        if diverging is not None:
            return FollowerStep(StepKind.TRUNCATE, truncation_offset(log, *diverging))
        return APPEND
    if error == ErrorCode.OFFSET_OUT_OF_RANGE:
        return RESOLVE
    if error == ErrorCode.FENCED_LEADER_EPOCH:
        return STOP
    return BACK_OFF


def truncation_offset(log: LocalLog, leader_epoch: int, leader_end: int) -> int:
    """Return the offset to which to truncate after a response that reports a divergence. `leader_epoch` is the leader's
    newest epoch not above the follower's; it ends at `leader_end`."""
    if leader_epoch == UNDEFINED_EPOCH:
        return log.high_watermark
    local_epoch, local_end = log.end_offset_for(leader_epoch)
    if local_epoch == UNDEFINED_EPOCH:
        return min(leader_end, log.log_end_offset)
    if local_epoch == leader_epoch:
        return min(local_end, leader_end, log.log_end_offset)
    return min(local_end, log.log_end_offset)


def follower_high_watermark(leader_high_watermark: int, log_start_offset: int, log_end_offset: int) -> int:
    """Return the leader's high watermark, limited to the range of the local log."""
    return max(log_start_offset, min(leader_high_watermark, log_end_offset))


class Resolution(Enum):
    """The next action for a partition whose fetch offset is outside the leader's range."""

    TRUNCATE = "cut to the offset: the leader ends before us (an unclean election)"
    RESTART = "drop the whole log and begin at the offset: the leader has deleted all that may be in it"
    CONTINUE = "fetch from the offset"


def decide_out_of_range(
    log_end_offset: int, leader_latest: int, leader_earliest: int | None
) -> tuple[Resolution, int] | None:
    """Decide from the leader's latest offset (for a replica: its log end), then from its earliest offset. Return None
    if the decision needs `leader_earliest` and it is None."""
    if leader_latest < log_end_offset:
        return Resolution.TRUNCATE, leader_latest
    if leader_earliest is None:
        return None
    if leader_earliest >= log_end_offset:
        return Resolution.RESTART, leader_earliest
    return Resolution.CONTINUE, log_end_offset
