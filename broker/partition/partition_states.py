"""The two states of a hosted replica, each as a transition table: the state of its log, and whether appends may run.

The states change independently: a role may change while a log is being truncated, and the files for the next append may
still be opening. Each table maps (state, event) to the next state; a pair that is not in the table must not happen.
Nothing here suspends. docs/partition-states.md is generated from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class LogState(Enum):
    """The state of a replica's log."""

    NEW = "new"
    """The replica was just created, and has no log directory yet."""
    UNWRITTEN = "unwritten"
    """The replica was never written: it has no folder, and its log counts as empty until a request needs the log."""
    CLOSED = "closed"
    """The replica has a folder, and its log is not open."""
    OPEN = "open"
    """The log is open, and no truncation is in progress."""
    TRUNCATING = "truncating"
    """The log is open and being truncated. Meanwhile it is not fetched or appended to, and the replica does not lead.
    """
    OFFLINE = "offline"
    """The log directory failed, or the log is damaged. The log stays closed until the broker is restarted."""
    REMOVED = "removed"
    """The replica no longer belongs to this broker, or its topic was deleted."""


class LogEvent(Enum):
    """An event that changes the state of a replica's log."""

    PLACED_UNWRITTEN = "placed, without a folder"
    PLACED = "placed, with a folder"
    OPENED = "opened"
    TRUNCATION_BEGUN = "truncation begun"
    TRUNCATION_DONE = "truncation done"
    FAILED = "failed"
    REMOVED = "removed"


class AppendState(Enum):
    """Whether a leader's appends may run."""

    IDLE = "idle"
    """No append may run, and no preparation has started."""
    PREPARING = "preparing"
    """The files are being opened, and the entry of the leader epoch is being written."""
    READY = "ready"
    """The replica leads, its log is open, and the entry of its leader epoch is on disk."""


class AppendEvent(Enum):
    """An event that changes whether appends may run."""

    PREPARE = "prepare"
    """An append waits, so the log is being prepared for it."""
    READIED = "readied"
    """The log is ready in the current leader epoch."""
    OUTDATED = "outdated"
    """The log has been made ready, but for an earlier leader epoch."""
    HELD = "held"
    """The role, the log or its files changed: no append may run before the log is made ready again."""


LogTransition = tuple[LogState, LogEvent]
AppendTransition = tuple[AppendState, AppendEvent]
Transition = LogTransition | AppendTransition

LOG_TRANSITIONS: Mapping[LogTransition, LogState] = MappingProxyType(
    {
        (LogState.NEW, LogEvent.PLACED_UNWRITTEN): LogState.UNWRITTEN,
        (LogState.NEW, LogEvent.PLACED): LogState.CLOSED,
        (LogState.NEW, LogEvent.FAILED): LogState.OFFLINE,
        (LogState.UNWRITTEN, LogEvent.OPENED): LogState.OPEN,
        (LogState.UNWRITTEN, LogEvent.FAILED): LogState.OFFLINE,
        (LogState.UNWRITTEN, LogEvent.REMOVED): LogState.REMOVED,
        (LogState.CLOSED, LogEvent.OPENED): LogState.OPEN,
        (LogState.CLOSED, LogEvent.FAILED): LogState.OFFLINE,
        (LogState.CLOSED, LogEvent.REMOVED): LogState.REMOVED,
        (LogState.OPEN, LogEvent.TRUNCATION_BEGUN): LogState.TRUNCATING,
        (LogState.OPEN, LogEvent.FAILED): LogState.OFFLINE,
        (LogState.OPEN, LogEvent.REMOVED): LogState.REMOVED,
        (LogState.TRUNCATING, LogEvent.TRUNCATION_DONE): LogState.OPEN,
        (LogState.TRUNCATING, LogEvent.FAILED): LogState.OFFLINE,
        (LogState.TRUNCATING, LogEvent.REMOVED): LogState.REMOVED,
        (LogState.OFFLINE, LogEvent.TRUNCATION_DONE): LogState.OFFLINE,
        (LogState.OFFLINE, LogEvent.FAILED): LogState.OFFLINE,
        (LogState.OFFLINE, LogEvent.REMOVED): LogState.REMOVED,
        (LogState.REMOVED, LogEvent.TRUNCATION_DONE): LogState.REMOVED,
        (LogState.REMOVED, LogEvent.FAILED): LogState.REMOVED,
    }
)

APPEND_TRANSITIONS: Mapping[AppendTransition, AppendState] = MappingProxyType(
    {
        (AppendState.IDLE, AppendEvent.PREPARE): AppendState.PREPARING,
        (AppendState.PREPARING, AppendEvent.READIED): AppendState.READY,
        (AppendState.PREPARING, AppendEvent.OUTDATED): AppendState.IDLE,
        (AppendState.PREPARING, AppendEvent.HELD): AppendState.PREPARING,
        (AppendState.READY, AppendEvent.HELD): AppendState.IDLE,
    }
)

TRANSITIONS: tuple[Transition, ...] = (*LOG_TRANSITIONS, *APPEND_TRANSITIONS)
"""All allowed transitions of both tables."""
