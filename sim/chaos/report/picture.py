"""The timeline of a run as a picture (PNG), like the one on the page, for a document or a ticket."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.sim.chaos.history import HistoryEvent, HistoryEventType
from kraft.sim.chaos.judge import RunVerdict
from kraft.sim.chaos.report.colours import LIGHT, node_colour
from kraft.sim.chaos.report.extra import import_extra
from kraft.sim.chaos.report.formats import SIGNS, clipped, clipped_front, format_ms, headline
from kraft.sim.chaos.report.run_data import RunData
from kraft.sim.chaos.report.timeline import MANY_FAULTS
from kraft.sim.chaos.run.run_folder import ClusterSample, FaultRecord, OutputLine, RunInfo

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCHES, DPI = 11.0, 130
HEAD_INCHES, FOOT_INCHES, SPACE = 1.12, 0.48, 0.16
MARKERS = MappingProxyType(
    {
        HistoryEventType.OK: ("o", 5.0, 0.5),
        HistoryEventType.FAIL: ("x", 22.0, 1.0),
        HistoryEventType.INFO: ("D", 14.0, 0.9),
    }
)
"""Outcome → marker, its area in points², opacity."""
LANE = 0.8
FAULTS_NAMED_MAX = 12
SHORT_NAME = 9
TEXT_SHARE = 0.06
"""Share of the picture's width that the text of a gap takes."""

Drawing = Callable[[RunData, "Axes"], None]


def draw_run(
    info: RunInfo,
    verdict: RunVerdict,
    history: Sequence[HistoryEvent],
    faults: Sequence[FaultRecord],
    samples: Sequence[ClusterSample],
    output: Sequence[OutputLine],
    path: Path,
) -> None:
    """Write the picture to `path`. MissingExtra if matplotlib is not installed."""
    figures = import_extra("matplotlib.figure")
    run = RunData(info, verdict, history, faults, samples, output)
    panels = list(_panels(run))
    heights = [height for _, height in panels]
    height = HEAD_INCHES + FOOT_INCHES + (1 + SPACE) * sum(heights)
    figure = figures.Figure(figsize=(WIDTH_INCHES, height), dpi=DPI, facecolor="white")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for (draw, _), each in zip(panels, axes, strict=True):
        _prepare(run, each)
        draw(run, each)
    _name_faults(run, axes[0])
    axes[-1].set_xlabel("seconds since the clients began", fontsize=8, color=LIGHT["soft"])
    _write_title(run, figure)
    left = 0.19 if any(len(name) > SHORT_NAME for name in run.steps.leaders) else 0.145
    figure.subplots_adjust(
        left=left, right=0.985, top=1 - HEAD_INCHES / height, bottom=FOOT_INCHES / height, hspace=SPACE
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(path, format="png")


def _panels(run: RunData) -> Iterator[tuple[Drawing, float]]:
    """Return each panel with its height in inches; there is at least one."""
    yield _draw_throughput, 1.3
    if run.points:
        yield _draw_latency, 2.2
    if run.output:
        yield _draw_output, 0.3
    lanes = len(run.steps.leaders)
    if lanes:
        yield _draw_leaders, 0.25 + 0.2 * lanes
        yield _draw_isrs, 0.25 + 0.2 * lanes
    if run.steps.controller:
        yield _draw_controller, 0.32


def _prepare(run: RunData, axes: Axes) -> None:
    axes.set_xlim(run.from_ms / 1000, run.to_ms / 1000)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LIGHT["line"])
    axes.tick_params(which="both", colors=LIGHT["soft"], labelsize=8)
    shade = 0.14 if len(run.faults) <= MANY_FAULTS else 0.06
    for fault in run.faults:
        if not fault.missed:
            end = run.fault_end_ms(fault) / 1000
            axes.axvspan(fault.begin_ms / 1000, end, color=LIGHT["fault"], alpha=shade, lw=0)
            axes.axvline(fault.begin_ms / 1000, color=LIGHT["fault"], lw=0.8, alpha=0.7)
    for moment in (run.info.healed_ms, run.info.duration_ms):
        axes.axvline(moment / 1000, color=LIGHT["soft"], lw=0.8, ls=(0, (4, 3)))


