"""Work in a thread that goes on until it is stopped: foreign producers and members of groups."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

STOP_SECONDS_MAX = 60

Result = TypeVar("Result")


class Background(Generic[Result]):
    """Runs `work(stop)` at once; it returns soon after the event is set. `failure` is what it raised, if it did."""

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
        """End it; what `work` returned, or raises what it raised. TimeoutError if it goes on."""
        self._stop.set()
        self._thread.join(STOP_SECONDS_MAX)
        if self._thread.is_alive():
            raise TimeoutError(f"work in the background went on for {STOP_SECONDS_MAX} s after it was stopped")
        if self.failure is not None:
            raise self.failure
        return self._result[0]


Stream = Background[list[str]]
"""A producer at work. `stop` gives the values that were acknowledged."""
