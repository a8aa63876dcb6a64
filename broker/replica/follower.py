"""What a follower does with the leader's answer to one partition of a fetch.

Invariants:
- an answer counts only if fetch offset, leader epoch and readiness are what they were at sending (B07);
- nothing but the truncation is taken from a diverging answer (B06);
- a log is cut by its own epoch history, never straight to the leader's offset, and never lower than needed; several
  rounds may pass;
- the follower's high watermark is the leader's, clamped into the local log; it may fall (B26).
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
    """What the decision needs to know of the local log."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """(floor epoch, its exclusive end) in the local history; (-1, -1) if nothing is known of it."""
        ...


class FollowerStatus(Enum):
    """Where a partition stands in its fetcher."""

    FETCHING = "in the next request"
    BACKOFF = "left out until `retry_at_ms`"
    RESOLVING = "out of range: asking the leader for its ends"
    STOPPED = "fenced or failed: only new metadata starts it again"


class FollowerState:
    """One partition that this broker follows, in one leader epoch."""

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
        """Leave the partition out for a while: short at first (metadata is usually a few ms behind), doubling."""
        self.backoff_ms = min(max(2 * self.backoff_ms, BACKOFF_MS_FIRST), backoff_ms_max)
        self.status = FollowerStatus.BACKOFF
        self.retry_at_ms = now_ms + self.backoff_ms

    def resume(self, fetch_offset: int, last_fetched_epoch: int) -> None:
        """Fetch on from here."""
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.status = FollowerStatus.FETCHING


def start_offset(log: LocalLog, latest_epoch: int) -> int:
    """Where a new follower begins: at its end, or, without any epoch to compare, at its high watermark."""
    return log.log_end_offset if latest_epoch != UNDEFINED_EPOCH else log.high_watermark


class StepKind(Enum):
    """What to do with one partition's answer."""

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
class Sent:
    """What a request said of a partition."""

    fetch_offset: int
    leader_epoch: int


def decide_answer(
    state: FollowerState,
    sent: Sent,
    log: LocalLog,
    error: int,
    diverging: tuple[int, int] | None,
) -> FollowerStep:
    """`error` is the partition's code, `diverging` the leader's (epoch, end offset) if the histories differ."""
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
    """Where to cut after a diverging answer: the leader's epoch `leader_epoch` (the newest not above ours) ends at
    `leader_end`."""
    if leader_epoch == UNDEFINED_EPOCH:
        return log.high_watermark
    local_epoch, local_end = log.end_offset_for(leader_epoch)
    if local_epoch == UNDEFINED_EPOCH:
        return min(leader_end, log.log_end_offset)
    if local_epoch == leader_epoch:
        return min(local_end, leader_end, log.log_end_offset)
    return min(local_end, log.log_end_offset)


def follower_high_watermark(leader_high_watermark: int, log_start_offset: int, log_end_offset: int) -> int:
    """The leader's high watermark, clamped into the local log."""
    return max(log_start_offset, min(leader_high_watermark, log_end_offset))


class Resolution(Enum):
    """How a partition that was out of range goes on."""

    TRUNCATE = "cut to the offset: the leader ends before us (an unclean election)"
    RESTART = "drop the whole log and begin at the offset: the leader has deleted all that may be in it"
    CONTINUE = "fetch from the offset"


def decide_out_of_range(
    log_end_offset: int, leader_latest: int, leader_earliest: int | None
) -> tuple[Resolution, int] | None:
    """From the leader's latest offset (as a replica sees it: its end), then its earliest. None: `leader_earliest` is
    needed too."""
    if leader_latest < log_end_offset:
        return Resolution.TRUNCATE, leader_latest
    if leader_earliest is None:
        return None
    if leader_earliest >= log_end_offset:
        return Resolution.RESTART, leader_earliest
    return Resolution.CONTINUE, log_end_offset
