"""Work of foreign producers and group members, in a background thread until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

STOP_SECONDS_MAX = 60

Result = TypeVar("Result")


class Background(Generic[Result]):
    """Starts `work(stop)` at once in a thread. `work` must return soon after the event `stop` is set. `failure` is the
    exception that it raised, if any."""

    def __init__(self, work: Callable[[threading.Event], Result]) -> None:
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._result: list[Result] = []
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[threading.Event], Result]) -> None:
        try:
            self._result.append(work(self._stop))
        except BaseException as failure:  # noqa: BLE001 - raised again by stop
            self.failure = failure

    def stop(self) -> Result:
        """Stop the work. Return its result, or raise its exception. Raise TimeoutError if the work does not end."""
        self._stop.set()
        return self.wait(STOP_SECONDS_MAX)

    def wait(self, seconds_max: float) -> Result:
        """Return the result, or raise the exception, of work that ends by itself or was stopped. Raise TimeoutError if
        it does not end in time."""
        self._thread.join(seconds_max)
        if self._thread.is_alive():
            raise TimeoutError(f"work in the background went on for another {seconds_max} s")
        if self.failure is not None:
            raise self.failure
        return self._result[0]


Stream = Background[list[str]]
"""A running producer. `stop` returns the acknowledged values."""
