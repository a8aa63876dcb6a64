"""Now: the time that the caller passes to a state machine, which reads no clock itself."""

from __future__ import annotations

from typing import NamedTuple


class Now(NamedTuple):
    """The time of a call: `monotonic_ms` is for timeouts, `wall_ms` is written to records."""

    monotonic_ms: int
    wall_ms: int