def _write_title(run: RunData, figure: Figure) -> None:
    info, verdict, title = run.info, run.verdict, clipped(run.info.title or run.info.scenario, 90)
    height = figure.get_figheight()
    lines = [
        (0.22, f"{title}: {SIGNS[verdict.verdict]} {verdict.verdict}", 13, verdict.verdict, "bold"),
        (0.45, clipped(headline(verdict), 150), 9, "ink", "normal"),
        (0.65, f"{info.cluster}, client {info.client}, seed {info.seed}, {info.started_at}", 8, "soft", "normal"),
    ]
    for down, text, size, colour, weight in lines:
        figure.text(
            0.02,
            1 - down / height,
            _plain(text),
            fontsize=size,
            color=LIGHT[colour],
            weight=weight,
            va="center",
            parse_math=False,
        )


def _name_faults(run: RunData, axes: Axes) -> None:
    """Write fault names above the first panel, where their bands begin. A name that would cover another one is reduced
    to its number."""
    for at_ms, text in ((run.info.healed_ms, " healed"), (run.info.duration_ms, "clients end ")):
        if at_ms > run.from_ms:
            at, coordinates = (at_ms / 1000, 0.05), ("data", "axes fraction")
            side = "left" if text.startswith(" ") else "right"
            axes.annotate(text, at, xycoords=coordinates, fontsize=7, color=LIGHT["soft"], ha=side)
    span_ms = run.to_ms - run.from_ms
    free_ms = run.from_ms
    for number, fault in enumerate(run.faults, start=1):
        nodes = f" {','.join(map(str, fault.nodes))}" if fault.nodes else ""
        missed = " (did not happen)" if fault.missed else ""
        text = (
            clipped(f"{number} {fault.kind}{nodes}", 26) + missed
            if len(run.faults) <= FAULTS_NAMED_MAX
            else str(number)
        )
        width_ms = len(text) * span_ms / 165
        at_ms = max(fault.begin_ms, free_ms)
        if at_ms - fault.begin_ms > width_ms:
            continue
        axes.annotate(
            _plain(text), (at_ms / 1000, 1.03), xycoords=("data", "axes fraction"), fontsize=8, color=LIGHT["fault"],
            parse_math=False, annotation_clip=False,
        )  # fmt: skip
        free_ms = at_ms + width_ms


