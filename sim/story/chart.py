"""One SVG picture over virtual time with one row for each fault, node, partition or client. A finding is a red line
over all rows; nodes and partitions that it names have red names and frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from types import MappingProxyType

from kraft.sim.story.lanes import Lane, LaneMark, LaneSegment

LANE_PX, GAP_PX = 18, 4
NAME_PX, HEAD_PX, FOOT_PX = 150, 22, 6
RIGHT_PX = 30
"""Space in pixels to the right of the rows, for half of the last label of the axis."""
CHARACTER_PX = 6
THINNEST_PX = 2.0
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, MINUTE_MS)
LONG_TICKS = (2 * MINUTE_MS, 5 * MINUTE_MS, 10 * MINUTE_MS, 30 * MINUTE_MS, HOUR_MS, 6 * HOUR_MS, 24 * HOUR_MS)
TICKS_MAX = 16

COLOURS = MappingProxyType(
    {
        "fault": "#e8a33d",
        "leader": "#1f6f54",
        "follower": "#a9d3c3",
        "observer": "#d3e4ea",
        "without a leader": "#f3e2a0",
        "starting": "#d6d6d6",
        "fenced": "#c8a98f",
        "serving": "#8fb8de",
        "down": "#4a4a4a",
        "leaderless": "#d9534f",
        "good": "#3c9d6b",
        "bad": "#a8326e",
        "open": "#a08cc0",
    }
)
LEADER_COLOURS = ("#7aa6d8", "#b9d58a", "#e3b778", "#c9a3d6", "#8fd0cf", "#d8a0a0")
DARK = frozenset({"leader", "down"})
MARKS = MappingProxyType({"truncation": "✂", "snapshot install": "◆", "fence": "✕"})


class Chart:
    """A picture whose rows are `lanes`, between two times, `width_px` wide."""

    def __init__(self, lanes: Sequence[Lane], from_ms: int, to_ms: int, width_px: int, found_ms: int | None) -> None:
        self._lanes = lanes
        self._from_ms = from_ms
        self._to_ms = max(to_ms, from_ms + 1)
        self._width_px = width_px
        self._found_ms = found_ms

    def svg(self) -> str:
        height = HEAD_PX + len(self._lanes) * (LANE_PX + GAP_PX) + FOOT_PX
        width = NAME_PX + self._width_px + RIGHT_PX
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img">',
            *self._axis(height),
        ]
        for number, lane in enumerate(self._lanes):
            parts += self._lane(lane, HEAD_PX + number * (LANE_PX + GAP_PX))
        if self._found_ms is not None:
            at = self._x(self._found_ms)
            parts.append(f'<line class="found" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height}"/>')
        return "\n".join([*parts, "</svg>"])

    def _x(self, at_ms: int) -> float:
        share = (at_ms - self._from_ms) / (self._to_ms - self._from_ms)
        return NAME_PX + share * self._width_px

    def _axis(self, height: int) -> Iterator[str]:
        for at_ms, text in time_ticks(self._from_ms, self._to_ms):
            at = self._x(at_ms)
            yield f'<line class="tick" x1="{at:.1f}" x2="{at:.1f}" y1="14" y2="{height}"/>'
            yield f'<text class="axis" x="{at:.1f}" y="11">{text}</text>'

    def _lane(self, lane: Lane, top: int) -> Iterator[str]:
        css = "name evidence" if lane.is_evidence else "name"
        yield f'<text class="{css}" x="{NAME_PX - 8}" y="{top + 13}">{escape(lane.name)}</text>'
        frame = "lane evidence" if lane.is_evidence else "lane"
        yield f'<rect class="{frame}" x="{NAME_PX}" y="{top}" width="{self._width_px}" height="{LANE_PX}"/>'
        for segment in lane.segments:
            if segment.to_ms >= self._from_ms and segment.from_ms <= self._to_ms:
                yield self._segment(segment, top)
        for mark in lane.marks:
            if self._from_ms <= mark.at_ms <= self._to_ms:
                yield self._mark(mark, top)

    def _segment(self, segment: LaneSegment, top: int) -> str:
        left = self._x(max(segment.from_ms, self._from_ms))
        width = max(THINNEST_PX, self._x(min(segment.to_ms, self._to_ms)) - left)
        tip = escape(f"{segment.from_ms}–{segment.to_ms} ms: {segment.text}")
        box = (
            f'<rect x="{left:.1f}" y="{top + 1}" width="{width:.1f}" height="{LANE_PX - 2}" '
            f'fill="{_colour(segment.look)}"><title>{tip}</title></rect>'
        )
        if len(segment.label) * CHARACTER_PX > width - 4 or not segment.label:
            return box
        css = "label dark" if segment.look in DARK else "label"
        return f'{box}<text class="{css}" x="{left + 3:.1f}" y="{top + 13}">{escape(segment.label)}</text>'

    def _mark(self, mark: LaneMark, top: int) -> str:
        tip = escape(f"{mark.at_ms} ms: {mark.text}")
        sign = MARKS.get(mark.look, "•")
        return f'<text class="mark" x="{self._x(mark.at_ms):.1f}" y="{top + 14}">{sign}<title>{tip}</title></text>'


def time_ticks(from_ms: int, to_ms: int) -> Iterator[tuple[int, str]]:
    """Return round times between two times, at most TICKS_MAX + 1, each with its label."""
    span_ms = to_ms - from_ms
    step_ms = next((tick for tick in (*TICKS, *LONG_TICKS) if span_ms / tick <= TICKS_MAX), LONG_TICKS[-1])
    for at_ms in range(-(-from_ms // step_ms) * step_ms, to_ms + 1, step_ms):
        yield at_ms, f"{at_ms / 1000:g} s" if step_ms >= 1_000 else f"{at_ms} ms"


def _colour(look: str) -> str:
    if look.startswith("led by "):
        return LEADER_COLOURS[int(look.removeprefix("led by ")) % len(LEADER_COLOURS)]
    return COLOURS[look]
