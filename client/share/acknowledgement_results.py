"""The results of acknowledgements, for the application's function `on_acknowledged`.

Results arrive in background tasks. They wait here until the application is in `poll`, `commit` or the end of its
`async with` block. Source: KIP-932, Kafka's AcknowledgementCommitCallback.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from inspect import iscoroutinefunction

import structlog

from kraft.client.core.records import KafkaError, TopicPartition
from kraft.client.core.share.acknowledging import Settled

log = structlog.get_logger("kraft.client")

OnAcknowledged = Callable[[TopicPartition, frozenset[int], KafkaError | None], None]


class AcknowledgementResults:
    """The results that the application does not have yet. Without `on_acknowledged`, none is kept. Raise TypeError if
    it is an async function, which would never run."""

    def __init__(self, on_acknowledged: OnAcknowledged | None) -> None:
        if iscoroutinefunction(on_acknowledged):
            raise TypeError("on_acknowledged is an async function: expected a plain one, which does not wait")
        self.waiting: deque[Settled] = deque()
        self._on_acknowledged = on_acknowledged

    def add(self, settled: Settled) -> None:
        """Keep a result for the next `report`. Acknowledgements of gaps alone are not the application's."""
        if self._on_acknowledged is not None and settled.offsets:
            self.waiting.append(settled)

    def report(self) -> None:
        """Call the function once for each result, in the order of their arrival. Then raise the first exception that it
        has raised, if any; others are logged."""
        first: Exception | None = None
        while self._on_acknowledged is not None and self.waiting:
            one = self.waiting.popleft()
            try:
                self._on_acknowledged(one.partition, frozenset(one.offsets), one.error)
            except Exception as failure:  # noqa: BLE001 - raised below, to the caller of `poll`
                if first is None:
                    first = failure
                else:
                    log.warning("on_acknowledged has failed again", problem=repr(failure))
        if first is not None:
            raise first
