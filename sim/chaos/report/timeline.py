"""The timeline: one picture in SVG, with the faults as bands over all panels."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from kraft.sim.chaos.judge import RunVerdict
from kraft.sim.chaos.report.formats import clipped, fault_words, format_at, format_gap, format_ms, longest_gap
from kraft.sim.chaos.report.panels import panels_of
from kraft.sim.chaos.report.plot import CHARACTER_PX, RIGHT_PX, WIDTH_PX, Panel, TimeScale, box, label, track
from kraft.sim.chaos.report.run_data import RunData
from kraft.sim.chaos.run.run_folder import FaultRecord
from kraft.sim.story.chart import time_ticks

AXIS_PX, FOOT_PX, PANEL_GAP_PX, BAND_PX = 22, 14, 16, 20
ROWS_MAX = 6
"""Maximum number of concurrent faults that are drawn in rows with their names; if there are more, only numbers are
shown."""
NUMBERED_ROWS_MAX = 14
MANY_FAULTS = 8
"""Number of faults above which the bands of faults are drawn paler."""


def timeline_svg(run: RunData) -> str:
    """Draw the whole timeline as SVG. It needs the style sheet of the page."""
    time = TimeScale(run.from_ms, run.to_ms)
    layout = _layout(run, time)
    rows = [row for row, _ in layout]
    panels = list(panels_of(run, time))
    faults_px = (max(rows) + 1) * BAND_PX + 4 if rows else 0.0
    top = AXIS_PX + faults_px
    height = top + PANEL_GAP_PX + sum(panel.height_px + PANEL_GAP_PX for panel in panels) + FOOT_PX + AXIS_PX
    css = "timeline many" if len(run.faults) > MANY_FAULTS else "timeline"
    parts = [
        f'<svg class="{css}" viewBox="0 0 {WIDTH_PX} {height:.0f}" role="group" aria-label="Timeline of the run">',
        *_axis(time, height),
        *(_band(run, number, fault, time, height) for number, fault in enumerate(run.faults)),
        *_moments(run, time, height),
    ]
    if rows:
        parts.append(label("Faults", 4, AXIS_PX + 14, "panel"))
        names = (_name(run, number, row, text, time) for number, (row, text) in enumerate(layout))
        parts.append(track("Faults: left and right arrow move between them", names))
    for panel in panels:
        top += PANEL_GAP_PX
        parts.append(_panel(panel, top))
        top += panel.height_px
    return "\n".join([*parts, "</svg>"])


def _panel(panel: Panel, top: float) -> str:
    note = label(panel.note, 4, 24, "note") if panel.note else ""
    return f'<g transform="translate(0 {top:.1f})">{label(panel.name, 4, 11, "panel")}{note}{"".join(panel.pieces)}</g>'


def _axis(time: TimeScale, height: float) -> Iterator[str]:
    for at_ms, text in time_ticks(int(time.from_ms), int(time.to_ms)):
        x = time.x(at_ms)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{AXIS_PX - 4}" y2="{height - AXIS_PX:.0f}"/>'
        yield label(text, x, AXIS_PX - 9, "axis")
        yield label(text, x, height - 6, "axis")


def _layout(run: RunData, time: TimeScale) -> list[tuple[int, str]]:
    """Return for each fault the row of its bar and the text on it."""
    names = [_short(number, fault) for number, fault in enumerate(run.faults)]
    rows = _rows(run, time, names)
    if rows and max(rows) >= ROWS_MAX:
        names = [str(number) for number in range(1, len(run.faults) + 1)]
        rows = [min(row, NUMBERED_ROWS_MAX - 1) for row in _rows(run, time, names)]
    return list(zip(rows, names, strict=True))


def _rows(run: RunData, time: TimeScale, names: list[str]) -> list[int]:
    """Return for each fault the first row in which it covers no other fault."""
    right_of_row: list[float] = []
    rows: list[int] = []
    for fault, name in zip(run.faults, names, strict=True):
        left, right = _extent(run, fault, name, time)
        row = next((row for row, taken in enumerate(right_of_row) if taken < left), len(right_of_row))
        right_of_row[row : row + 1] = [right + 4]
        rows.append(row)
    return rows


def _extent(run: RunData, fault: FaultRecord, name: str, time: TimeScale) -> tuple[float, float]:
    """Return the left and right x position of a bar with its text."""
    left, right = time.x(fault.begin_ms), time.x(run.fault_end_ms(fault))
    text_px = len(name) * CHARACTER_PX + 8
    if right - left < text_px and left + text_px > WIDTH_PX - RIGHT_PX:
        return right - text_px, right
    return left, max(right, left + text_px)


def _short(number: int, fault: FaultRecord) -> str:
    nodes = f" {','.join(map(str, fault.nodes))}" if fault.nodes else ""
    return clipped(f"{number + 1} {fault.kind}{nodes}", 28)


def _name(run: RunData, number: int, row: int, text: str, time: TimeScale) -> str:
    """Draw a fault's bar with its name; it links to the fault's row in the table."""
    fault = run.faults[number]
    left, right = time.x(fault.begin_ms), time.x(run.fault_end_ms(fault))
    top = AXIS_PX + row * BAND_PX
    text_left, _ = _extent(run, fault, text, time)
    css = "fault missed" if fault.missed else "fault"
    return (
        f'<a class="item {css}" href="#fault-{number + 1}" tabindex="-1" data-fault="{number + 1}">'
        f"<title>{escape(fault_tip(run, number))}</title>"
        f"<{box(left, top, right, BAND_PX - 4)}/>{label(text, text_left + 4, top + 12)}</a>"
    )


def fault_tip(run: RunData, number: int) -> str:
    """Describe a fault in one line."""
    fault = run.faults[number]
    end = "until the end" if fault.end_ms is None else f"to {format_at(fault.end_ms)}"
    words = [f"Fault {number + 1}, {fault_words(fault)}: {fault.text}", f"{format_at(fault.begin_ms)} {end}"]
    if fault.missed:
        words.append(f"did not happen: {fault.missed}")
    words += evidence_of(run.verdict, number)
    gap = longest_gap(run.gaps_of(number))
    if gap is not None:
        words.append(f"gap {format_gap(gap)}, which ended {format_ms(gap.first_success_ms)} after the begin")
    return ". ".join(words)


def evidence_of(verdict: RunVerdict, fault: int) -> list[str]:
    """Return the evidence that a fault took effect, or a text that none was found."""
    return [
        each.evidence if each.is_seen else f"no effect seen: {each.evidence}"
        for each in verdict.effects
        if each.fault == fault
    ]


def _band(run: RunData, number: int, fault: FaultRecord, time: TimeScale, height: float) -> str:
    if fault.missed:
        return ""
    left, right = time.x(fault.begin_ms), time.x(run.fault_end_ms(fault))
    return f'<{box(left, AXIS_PX, right, height - 2 * AXIS_PX)} class="band" id="band-{number + 1}"/>'


def _moments(run: RunData, time: TimeScale, height: float) -> Iterator[str]:
    """Draw two dashed vertical lines: one at the heal, one at the end of the clients' work."""
    foot = height - AXIS_PX
    moments = [(run.info.healed_ms, "healed"), (run.info.duration_ms, "clients end")]
    for number, (at_ms, text) in enumerate(moments):
        if run.from_ms < at_ms <= run.to_ms:
            x, y = time.x(at_ms), foot - 4 - 11 * number
            yield f'<line class="moment" x1="{x:.1f}" x2="{x:.1f}" y1="{AXIS_PX}" y2="{foot:.0f}"/>'
            left = " left" if x + len(text) * CHARACTER_PX + 4 > WIDTH_PX else ""
            yield label(text, x + (-4 if left else 4), y, "moment-text" + left)
