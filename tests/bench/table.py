"""The lines of the benchmark: what is measured, its target, and the value at which something is wrong."""

from __future__ import annotations

from dataclasses import dataclass


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
    """The figure of the bare loop that does the same work with no Kafka in it, in one run with this one: on a slow
    machine or day both are worse, and their ratio says what is ours."""

    @property
    def is_alarming(self) -> bool:
        if self.alarm is None:
            return False
        return self.figure < self.alarm if self.more_is_better else self.figure > self.alarm

    @property
    def reaches_target(self) -> bool:
        if self.target is None:
            return True
        return self.figure >= self.target if self.more_is_better else self.figure <= self.target

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
        return "ok" if self.reaches_target else "below target"


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def render(lines: list[Line]) -> str:
    """The lines as a text table."""
    rows = [("what", "figure", "unit", "target", "alarm", "of bare", "")]
    for line in lines:
        target = "" if line.target is None else f"{line.target:,g}"
        alarm = "" if line.alarm is None else f"{line.alarm:,g}"
        figure = f"{line.figure:,.0f}" if line.figure >= 100 else f"{line.figure:.2f}"
        rows.append((line.name, figure, line.unit, target, alarm, line.of_bare, line.verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, 2, 6) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
