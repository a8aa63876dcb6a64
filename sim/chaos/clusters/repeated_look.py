"""RepeatedLook: something that takes long, done again and again in a thread: whoever wants to know does not wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

END_SECONDS_MAX = 2.0


class RepeatedLook:
    """Calls `look` every so many seconds between `begin` and `close`."""

    def __init__(self, look: Callable[[], None], every_s: float) -> None:
        self._look = look
        self._every_s = every_s
        self._is_over = threading.Event()
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="kraft chaos look", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def require_well(self) -> None:
        """Raise what `look` has raised: then nobody looks any more."""
        if self._problem is not None:
            raise self._problem

    def close(self) -> None:
        """End it, but wait no longer than END_SECONDS_MAX for a look that has begun."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(END_SECONDS_MAX)

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            try:
                self._look()
            except Exception as problem:  # noqa: BLE001 - raised in the asking thread
                self._problem = problem
                return
