"""The three ways to fail that the whole project tells apart, and `require`."""

from __future__ import annotations


class WireError(Exception):
    """A peer's bytes do not parse. Log it, close that connection, touch nothing else."""


class StorageCorrupt(Exception):
    """Bytes on our own disk are damaged where they must not be. The text names file, position and what to do."""


class InvariantError(Exception):
    """A rule of ours is broken. The node stops: going on could lose data."""


def sole_error(error: BaseException) -> BaseException:
    """What a group of one holds, however deep; a group of several, or no group, as it is."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def require(condition: object, message: str) -> None:
    """Raise InvariantError(message) unless `condition`; stays on under `python -O`."""
    if not condition:
        raise InvariantError(message)
