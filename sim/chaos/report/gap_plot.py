"""The gaps of a campaign's runs as dots on a log axis, one row per scenario and cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from urllib.parse import quote

from kraft.sim.chaos.report.formats import clipped, format_gap, format_ms, longest_gap
from kraft.sim.chaos.report.plot import LogScale, decade_text, item, label, track
from kraft.sim.chaos.report.summary import SummaryRow

WIDTH_PX, LEFT_PX, RIGHT_PX = 1_080, 260, 40
LANE_PX, HEAD_PX = 26, 24
DOT_PX = 5


def gap_plot_svg(rows: Sequence[SummaryRow]) -> str:
    """Draw the picture; "" if no run has a gap. Each dot links to its run."""
    gaps_ms = [gap_ms for row in rows for gap_ms in row.gaps_ms]
    if not gaps_ms:
        return ""
    scale = LogScale.over(gaps_ms, WIDTH_PX - LEFT_PX - RIGHT_PX)
    height = HEAD_PX + len(rows) * LANE_PX + 4
    parts = [f'<svg class="gaps" viewBox="0 0 {WIDTH_PX} {height}" role="group" aria-label="Longest gap of each run">']
    for tick_ms in scale.ticks_ms:
        x = _x(scale, tick_ms)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{HEAD_PX - 6}" y2="{height}"/>')
        parts.append(label(decade_text(tick_ms), x, HEAD_PX - 10, "axis"))
    for number, row in enumerate(rows):
        y = HEAD_PX + number * LANE_PX + LANE_PX / 2
        parts.append(f'<line class="grid" x1="{LEFT_PX}" x2="{WIDTH_PX - RIGHT_PX}" y1="{y}" y2="{y}"/>')
        parts.append(label(clipped(f"{row.scenario} · {row.cluster}", 40), LEFT_PX - 12, y + 4, "lane"))
        parts.append(track(f"{row.scenario} on {row.cluster}", _dots(row, scale, y)))
    return "\n".join([*parts, "</svg>"])


def _x(scale: LogScale, gap_ms: float) -> float:
    return LEFT_PX + scale.height_px - scale.y(gap_ms)


def _dots(row: SummaryRow, scale: LogScale, y: float) -> Iterator[str]:
    if row.gap_median_ms is not None:
        x = _x(scale, row.gap_median_ms)
        yield item(
            f'path d="M{x:.1f} {y - 9}v18"',
            f"Median of {row.scenario} on {row.cluster}: {format_ms(row.gap_median_ms)}",
            "median",
        )
    for info, verdict, link in row.runs:
        gap = longest_gap(verdict.gaps)
        if gap is None:
            continue
        tip = (
            f"{info.scenario} on {info.cluster}, seed {info.seed}: {verdict.verdict}, gap {format_gap(gap)} in {gap.f}"
        )
        href = quote(link, safe="/._-~#")
        yield (
            f'<a class="item dot {escape(verdict.verdict)}" href="{href}" tabindex="-1"><title>{escape(tip)}</title>'
            f"{_shape(verdict.verdict, _x(scale, gap.gap_ms), y)}</a>"
        )


def _shape(verdict: str, x: float, y: float) -> str:
    """Draw the mark of a run: a dot if valid, a cross if invalid, a diamond if unknown."""
    if verdict == "invalid":
        return f'<path d="M{x - DOT_PX:.1f} {y - DOT_PX}l10 10m0-10l-10 10"/>'
    if verdict == "unknown":
        return f'<path d="M{x:.1f} {y - DOT_PX - 1}l6 6-6 6-6-6z"/>'
    return f'<circle cx="{x:.1f}" cy="{y}" r="{DOT_PX}"/>'
