"""The three kinds of failure that all of pykraft distinguishes, and `require`."""

from __future__ import annotations


class WireError(Exception):
    """A peer's bytes do not parse. The reaction is to log it and close that connection, with no other effect."""


class StorageCorrupt(Exception):
    """Error: bytes on this node's disk are damaged where they must not be. The text names file, position and what to
    do."""


class InvariantError(Exception):
    """An invariant of this code is violated. The node stops, as continuing could lose data."""


def sole_error(error: BaseException) -> BaseException:
    """Return the only error in a group, however deeply nested; a group of several, or an error without a group,
    unchanged."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def require(condition: object, message: str) -> None:
    """Raise InvariantError(message) unless `condition`; also checked under `python -O`."""
    if not condition:
        raise InvariantError(message)
