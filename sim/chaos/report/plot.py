"""Positions in the timeline's picture, and the pieces of SVG that all panels consist of.

An item is a piece that a user can point at or reach with the arrow keys; its title shows time and values. Items of a
track share one stop of the Tab key (see script.js).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

WIDTH_PX = 1_080
LEFT_PX, RIGHT_PX = 128, 14
THINNEST_PX = 1.5
CHARACTER_PX = 6.0


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Converts time to pixels from the left."""

    from_ms: float
    to_ms: float

    def x(self, time_ms: float) -> float:
        share = (time_ms - self.from_ms) / (self.to_ms - self.from_ms)
        return LEFT_PX + min(1.0, max(0.0, share)) * (WIDTH_PX - LEFT_PX - RIGHT_PX)


@dataclass(frozen=True, slots=True)
class Panel:
    """A part of the timeline, `height_px` high; y positions of its pieces count from its own top."""

    name: str
    height_px: float
    pieces: tuple[str, ...]
    note: str = ""
    """Text under the name, at the left."""


@dataclass(frozen=True, slots=True)
class LogScale:
    """Converts latency to pixels from the top, with whole decades."""

    low_ms: float
    high_ms: float
    height_px: float

    @classmethod
    def over(cls, latencies_ms: Iterable[float], height_px: float) -> LogScale:
        found = [max(each, 0.1) for each in latencies_ms] or [1.0]
        low = 10.0 ** math.floor(math.log10(min(found)))
        high = 10.0 ** math.ceil(math.log10(max(found)))
        return cls(low, max(high, low * 10), height_px)

    def y(self, latency_ms: float) -> float:
        share = math.log10(max(latency_ms, self.low_ms) / self.low_ms) / math.log10(self.high_ms / self.low_ms)
        return self.height_px * (1 - min(1.0, share))

    @property
    def ticks_ms(self) -> list[float]:
        """Return the decades, and 2 and 5 times each if there are few."""
        factors = (1, 2, 5) if len(self.decades_ms) <= 3 else (1,)
        found = [decade * factor for decade in self.decades_ms for factor in factors]
        return [tick for tick in found if tick <= self.high_ms]

    @property
    def decades_ms(self) -> list[float]:
        first, last = round(math.log10(self.low_ms)), round(math.log10(self.high_ms))
        return [10.0**exponent for exponent in range(first, last + 1)]


def decade_text(value_ms: float) -> str:
    """Format the label of an axis mark: `10 ms`, `2 s`."""
    return f"{value_ms / 1000:g} s" if value_ms >= 1000 else f"{value_ms:g} ms"


def item(piece: str, tip: str, css: str = "", attributes: str = "") -> str:
    """Return a piece that can be pointed at. `piece` is an SVG element's name and attributes, as `rect x="1"`."""
    name = piece.partition(" ")[0]
    return f'<{piece} class="item {css}" tabindex="-1" role="img"{attributes}><title>{escape(tip)}</title></{name}>'


def track(name: str, pieces: Iterable[str]) -> str:
    """Return a group of items between which the arrow keys move."""
    return f'<g data-track role="group" aria-label="{escape(name)}">{"".join(pieces)}</g>'


def box(left: float, top: float, right: float, height: float) -> str:
    """Return the geometry of a `rect`, with a minimum width so that it can be seen."""
    width = max(THINNEST_PX, right - left)
    return f'rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'


def label(text: str, x: float, y: float, css: str = "", room_px: float | None = None) -> str:
    """Return a text, or nothing if there is not enough room."""
    if room_px is not None and len(text) * CHARACTER_PX > room_px:
        return ""
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
