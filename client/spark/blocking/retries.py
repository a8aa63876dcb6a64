"""Synchronous: failures that may pass, and the pauses between tries within one budget of time."""

from __future__ import annotations

import time

from kraft.client.core.records import KafkaError
from kraft.client.spark.blocking.link import LinkFailed
from kraft.wire.error_codes import ErrorCode

RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MS_MAX = 1_000
MISSING_TOPIC_MS = 2_000
"""How long a topic may be unknown to brokers, as one is that was just made, before it is believed not to exist."""

COORDINATOR_MOVES = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""A topic or a partition is not known to the broker that was asked."""


class ClusterUnreachable(OSError):
    """No broker, or not the one that is needed, answered within the time allowed. The text names the bootstrap
    addresses and, where another one failed, the advertised address. `why`: how each address failed."""

    def __init__(self, bootstrap: str, why: str, within_ms: float) -> None:
        super().__init__(
            f"no broker answered within {within_ms:.0f} ms (bootstrap {bootstrap}): {why}. "
            "Check that the brokers run, and that this host can reach them at these addresses"
        )
        self.bootstrap = bootstrap
        self.why = why

    def within(self, total_ms: float) -> ClusterUnreachable:
        """The same, of a longer call that this one was a part of."""
        return ClusterUnreachable(self.bootstrap, self.why, total_ms)


class BrokerUnreachable(ClusterUnreachable):
    """A broker that only can answer, such as a partition's leader, was not reached, though others were."""

    def __init__(self, bootstrap: str, broker: str, failure: LinkFailed, within_ms: float) -> None:
        OSError.__init__(
            self,
            f"{broker} was not reached within {within_ms:.0f} ms at its advertised address {failure.address}: "
            f"{failure} (bootstrap {bootstrap}). Executors must reach the advertised listeners of all brokers, not "
            "only the bootstrap address: check advertised.listeners",
        )
        self.bootstrap = bootstrap
        self.why = str(failure)


class Passing(Exception):
    """A refusal that may pass; `error` is what to raise when the time is over. `missing`: a topic or partition is not
    known, which is believed sooner."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(str(error))
        self.error = error
        self.missing = error.code in MISSING


class Pause:
    """The pauses between tries within one budget of time."""

    def __init__(self, total_ms: float) -> None:
        self.total_ms = total_ms
        self._start = time.monotonic()
        self._next_ms = float(RETRY_BACKOFF_MS)

    @property
    def passed_ms(self) -> float:
        return (time.monotonic() - self._start) * 1000

    @property
    def left_ms(self) -> float:
        """Of the budget; negative when it is over."""
        return self.total_ms - self.passed_ms

    def once_more(self) -> bool:
        """Sleep before the next try. False at once if the budget does not allow one."""
        if self.left_ms <= self._next_ms:
            return False
        time.sleep(self._next_ms / 1000)
        self._next_ms = min(self._next_ms * 2, RETRY_BACKOFF_MS_MAX)
        return True


def classify(
    code: ErrorCode, passing: frozenset[ErrorCode], subject: str, message: str | None = None
) -> Passing | KafkaError:
    """The error as what to raise for it: Passing if it is one of these, else KafkaError."""
    error = KafkaError(code, f"{subject}: {message or code.name.lower().replace('_', ' ')}")
    return Passing(error) if code in passing else error
