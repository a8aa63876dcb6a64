"""The states of a hosted replica, as two tables: what its log is, and whether appends may run.

The two change independently: a role may change while a log is being cut, and the files for the next append may still
be being opened. Each table maps (state, event) to the next state; what is not in it must not happen. Nothing here
suspends. docs/partition-states.md is drawn from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class LogState(Enum):
    """What the log of a replica is."""

    NEW = "new"
    """The replica was made just now, and has no log directory yet."""
    BLANK = "blank"
    """It was never written: it has no folder, and counts as empty, until a request needs the log."""
    CLOSED = "closed"
    """It has a folder, and its log is not open."""
    OPEN = "open"
    """The log is open, and no call truncates it."""
    CUTTING = "cutting"
    """The log is open, and a call truncates it: it is not fetched, appended to or led meanwhile."""
    OFFLINE = "offline"
    """Its log directory failed, or its log is damaged: it is closed until the broker is restarted."""
    REMOVED = "removed"
    """It is not this broker's any more, or its topic was deleted."""


class LogEvent(Enum):
    """What happens to the log of a replica."""

    PLACED_BLANK = "placed, without a folder"
    PLACED = "placed, with a folder"
    OPENED = "opened"
    CUT_BEGUN = "cut begun"
    CUT_DONE = "cut done"
    FAILED = "failed"
    REMOVED = "removed"


class AppendState(Enum):
    """Whether a leader's appends may run."""

    IDLE = "idle"
    """No append may run, and nothing is done about it."""
    PREPARING = "preparing"
    """The files are being opened and the entry of a leader epoch is being written."""
    READY = "ready"
    """The replica leads, its log is open, and the entry of its leader epoch is on disk."""


class AppendEvent(Enum):
    """What happens to a replica's appends."""

    PREPARE = "prepare"
    """An append waits: make the log ready for it."""
    READIED = "readied"
    """The log is ready in the leader epoch that is in force."""
    OUTDATED = "outdated"
    """The log is ready in a leader epoch that is over."""
    HELD = "held"
    """The role, the log or its files have changed: no append may run before the log is made ready again."""


LogTransition = tuple[LogState, LogEvent]
AppendTransition = tuple[AppendState, AppendEvent]
Transition = LogTransition | AppendTransition

LOG_TRANSITIONS: Mapping[LogTransition, LogState] = MappingProxyType(
    {
        (LogState.NEW, LogEvent.PLACED_BLANK): LogState.BLANK,
        (LogState.NEW, LogEvent.PLACED): LogState.CLOSED,
        (LogState.NEW, LogEvent.FAILED): LogState.OFFLINE,
        (LogState.BLANK, LogEvent.OPENED): LogState.OPEN,
        (LogState.BLANK, LogEvent.FAILED): LogState.OFFLINE,
        (LogState.BLANK, LogEvent.REMOVED): LogState.REMOVED,
        (LogState.CLOSED, LogEvent.OPENED): LogState.OPEN,
        (LogState.CLOSED, LogEvent.FAILED): LogState.OFFLINE,
        (LogState.CLOSED, LogEvent.REMOVED): LogState.REMOVED,
        (LogState.OPEN, LogEvent.CUT_BEGUN): LogState.CUTTING,
        (LogState.OPEN, LogEvent.FAILED): LogState.OFFLINE,
        (LogState.OPEN, LogEvent.REMOVED): LogState.REMOVED,
        (LogState.CUTTING, LogEvent.CUT_DONE): LogState.OPEN,
        (LogState.CUTTING, LogEvent.FAILED): LogState.OFFLINE,
        (LogState.CUTTING, LogEvent.REMOVED): LogState.REMOVED,
        (LogState.OFFLINE, LogEvent.CUT_DONE): LogState.OFFLINE,
        (LogState.OFFLINE, LogEvent.FAILED): LogState.OFFLINE,
        (LogState.OFFLINE, LogEvent.REMOVED): LogState.REMOVED,
        (LogState.REMOVED, LogEvent.CUT_DONE): LogState.REMOVED,
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
"""All that may be taken, of both tables."""
