"""Draw the picture of a comparison: by which factor ours is better, line by line, and how costs grow."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot
from matplotlib.axes import Axes

from tests.bench.contest import KAFKA, OURS, Outcome, Results

OUR_COLOUR, KAFKA_COLOUR, TARGET_COLOUR = "#2a7ab0", "#b0602a", "#333333"
CURVES = (
    ("partitions-", "MB/s over partitions (RF 3, 1 KB)"),
    ("partitions-cpu-", "broker CPU s/GB over partitions"),
    ("connections-rf1-", "requests/s over connections (RF 1)"),
    ("connections-rf3-", "requests/s over connections (RF 3)"),
)


def times_ahead(outcome: Outcome) -> float | None:
    """Return the factor by which our figure is better: above 1, ours is faster or needs less."""
    if not outcome.ratio:
        return None
    return outcome.ratio if outcome.row.more_is_better else 1 / outcome.ratio


def draw(results: Results, path: Path) -> None:
    """Draw an SVG file: one bar for each figure that both clusters have, and the curves."""
    prefixes = tuple(prefix for prefix, _ in CURVES)
    bars = [
        (outcome, ahead)
        for key, outcome in results.outcomes.items()
        if (ahead := times_ahead(outcome)) is not None and not key.startswith(prefixes)
    ]
    matplotlib.rcParams |= {"svg.hashsalt": "benchmarks", "svg.fonttype": "none"}
    height = 2 + 0.3 * len(bars)
    figure, places = pyplot.subplot_mosaic(
        [["bars", "bars"], *([[CURVES[row][0], CURVES[row + 1][0]] for row in (0, 2)])],
        figsize=(11, height + 7),
        height_ratios=[height, 3.5, 3.5],
        layout="constrained",
    )
    _draw_bars(places["bars"], bars)
    for prefix, title in CURVES:
        _draw_curve(places[prefix], results, prefix, title)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)


def _draw_bars(axes: Axes, bars: list[tuple[Outcome, float]]) -> None:
    for index, (outcome, ahead) in enumerate(bars):
        colour = OUR_COLOUR if ahead >= 1 else KAFKA_COLOUR
        axes.barh(index, ahead - 1, left=1, color=colour, height=0.7)
        axes.annotate(f" {ahead:.2f} ×", (max(ahead, 1), index), va="center", fontsize=8)
        goal = outcome.row.goal
        if goal is not None and goal.of_kafka:
            bound = goal.bound if outcome.row.more_is_better else 1 / goal.bound
            axes.plot([bound, bound], [index - 0.4, index + 0.4], color=TARGET_COLOUR, linewidth=2)
    axes.set_yticks(range(len(bars)), [outcome.row.name for outcome, _ in bars], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.margins(x=0.15)
    axes.set_title("pykraft ahead of Apache Kafka (log scale; black mark: target)", fontsize=10)


def _draw_curve(axes: Axes, results: Results, prefix: str, title: str) -> None:
    for side, colour in ((OURS, OUR_COLOUR), (KAFKA, KAFKA_COLOUR)):
        points = sorted(results.curve(prefix, side))
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", color=colour, label=side)
    axes.set_title(title, fontsize=9)
    axes.set_ylim(bottom=0)
    if axes.lines:
        axes.set_xscale("log")
        axes.legend(fontsize=8)
