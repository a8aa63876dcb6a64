"""The timeline of a run as a picture (PNG): what the page shows, for a document or a ticket."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kraft.sim.chaos.history import EventType, HistoryEvent
from kraft.sim.chaos.judge import Verdict
from kraft.sim.chaos.report.colours import LIGHT, NODES, node_colour
from kraft.sim.chaos.report.extra import import_extra
from kraft.sim.chaos.report.formats import SIGNS, clipped, format_ms, headline, longest_gap
from kraft.sim.chaos.report.run_data import RunData
from kraft.sim.chaos.run_folder import FaultRecord, OutputLine, RunInfo, Sample

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_INCHES, DPI = 11.0, 130
MARKERS = {EventType.OK: ("o", 5.0, 0.5), EventType.FAIL: ("x", 22.0, 1.0), EventType.INFO: ("D", 14.0, 0.9)}
"""Outcome → marker, its area in points², opacity."""
LANE = 0.8
FAULTS_NAMED_MAX = 12

Drawing = Callable[[RunData, "Axes"], None]


def draw_run(
    info: RunInfo,
    verdict: Verdict,
    history: Sequence[HistoryEvent],
    faults: Sequence[FaultRecord],
    samples: Sequence[Sample],
    output: Sequence[OutputLine],
    path: Path,
) -> None:
    """Write the picture to `path`. MissingExtra if matplotlib is not installed."""
    figures = import_extra("matplotlib.figure")
    run = RunData(info, verdict, history, faults, samples, output)
    panels = list(_panels(run))
    heights = [height for _, height in panels]
    figure = figures.Figure(figsize=(WIDTH_INCHES, 1.8 + sum(heights)), dpi=DPI, facecolor="white")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for (draw, _), each in zip(panels, axes, strict=True):
        _prepare(run, each)
        draw(run, each)
    _name_faults(run, axes[0])
    axes[-1].set_xlabel("seconds since the clients began")
    _write_title(run, figure)
    figure.subplots_adjust(
        left=0.12, right=0.985, top=1 - 1.15 / (1.8 + sum(heights)), bottom=0.55 / (1.8 + sum(heights))
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(path, format="png")


def _panels(run: RunData) -> Iterator[tuple[Drawing, float]]:
    """Each panel with its height in inches; there is one at least."""
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
    axes.tick_params(colors=LIGHT["soft"], labelsize=8)
    for fault in run.faults:
        if not fault.missed:
            end = run.fault_end_ms(fault) / 1000
            axes.axvspan(fault.begin_ms / 1000, end, color=LIGHT["fault"], alpha=0.14, lw=0)
            axes.axvline(fault.begin_ms / 1000, color=LIGHT["fault"], lw=0.8, alpha=0.7)
    for moment in (run.info.healed_ms, run.info.duration_ms):
        axes.axvline(moment / 1000, color=LIGHT["soft"], lw=0.8, ls=(0, (4, 3)))


def _write_title(run: RunData, figure: object) -> None:
    info, verdict = run.info, run.verdict
    height = figure.get_figheight()  # type: ignore[attr-defined]
    lines = [
        (
            0.22,
            f"{info.title or info.scenario}: {SIGNS[verdict.verdict]} {verdict.verdict}",
            13,
            verdict.verdict,
            "bold",
        ),
        (0.45, clipped(headline(verdict), 150), 9, "ink", "normal"),
        (0.65, f"{info.cluster}, client {info.client}, seed {info.seed}, {info.started_at}", 8, "soft", "normal"),
    ]
    for down, text, size, colour, weight in lines:
        figure.text(  # type: ignore[attr-defined]
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
    """Above the first panel, each where its band begins; names that would cover another one are numbers only."""
    span_ms = run.to_ms - run.from_ms
    free_ms = run.from_ms
    for number, fault in enumerate(run.faults, start=1):
        nodes = f" {','.join(map(str, fault.nodes))}" if fault.nodes else ""
        text = clipped(f"{number} {fault.kind}{nodes}", 26) if len(run.faults) <= FAULTS_NAMED_MAX else str(number)
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
    for outcome in (EventType.FAIL, EventType.INFO):
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
    top = axes.get_ylim()[1] * 0.9
    for number, fault in enumerate(run.faults):
        gap = longest_gap(run.gaps_of(number))
        if gap is None or gap.gap_ms < 100:
            continue
        end_ms = run.to_ms if gap.first_success_ms is None else fault.begin_ms + gap.first_success_ms
        axes.hlines(top, (end_ms - gap.gap_ms) / 1000, end_ms / 1000, color=LIGHT["ink"], lw=2.5)
        axes.annotate(
            f" {format_ms(gap.gap_ms)}", (min(end_ms, run.to_ms * 0.95) / 1000, top), fontsize=8, va="center",
            color=LIGHT["ink"],
        )  # fmt: skip


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
    axes.grid(axis="y", color=LIGHT["line"], lw=0.5)
    axes.legend(loc="upper right", fontsize=7, frameon=False, ncols=3)


def _draw_output(run: RunData, axes: Axes) -> None:
    _heading(axes, "application")
    axes.set_yticks([])
    axes.vlines([line.time_ms / 1000 for line in run.output], 0, 1, color=LIGHT["accent"], lw=1)


def _draw_leaders(run: RunData, axes: Axes) -> None:
    _heading(axes, "leader · epoch")
    _name_lanes(axes, list(run.steps.leaders))
    for lane, steps in enumerate(run.steps.leaders.values()):
        for step in steps:
            colour = NODES and node_colour(step.state.leader, run.steps.brokers) if step.state.leader >= 0 else "white"
            text = f"{step.state.leader if step.state.leader >= 0 else 'none'} · {step.state.leader_epoch}"
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
    _name_lanes(axes, ["controller · epoch"])
    for step in run.steps.controller:
        node = step.state.node
        colour = node_colour(node, run.steps.controllers) if node >= 0 else "white"
        text = f"{node if node >= 0 else 'none'} · {step.state.epoch}"
        _bar(run, axes, 0, step.begin_ms, step.end_ms, LANE, colour, text)


def _bar(
    run: RunData, axes: Axes, lane: int, begin_ms: float, end_ms: float, height: float, colour: str, text: str
) -> None:
    """A step of a lane, standing on its ground, with its text if that fits."""
    ground = lane + LANE / 2
    axes.broken_barh(
        [(begin_ms / 1000, (end_ms - begin_ms) / 1000)], (ground - height, height), facecolors=colour,
        edgecolors=LIGHT["fail"] if colour == "white" else "white", linewidth=0.6,
    )  # fmt: skip
    if text and (end_ms - begin_ms) / (run.to_ms - run.from_ms) * 170 > len(text) + 1:
        axes.text(begin_ms / 1000, ground - LANE / 2, f" {text}", fontsize=7, va="center", clip_on=True)


def _name_lanes(axes: Axes, names: list[str]) -> None:
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), [_plain(clipped(name, 20)) for name in names])
    for text in axes.get_yticklabels():
        text.set_parse_math(False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _heading(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=8, color=LIGHT["soft"], pad=3) if axes.get_subplotspec() else None


def _plain(text: str) -> str:
    return " ".join(text.split())
