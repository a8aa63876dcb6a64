"""The lines of the benchmark: what is measured, its target, and the value at which something is wrong."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """One figure. `more_is_better` says on which side of `alarm` trouble lies; None: there is no alarm value."""

    name: str
    unit: str
    figure: float
    target: float | None
    alarm: float | None
    more_is_better: bool = True
    bare: float | None = None
    """The figure of the bare loop that does the same work with no Kafka in it, measured right beside this one: on a
    slow machine or day both are worse, and their ratio says what is ours."""
    reference: float | None = None
    """The bare loop's figure on the machine and day for which `alarm` was set."""

    @property
    def scaled_alarm(self) -> float | None:
        """The alarm at today's speed: scaled by the bare loop's figure today; never stricter than the alarm itself."""
        if self.alarm is None or not self.bare or not self.reference:
            return self.alarm
        scaled = self.alarm * self.bare / self.reference
        return min(self.alarm, scaled) if self.more_is_better else max(self.alarm, scaled)

    @property
    def is_alarming(self) -> bool:
        """Past the alarm, and past what today's speed of the machine explains."""
        return self._is_past(self.scaled_alarm)

    @property
    def reaches_target(self) -> bool:
        return not self._is_past(self.target)

    @property
    def of_bare(self) -> str:
        """A rate as a share of the bare loop's; a time as a multiple of it."""
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
    """One line's rounds as one: the medians of its figures and of its bare loop's."""
    bare = [line.bare for line in lines if line.bare is not None]
    return replace(
        lines[0],
        figure=statistics.median(line.figure for line in lines),
        bare=statistics.median(bare) if bare else None,
    )


def calmest_of(lines: list[Line]) -> Line:
    """One line's attempts as one: the best of those that are not alarming; the best of all if each is. Other work on
    the host only ever slows a figure down; a fault of ours is in every attempt."""
    return max(lines, key=lambda line: (not line.is_alarming, line.figure if line.more_is_better else -line.figure))


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def number(value: float | None) -> str:
    """Three digits at the least where they say something; nothing for None."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def aligned(rows: list[tuple[str, ...]], *, left: frozenset[int]) -> str:
    """Rows of cells as text, the columns of `left` flush left and the others flush right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def render(lines: list[Line]) -> str:
    """The lines as a text table."""
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