def _draw_throughput(run: RunData, axes: Axes) -> None:
    _heading(axes, "ok per second")
    if not run.rates:
        axes.text(0.5, 0.5, "no operation", transform=axes.transAxes, ha="center", color=LIGHT["soft"])
        return
    edges = [each.begin_ms / 1000 for each in run.rates] + [run.rates[-1].end_ms / 1000]
    axes.stairs([each.ok for each in run.rates], edges, fill=True, color=LIGHT["ok"], alpha=0.2)
    axes.stairs([each.ok for each in run.rates], edges, color=LIGHT["ok"], lw=1.2)
    for outcome in (HistoryEventType.FAIL, HistoryEventType.INFO):
        found = [getattr(each, outcome.value) for each in run.rates]
        if any(found):
            axes.stairs(
                found, edges, fill=True, color=LIGHT[outcome.value], alpha=0.8, label=f"{outcome.value} per second"
            )
    axes.set_ylim(0, max(max(each.ok for each in run.rates), 1) * 1.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper right", fontsize=7, frameon=False, ncols=2)
    _write_gaps(run, axes)


def _write_gaps(run: RunData, axes: Axes) -> None:
    """Draw the longest gap of each fault as a bar, with its length in words if there is room."""
    top = axes.get_ylim()[1] * 0.9
    for span in run.gap_spans(TEXT_SHARE):
        axes.hlines(top, span.begin_ms / 1000, span.end_ms / 1000, color=LIGHT["ink"], lw=2.5)
        if span.has_room:
            text = f" {format_ms(span.gap.gap_ms)}"
            axes.annotate(text, (span.end_ms / 1000, top), fontsize=8, va="center", color=LIGHT["ink"])


def _draw_latency(run: RunData, axes: Axes) -> None:
    _heading(axes, "latency (ms)")
    axes.set_yscale("log")
    for outcome, (marker, size, alpha) in MARKERS.items():
        found = [each for each in run.points if each.outcome is outcome]
        if found:
            axes.scatter(
                [each.begin_ms / 1000 for each in found], [max(each.latency_ms, 0.1) for each in found],
                s=size, marker=marker, color=LIGHT[outcome.value], alpha=alpha, linewidths=1 if marker == "x" else 0,
                label=outcome.value,
            )  # fmt: skip
    _draw_proofs(run, axes)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.grid(axis="y", color=LIGHT["line"], lw=0.5)
    axes.legend(loc="upper right", fontsize=7, frameon=False, ncols=4)


def _draw_proofs(run: RunData, axes: Axes) -> None:
    """Draw triangles at the bottom of the panel: the operations that prove anomalies which are not permitted."""
    proving = {index for each in run.verdict.anomalies if not each.is_allowed for index in each.operations}
    times = sorted(run.time_by_index[index] / 1000 for index in proving if index in run.time_by_index)
    if times:
        foot = axes.get_xaxis_transform()
        feet = [0.03] * len(times)
        axes.scatter(times, feet, s=36, marker="^", color=LIGHT["invalid"], transform=foot, label="proves an anomaly")


def _draw_output(run: RunData, axes: Axes) -> None:
    _heading(axes, "application")
    axes.set_yticks([])
    axes.vlines([line.time_ms / 1000 for line in run.output], 0, 1, color=LIGHT["accent"], lw=1)


def _draw_leaders(run: RunData, axes: Axes) -> None:
    _heading(axes, "leader · epoch")
    _name_lanes(axes, list(run.steps.leaders))
    for lane, steps in enumerate(run.steps.leaders.values()):
        for step in steps:
            leader = step.state.leader
            colour = node_colour(leader, run.steps.nodes) if leader >= 0 else "white"
            text = f"{leader if leader >= 0 else 'none'} · {step.state.leader_epoch}"
            _bar(run, axes, lane, step.begin_ms, step.end_ms, LANE, colour, text)


def _draw_isrs(run: RunData, axes: Axes) -> None:
    _heading(axes, "ISR size")
    _name_lanes(axes, list(run.steps.isrs))
    for lane, steps in enumerate(run.steps.isrs.values()):
        for step in steps:
            size, replicas = len(step.state.isr), max(step.state.replicas, 1)
            colour = LIGHT["full" if size >= replicas else "least" if size <= 1 else "short"]
            height = LANE * min(1.0, max(size / replicas, 0.12))
            _bar(run, axes, lane, step.begin_ms, step.end_ms, height, colour, str(size) if size < replicas else "")


def _draw_controller(run: RunData, axes: Axes) -> None:
    _heading(axes, "controller · epoch")
    _name_lanes(axes, [""])
    for step in run.steps.controller:
        node = step.state.node
        colour = node_colour(node, run.steps.nodes) if node >= 0 else "white"
        text = f"{node if node >= 0 else 'none'} · {step.state.epoch}"
        _bar(run, axes, 0, step.begin_ms, step.end_ms, LANE, colour, text)


def _bar(
    run: RunData, axes: Axes, lane: int, begin_ms: float, end_ms: float, height: float, colour: str, text: str
) -> None:
    """Draw the time span of a state as a bar in its row, with its text if the text fits."""
    ground = lane + LANE / 2
    axes.broken_barh(
        [(begin_ms / 1000, (end_ms - begin_ms) / 1000)], (ground - height, height), facecolors=colour,
        edgecolors=LIGHT["fail"] if colour == "white" else "white", linewidth=0.6,
    )  # fmt: skip
    if text and (end_ms - begin_ms) / (run.to_ms - run.from_ms) * 170 > len(text) + 1:
        axes.text(begin_ms / 1000, ground - max(height / 2, 0.2), f" {text}", fontsize=7, va="center", clip_on=True)


def _name_lanes(axes: Axes, names: list[str]) -> None:
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), [_plain(clipped_front(name, 15)) for name in names])
    for text in axes.get_yticklabels():
        text.set_parse_math(False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _heading(axes: Axes, text: str) -> None:
    """Write the panel's name at the left edge of the picture."""
    at, coordinates = (0.02, 1.0), ("figure fraction", "axes fraction")
    axes.annotate(text, at, xycoords=coordinates, fontsize=8, color=LIGHT["soft"], va="top", annotation_clip=False)


def _plain(text: str) -> str:
    return " ".join(text.split())
