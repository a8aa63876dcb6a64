"""Synchronous: transient failures of requests, and the pauses between attempts within one timeout."""

from __future__ import annotations

import time

from kraft.client.core.records import KafkaError
from kraft.client.spark.blocking.link import LinkFailed
from kraft.wire.error_codes import ErrorCode

RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MS_MAX = 1_000
MISSING_TOPIC_MS = 2_000
"""Milliseconds for which brokers may report a topic as unknown before it counts as nonexistent. Brokers may not know a
newly created topic yet."""

COORDINATOR_MOVES = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""Error codes with which a broker reports that it does not know a topic or partition."""


class ClusterUnreachable(OSError):
    """No broker responded within the timeout, or the only broker that can answer did not.

    The message names the bootstrap addresses, and the advertised addresses that failed. `why` lists how each address
    failed."""

    def __init__(self, bootstrap: str, why: str, within_ms: float) -> None:
        super().__init__(
            f"no broker answered within {within_ms:.0f} ms (bootstrap {bootstrap}): {why}. "
            "Check that the brokers run, and that this host can reach them at these addresses"
        )
        self.bootstrap = bootstrap
        self.why = why

    def within(self, total_ms: float) -> ClusterUnreachable:
        """Return the same error with the timeout of an enclosing call instead of that of the call that failed."""
        return ClusterUnreachable(self.bootstrap, self.why, total_ms)


class BrokerUnreachable(ClusterUnreachable):
    """The only broker that can answer, such as a partition's leader, could not be reached, though other
    brokers could."""

    def __init__(self, bootstrap: str, broker: str, failure: LinkFailed, within_ms: float) -> None:
        OSError.__init__(
            self,
            f"{broker} could not be reached within {within_ms:.0f} ms at its advertised address {failure.address}: "
            f"{failure} (bootstrap {bootstrap}). Executors must reach the advertised listeners of all brokers, not "
            "only the bootstrap address: check advertised.listeners",
        )
        self.bootstrap = bootstrap
        self.why = str(failure)


class RetriableError(Exception):
    """A transient error. `error` is the exception to raise if it persists until the timeout. `missing`: a topic or
    partition is unknown, which is accepted as final before the timeout."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(str(error))
        self.error = error
        self.missing = error.code in MISSING


class Pause:
    """The pauses between attempts within one timeout."""

    def __init__(self, total_ms: float) -> None:
        self.total_ms = total_ms
        self._start = time.monotonic()
        self._next_ms = float(RETRY_BACKOFF_MS)

    @property
    def passed_ms(self) -> float:
        return (time.monotonic() - self._start) * 1000

    @property
    def left_ms(self) -> float:
        """Milliseconds that remain of the timeout; negative after it."""
        return self.total_ms - self.passed_ms

    def once_more(self) -> bool:
        """Sleep until the next attempt is due, and return True. Return False at once if too little of the timeout
        remains for another attempt."""
        if self.left_ms <= self._next_ms:
            return False
        time.sleep(self._next_ms / 1000)
        self._next_ms = min(self._next_ms * 2, RETRY_BACKOFF_MS_MAX)
        return True


def classify(
    code: ErrorCode, passing: frozenset[ErrorCode], subject: str, message: str | None = None
) -> RetriableError | KafkaError:
    """Return the exception for an error code: RetriableError if the code is one of `passing`, the transient ones, else
    KafkaError."""
    error = KafkaError(code, f"{subject}: {message or code.name.lower().replace('_', ' ')}")
    return RetriableError(error) if code in passing else error
