"""RepeatedMeasurement: a slow measurement repeated in a thread, so that readers of its results do not wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

END_SECONDS_MAX = 2.0


class RepeatedMeasurement:
    """Calls `measure` every `every_s` seconds between `begin` and `close`."""

    def __init__(self, measure: Callable[[], None], every_s: float) -> None:
        self._measure = measure
        self._every_s = every_s
        self._is_over = threading.Event()
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="kraft chaos measurement", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def raise_failure(self) -> None:
        """Raise the error that `measure` has raised, if any; it is not called again after an error."""
        if self._problem is not None:
            raise self._problem

    def close(self) -> None:
        """Stop, waiting at most END_SECONDS_MAX for a call in progress."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(END_SECONDS_MAX)

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            try:
                self._measure()
            except Exception as problem:  # noqa: BLE001 - raised in the asking thread
                self._problem = problem
                return
