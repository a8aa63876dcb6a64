"""The panels of the timeline over one time scale, from the anomalies at the top to the active controller."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from types import MappingProxyType
from typing import Any

from kraft.sim.chaos.history import HistoryEventType
from kraft.sim.chaos.report.colours import node_colour
from kraft.sim.chaos.report.formats import clipped, clipped_front, format_at, format_ms, format_rate
from kraft.sim.chaos.report.operations import OUTCOMES, DrawnOperation, counted_function
from kraft.sim.chaos.report.plot import (
    LEFT_PX,
    RIGHT_PX,
    WIDTH_PX,
    LogScale,
    Panel,
    TimeScale,
    box,
    decade_text,
    item,
    label,
    track,
)
from kraft.sim.chaos.report.run_data import RunData
from kraft.sim.chaos.report.state_spans import InSyncState, LeaderState, StateSpan

RATE_PX, MISSES_PX, LATENCY_PX, OUTPUT_PX, ANOMALY_PX = 84, 26, 170, 22, 20
HEAD_PX, LANE_PX, LANE_GAP_PX = 18, 18, 4
GAP_TEXT_PX = 50
OUTPUT_MAX = 1_000
OUTPUT_CHARACTERS_MAX = 160


def panels_of(run: RunData, time: TimeScale) -> Iterator[Panel]:
    """Return the panels from top to bottom, without empty ones."""
    if run.verdict.anomalies:
        yield anomalies_panel(run, time)
    if run.rates:
        yield throughput_panel(run, time)
        if any(each.fail or each.info for each in run.rates):
            yield misses_panel(run, time)
    if run.points:
        yield latency_panel(run, time)
    if run.output:
        yield output_panel(run, time)
    if run.steps.leaders:
        yield leaders_panel(run, time)
        yield isr_panel(run, time)
    if run.steps.controller:
        yield controller_panel(run, time)


def throughput_panel(run: RunData, time: TimeScale) -> Panel:
    """Draw successes per second as steps, and over them the longest gap of each fault."""
    top = max(each.ok for each in run.rates) or 1.0
    points = [
        f"{time.x(at):.1f} {RATE_PX * (1 - each.ok / top * 0.84):.1f}"
        for each in run.rates
        for at in (each.begin_ms, each.end_ms)
    ]
    base = f"{time.x(run.rates[-1].end_ms):.1f} {RATE_PX} {time.x(run.rates[0].begin_ms):.1f} {RATE_PX}"
    bins = (
        item(
            box(time.x(each.begin_ms), 0, time.x(each.end_ms), RATE_PX),
            f"{format_at(each.begin_ms)} to {format_at(each.end_ms)}: {format_rate(each.ok)} ok/s, "
            f"{format_rate(each.fail)} fail/s, {format_rate(each.info)} info/s of all operations",
            "clear",
        )
        for each in run.rates
    )
    pieces = (
        f'<polygon class="rate-area" points="{" ".join(points)} {base}"/>',
        f'<polyline class="rate-line" points="{" ".join(points)}"/>',
        label(format_rate(top), LEFT_PX - 8, RATE_PX * 0.16 + 4, "value"),
        label("0", LEFT_PX - 8, RATE_PX, "value"),
        track("Throughput", bins),
        track("Gaps", _gaps(run, time)),
    )
    counted = ", ".join(sorted(str(each.value) for each in counted_function(run.operations)))
    return Panel("Throughput", RATE_PX, pieces, clipped(f"{counted}, ok/s", 22))


def _gaps(run: RunData, time: TimeScale) -> Iterator[str]:
    for span in run.gap_spans(GAP_TEXT_PX / (WIDTH_PX - LEFT_PX - RIGHT_PX)):
        gap, left, right = span.gap, time.x(span.begin_ms), time.x(span.end_ms)
        ended = gap.first_success_ms is not None
        end = f"it ended {format_ms(gap.first_success_ms)} after the fault's begin" if ended else "it did not end"
        places = f" ({', '.join(gap.places)})" if gap.places else ""
        tip = f"Gap of {format_ms(gap.gap_ms)} in {gap.f}{places} after fault {span.fault + 1}: {end}"
        yield item(box(left, 2, right, 5), tip, "gap")
        if span.has_room:
            yield label(format_ms(gap.gap_ms), right + 4, 9, "gap-text")


def misses_panel(run: RunData, time: TimeScale) -> Panel:
    """Draw operations per second that failed or whose outcome is unknown."""
    top = max(each.fail + each.info for each in run.rates)
    pieces = []
    for each in run.rates:
        left, right = time.x(each.begin_ms), time.x(each.end_ms)
        fail, info = (MISSES_PX * rate / top for rate in (each.fail, each.info))
        if each.fail:
            pieces.append(f'<{box(left, MISSES_PX - fail, right, fail)} class="fail-bar"/>')
        if each.info:
            pieces.append(f'<{box(left, MISSES_PX - fail - info, right, info)} class="info-bar"/>')
    pieces.append(label(format_rate(top), LEFT_PX - 8, 9, "value"))
    return Panel("Fail, info", MISSES_PX, tuple(pieces), "all operations, per s")


def latency_panel(run: RunData, time: TimeScale) -> Panel:
    """Draw one mark per operation at its begin: a dot if ok, a cross if failed, a diamond if unknown."""
    scale = LogScale.over((each.latency_ms for each in run.points), LATENCY_PX)
    grid = []
    for decade in scale.decades_ms:
        y = scale.y(decade)
        grid.append(f'<line class="grid" x1="{LEFT_PX}" x2="{WIDTH_PX - RIGHT_PX}" y1="{y:.1f}" y2="{y:.1f}"/>')
        grid.append(label(decade_text(decade), LEFT_PX - 8, y + 4, "value"))
    paths = "".join(
        f'<path class="mark {outcome.value}" d="{_marks(run, time, scale, outcome)}"/>' for outcome in OUTCOMES
    )
    hit = f'<rect class="clear" x="{LEFT_PX}" y="0" width="{WIDTH_PX - LEFT_PX - RIGHT_PX}" height="{LATENCY_PX}"/>'
    shape = {
        "from": time.from_ms,
        "to": time.to_ms,
        "left": LEFT_PX,
        "right": WIDTH_PX - RIGHT_PX,
        "low": scale.low_ms,
        "high": scale.high_ms,
        "height": LATENCY_PX,
    }
    about = (
        f"{len(run.points):,} operations. Left and right arrow: the previous and next one. "
        "Up and down arrow: the previous and next one that failed or is unknown."
    )
    points = (
        f'<g id="points" class="points" tabindex="0" role="application" aria-label="{escape(about)}" '
        f'data-scale="{escape(json.dumps(shape))}">{hit}{paths}<circle class="ring" r="6" cx="-20" cy="-20"/></g>'
    )
    return Panel("Latency", LATENCY_PX, (*grid, points), "per operation, log")


SHAPES = MappingProxyType(
    {
        HistoryEventType.OK: (0.0, 0.0, "h0"),
        HistoryEventType.FAIL: (-3.0, -3.0, "l6 6m0-6l-6 6"),
        HistoryEventType.INFO: (0.0, -3.5, "l3.5 3.5-3.5 3.5-3.5-3.5z"),
    }
)
"""Outcome → start of its mark relative to the point, and its strokes."""


def _marks(run: RunData, time: TimeScale, scale: LogScale, outcome: HistoryEventType) -> str:
    right, down, strokes = SHAPES[outcome]
    return "".join(
        f"M{time.x(each.begin_ms) + right:.1f} {scale.y(each.latency_ms) + down:.1f}{strokes}"
        for each in run.points
        if each.outcome is outcome
    )


def points_data(run: RunData) -> Mapping[str, Any]:
    """Return the data that the page's script shows of each mark: names once, and a row of numbers per operation."""
    names: dict[str, dict[str, int]] = {"f": {}, "process": {}, "place": {}, "error": {"": 0}}

    def number(kind: str, name: str) -> int:
        return names[kind].setdefault(clipped(name, OUTPUT_CHARACTERS_MAX), len(names[kind]))

    def row(each: DrawnOperation) -> list[float]:
        return [
            round(each.begin_ms, 1),
            round(each.latency_ms, 2),
            OUTCOMES.index(each.outcome),
            number("f", each.f.value),
            number("process", each.process),
            number("place", each.place),
            number("error", each.error),
            each.index,
        ]

    rows = [row(each) for each in run.points]
    return {
        "outcome": [each.value for each in OUTCOMES],
        **{kind: list(of) for kind, of in names.items()},
        "rows": rows,
    }


