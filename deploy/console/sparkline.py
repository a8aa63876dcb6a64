"""Pure: a small line chart as unstyled SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

PAD = 2


def sparkline(
    values: Sequence[float], *, label: str, width: int = 160, height: int = 32, times: Sequence[float] | None = None
) -> str:
    """Return an SVG image of the values from left to right, with zero at the bottom edge. `label` is the text for
    screen readers. `times` gives the horizontal positions of the values; without it, they are evenly spaced. A single
    value is drawn as a dot."""
    head = (
        f'<svg class="spark" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label, quote=True)}"><title>{escape(label)}</title>'
    )
    if not values:
        return f"{head}</svg>"
    at = list(times) if times is not None else list(range(len(values)))
    span = (at[-1] - at[0]) or 1
    top = max(max(values), 0.0) or 1.0
    points = [
        (PAD + (x - at[0]) / span * (width - 2 * PAD), height - PAD - max(y, 0.0) / top * (height - 2 * PAD))
        for x, y in zip(at, values, strict=True)
    ]
    last_x, last_y = points[-1]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"{points[0][0]:.1f},{height - PAD} {line} {last_x:.1f},{height - PAD}"
    return (
        f'{head}<polygon points="{area}"/><polyline points="{line}"/>'
        f'<circle cx="{last_x:.1f}" cy="{last_y:.1f}" r="2"/></svg>'
    )
