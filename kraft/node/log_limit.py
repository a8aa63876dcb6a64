"""A rate limit for log lines that a client or a peer can cause at will: one line per client and minute, with a count of
the lines left out.

The first line is logged at once. Further ones within the minute are counted, and logged as one line when the minute is
over. Memory is bounded by CLIENTS_MAX, whatever client ids are sent.
"""

from __future__ import annotations

from typing import Any

from kraft.seam import Clock

INTERVAL_MS = 60_000
CLIENTS_MAX = 100
"""Maximum number of (event, client) pairs that have a limit each; clients beyond that share one line per event and
minute."""
OTHER_CLIENTS = "others"

Key = tuple[str, str]


class _Repeated:
    """A line that was logged, and how often it has been suppressed since."""

    __slots__ = ("count", "end_ms", "fields", "logger")

    def __init__(self, logger: Any, end_ms: int) -> None:
        self.logger = logger
        self.end_ms = end_ms
        self.count = 0
        self.fields: dict[str, Any] = {}


class LogLimit:
    """The rate limit of the log lines of one node's listeners, or of its quorum. `report` must be called about once a
    second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._repeated: dict[Key, _Repeated] = {}
        """Repeated lines by event and client, in the order in which their minutes end."""

    def warning(self, logger: Any, event: str, *, client: str, **fields: Any) -> None:
        """Log the event at WARNING with these fields, or count it if `client` has caused it within the last minute."""
        key = (event, client)
        if key not in self._repeated and len(self._repeated) >= CLIENTS_MAX:
            key = (event, OTHER_CLIENTS)
        repeated = self._repeated.get(key)
        if repeated is None:
            self._repeated[key] = _Repeated(logger, self._clock.monotonic_ms() + INTERVAL_MS)
            logger.warning(event, **fields)
        else:
            repeated.count += 1
            repeated.fields = fields

    def report(self) -> None:
        """For each minute that is over, log the last event and the number of events."""
        now_ms = self._clock.monotonic_ms()
        for key, repeated in list(self._repeated.items()):
            if now_ms < repeated.end_ms:
                break
            del self._repeated[key]
            if repeated.count:
                repeated.logger.warning(key[0], repeated=repeated.count, **repeated.fields)
                repeated.count, repeated.end_ms = 0, now_ms + INTERVAL_MS
                self._repeated[key] = repeated