def output_panel(run: RunData, time: TimeScale) -> Panel:
    """Draw a tick for each line that the application printed; evenly thinned if there are very many."""
    every = -(-len(run.output) // OUTPUT_MAX)
    ticks = (
        item(
            f'rect x="{time.x(line.time_ms) - 1:.1f}" y="{2 if line.stream == "stdout" else 8}" width="2" height="12"',
            f"{format_at(line.time_ms)} {line.stream}: {clipped(line.text, OUTPUT_CHARACTERS_MAX)}",
            "output" if line.stream == "stdout" else "output error",
        )
        for line in run.output[::every]
    )
    pieces = (track("Lines that the application printed", ticks),)
    return Panel("Application", OUTPUT_PX, pieces, "")


def anomalies_panel(run: RunData, time: TimeScale) -> Panel:
    """Draw a triangle at each operation that proves an anomaly; it links to the anomaly."""
    marks = []
    for number, anomaly in enumerate(run.verdict.anomalies, start=1):
        for at_ms in sorted({run.time_by_index[each] for each in anomaly.operations if each in run.time_by_index}):
            x = time.x(at_ms)
            tip = f"{format_at(at_ms)}: {anomaly.name} {anomaly.place}. {anomaly.text}"
            shape = f'<path d="M{x:.1f} 3l6 11h-12z"/>'
            css = "item anomaly allowed" if anomaly.is_allowed else "item anomaly"
            marks.append(
                f'<a class="{css}" href="#anomaly-{number}" tabindex="-1"><title>{escape(tip)}</title>{shape}</a>'
            )
    return Panel("Anomalies", ANOMALY_PX, (track("Operations that prove anomalies", marks),))


def leaders_panel(run: RunData, time: TimeScale) -> Panel:
    lanes = run.steps.leaders
    nodes = run.steps.nodes
    pieces = []
    for number, (place, steps) in enumerate(lanes.items()):
        top = HEAD_PX + number * (LANE_PX + LANE_GAP_PX)
        pieces.append(label(clipped_front(place, 18), LEFT_PX - 8, top + 13, "lane"))
        pieces += [_leader_step(place, step, time, top, nodes) for step in steps]
    return Panel("Leader, epoch", _lanes_px(len(lanes)), (track("Leaders of partitions", pieces),))


def _lanes_px(lanes: int) -> float:
    return HEAD_PX + lanes * (LANE_PX + LANE_GAP_PX)


def _leader_step(place: str, step: StateSpan[LeaderState], time: TimeScale, top: float, nodes: tuple[int, ...]) -> str:
    leader, epoch = step.state.leader, step.state.leader_epoch
    return _node_step(place, step, time, top, leader, epoch, nodes, "leader")


def _node_step(
    place: str,
    step: StateSpan[Any],
    time: TimeScale,
    top: float,
    node: int,
    epoch: int,
    nodes: tuple[int, ...],
    what: str,
) -> str:
    left, right = time.x(step.begin_ms), time.x(step.end_ms)
    who = f"{what} {node}" if node >= 0 else f"no {what}"
    tip = f"{place}: {who}, epoch {epoch}, {format_at(step.begin_ms)} to {format_at(step.end_ms)}"
    fill = f' style="fill:{node_colour(node, nodes)}"' if node >= 0 else ""
    text = f"{node} · {epoch}" if node >= 0 else f"none · {epoch}"
    css = "node" if node >= 0 else "node none"
    shown = label(text, left + 4, top + 13, "on-node", right - left - 6)
    return item(box(left, top, right, LANE_PX), tip, css, fill) + shown


def isr_panel(run: RunData, time: TimeScale) -> Panel:
    lanes = run.steps.isrs
    pieces = []
    for number, (place, steps) in enumerate(lanes.items()):
        top = HEAD_PX + number * (LANE_PX + LANE_GAP_PX)
        pieces.append(label(clipped_front(place, 18), LEFT_PX - 8, top + 13, "lane"))
        pieces += [_isr_step(place, step, time, top) for step in steps]
    return Panel("ISR size", _lanes_px(len(lanes)), (track("In-sync replicas of partitions", pieces),))


def _isr_step(place: str, step: StateSpan[InSyncState], time: TimeScale, top: float) -> str:
    size, replicas = len(step.state.isr), max(step.state.replicas, 1)
    height = LANE_PX * min(1.0, max(size / replicas, 0.12))
    left, right = time.x(step.begin_ms), time.x(step.end_ms)
    css = "isr full" if size >= replicas else "isr least" if size <= 1 else "isr short"
    nodes = ",".join(map(str, step.state.isr)) or "nobody"
    tip = f"{place}: ISR {nodes} ({size} of {replicas}), {format_at(step.begin_ms)} to {format_at(step.end_ms)}"
    shown = label(str(size), left + 4, top + LANE_PX - 3, "isr-size", right - left - 4)
    return item(box(left, top + LANE_PX - height, right, height), tip, css) + (shown if size < replicas else "")


def controller_panel(run: RunData, time: TimeScale) -> Panel:
    pieces = [
        _node_step("quorum", step, time, 0, step.state.node, step.state.epoch, run.steps.nodes, "controller")
        for step in run.steps.controller
    ]
    return Panel("Controller, epoch", LANE_PX, (track("Active controller", pieces),))
