"""The errors that a consumer's background tasks report to `poll`, and the wake-up of a waiting `poll`.

Each `poll` raises at most one error, before it takes any record:
1. Errors of the client, such as that of a commit or of a listener, in the order in which they were reported.
2. Errors of subscribed topics, in the same way. They are dropped when the subscription changes.
3. The final error, which says why no record can arrive. Every `poll` raises it, until the application changes the
   subscription.
While an error waits to be raised, another one with the same type and text is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog
import trio

from kraft.seam import sole_error

log = structlog.get_logger("kraft.client")


class PollErrors:
    """The errors that `poll` has not raised yet. `final` is the final error at first."""

    def __init__(self, final: Exception | None = None) -> None:
        self.is_waiting = final is not None
        """Whether `raise_next` raises an error. It is an attribute, because iterating over records checks it for each
        record."""
        self._of_client: dict[str, Exception] = {}
        self._of_topics: dict[str, Exception] = {}
        self._final = final
        self._announced = trio.Event()

    @property
    def final(self) -> Exception | None:
        """The final error; None if records can arrive."""
        return self._final

    @final.setter
    def final(self, error: Exception | None) -> None:
        self._final = error
        self._update()

    def report(self, error: Exception) -> None:
        """Let `poll` raise an error of the client."""
        self._keep(self._of_client, error)

    def begin_subscription(self) -> Callable[[Exception], None]:
        """Return the function with which a new subscription reports errors of its topics. Those of the last one are
        dropped."""
        self.end_subscription()
        return partial(self._keep, self._of_topics)

    def end_subscription(self) -> None:
        """Drop the errors of subscribed topics, also those that the subscription still reports after this."""
        self._of_topics = {}
        self._update()

    def end(self, problems: ExceptionGroup[Exception]) -> None:
        """Make the error with which the membership has ended the final error."""
        error = sole_error(problems)
        self.final = error if isinstance(error, Exception) else problems
        self.announce()

    def _keep(self, errors: dict[str, Exception], error: Exception) -> None:
        errors.setdefault(repr(error), error)
        self._update()
        self.announce()

    def _update(self) -> None:
        self.is_waiting = bool(self._of_client or self._of_topics) or self._final is not None

    def raise_next(self) -> None:
        """Raise the next error, if there is one. It is not raised again, unless it is the final one."""
        for errors in (self._of_client, self._of_topics):
            if errors:
                error = errors.pop(next(iter(errors)))
                self._update()
                raise error
        if self._final is not None:
            raise self._final

    def log_waiting(self, client: str) -> None:
        """Log the errors that wait, except for the final one, because the application closes this kind of client."""
        for error in (*self._of_client.values(), *self._of_topics.values()):
            log.warning(f"the {client} was closed before poll raised this error", problem=str(error))

    # waking poll

    def announce(self) -> None:
        """Wake the waiting `poll`, because records have arrived, or something else has changed."""
        self._announced.set()
        self._announced = trio.Event()

    async def wait(self) -> None:
        """Wait for the next call of `announce`."""
        await self._announced.wait()
