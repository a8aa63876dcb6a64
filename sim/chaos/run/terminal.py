"""Progress in the terminal: one line per event. On a terminal, a status line at the end is redrawn during the run."""

from __future__ import annotations

import sys
from typing import TextIO

from kraft.sim.chaos.history import Function, HistoryEventType, HistoryRecorder
from kraft.sim.chaos.run.run_folder import ClusterSample

REDRAW_MS = 250
BAR = 20


class TerminalProgress:
    """Writes to `output`. The status line is drawn only on a terminal."""

    def __init__(self, duration_ms: float, output: TextIO | None = None) -> None:
        self._output = output or sys.stdout
        self._is_terminal = self._output.isatty()
        self._duration_ms = duration_ms
        self._seen = 0
        """Number of history events counted so far."""
        self._counts = {HistoryEventType.OK: 0, HistoryEventType.FAIL: 0, HistoryEventType.INFO: 0}
        self._recent: list[float] = []
        """Times of the sends acknowledged in the last second."""
        self._drawn_ms = -1e9
        self._phase = ""

    def phase(self, text: str) -> None:
        """Report that a part of the run begins."""
        self._phase = text
        if not self._is_terminal:
            self._print(f"           {text}")

    def line(self, time_ms: float, text: str) -> None:
        """Report an event as one line of text."""
        _, colon, rest = text.partition(" ms: ")
        self._print(f"{time_ms / 1000:8.2f} s {rest if colon and text[0].isdigit() else text}")

    def sample(self, sample: ClusterSample, history: HistoryRecorder) -> None:
        """Report a sample of the cluster."""
        self._count(history)
        if not self._is_terminal or sample.time_ms - self._drawn_ms < REDRAW_MS:
            return
        self._drawn_ms = sample.time_ms
        self._recent = [at for at in self._recent if at > sample.time_ms - 1000]
        smallest = min((len(one.isr) for one in sample.partitions), default=0)
        share = max(0.0, min(1.0, sample.time_ms / self._duration_ms))
        filled = "█" * round(share * BAR)
        counts = ", ".join(f"{count} {kind.value}" for kind, count in self._counts.items() if count)
        self._output.write(
            f"\r\x1b[K{filled:░<{BAR}} {sample.time_ms / 1000:5.1f} s  {self._phase}: {len(self._recent)} sends/s, "
            f"smallest ISR {smallest}, controller {sample.controller}, {counts}"
        )
        self._output.flush()

    def done(self) -> None:
        """Stop drawing the status line."""
        self._print("") if self._is_terminal else None

    def _count(self, history: HistoryRecorder) -> None:
        for event in history.events[self._seen :]:
            if event.type in self._counts and event.f is Function.SEND:
                self._counts[event.type] += 1
                if event.type is HistoryEventType.OK:
                    self._recent.append(event.time_ms)
        self._seen = len(history.events)

    def _print(self, text: str) -> None:
        self._output.write(("\r\x1b[K" if self._is_terminal else "") + text + "\n")
        self._output.flush()


class QuietProgress:
    """Discards all progress."""

    def phase(self, text: str) -> None: ...

    def line(self, time_ms: float, text: str) -> None: ...

    def sample(self, sample: ClusterSample, history: HistoryRecorder) -> None: ...

    def done(self) -> None: ...
