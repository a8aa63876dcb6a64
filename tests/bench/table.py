"""The lines of the quick benchmark: each has a figure, its target, and its alarm value."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of the benchmark. If `more_is_better` is true, a figure below `alarm` is bad, otherwise a figure above
    it. If `alarm` is None, no figure is bad."""

    name: str
    unit: str
    figure: float
    target: float | None
    alarm: float | None
    more_is_better: bool = True
    bare: float | None = None
    """Figure of the bare loop that does the same work without a broker, measured right before and after. On a slow
    machine both figures are worse, so their ratio shows the broker's part."""
    reference: float | None = None
    """Figure of the bare loop at the time and on the machine for which `alarm` was set."""

    @property
    def scaled_alarm(self) -> float | None:
        """Return the alarm value at the machine's present speed: scaled by the bare loop's present figure, but never
        stricter than `alarm`."""
        if self.alarm is None or not self.bare or not self.reference:
            return self.alarm
        scaled = self.alarm * self.bare / self.reference
        return min(self.alarm, scaled) if self.more_is_better else max(self.alarm, scaled)

    @property
    def is_alarming(self) -> bool:
        """Whether the figure is past the alarm value, and the machine's present speed does not explain it."""
        return self._is_past(self.scaled_alarm)

    @property
    def reaches_target(self) -> bool:
        return not self._is_past(self.target)

    @property
    def of_bare(self) -> str:
        """Return the figure relative to the bare loop: a rate as a share of the loop's rate, a time as a multiple of
        the loop's time."""
        if not self.bare:
            return ""
        ratio = self.figure / self.bare
        return f"{100 * ratio:.0f} %" if self.more_is_better else f"{ratio:.1f} ×"

    @property
    def verdict(self) -> str:
        if self.is_alarming:
            return "ALARM"
        if self._is_past(self.alarm):
            return "slow machine"
        return "ok" if self.reaches_target else "below target"

    def _is_past(self, limit: float | None) -> bool:
        if limit is None:
            return False
        return self.figure < limit if self.more_is_better else self.figure > limit

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "figure": self.figure,
            "target": self.target,
            "alarm": self.alarm,
            "scaled_alarm": self.scaled_alarm,
            "bare": self.bare,
            "verdict": self.verdict,
        }


def median_of(lines: list[Line]) -> Line:
    """Return one line for several rounds, with the median of its figures and the median of the bare loop's figures."""
    bare = [line.bare for line in lines if line.bare is not None]
    return replace(
        lines[0],
        figure=statistics.median(line.figure for line in lines),
        bare=statistics.median(bare) if bare else None,
    )


def calmest_of(lines: list[Line]) -> Line:
    """Return one line for several attempts: the best one that is not past its alarm value, or the best of all if every
    one is past it. Other work on the host only makes a figure worse, while a defect of ours appears in every attempt.
    """
    return max(lines, key=lambda line: (not line.is_alarming, line.figure if line.more_is_better else -line.figure))


def percentile(values: list[float], share: float) -> float:
    """Return the value such that `share` of the values are below it."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def number(value: float | None) -> str:
    """Return a number as text with at least three significant digits; "" for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def aligned(rows: list[tuple[str, ...]], *, left: frozenset[int]) -> str:
    """Return rows of cells as text. The columns of `left` are aligned left, and the others right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def render(lines: list[Line]) -> str:
    """Return the lines as a text table."""
    rows = [("what", "figure", "unit", "target", "alarm", "alarm today", "of bare", "")]
    rows += [
        (
            line.name,
            number(line.figure),
            line.unit,
            number(line.target),
            number(line.alarm),
            number(line.scaled_alarm),
            line.of_bare,
            line.verdict,
        )
        for line in lines
    ]
    return aligned(rows, left=frozenset({0, 2, 7}))
