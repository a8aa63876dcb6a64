"""The timeline: acknowledgements per partition over time, and which nodes were up; in the terminal and as a PNG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.demo.scenario import PARTITIONS, Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 96
_SHADES = " ░▒▓█"


def draw_in_terminal(scenario: Scenario) -> str:
    """Rows of text: one per partition and one per node, time from left to right."""
    width = scenario.duration / COLUMNS
    lines = []
    for partition in range(PARTITIONS):
        counts = [0] * COLUMNS
        for ack in scenario.ledger.acknowledged:
            if ack.partition == partition:
                counts[min(COLUMNS - 1, int(ack.time / width))] += 1
        most = max(counts) or 1
        lines.append(f"partition {partition}  " + "".join(_SHADES[_shade(count, most)] for count in counts))
    for node_id in scenario.cluster.node_ids:
        lines.append(f"node {node_id:<6} " + "".join(_node_mark(scenario, node_id, i * width) for i in range(COLUMNS)))
    lines.append(" " * 13 + "0 s" + f"{scenario.duration:.0f} s".rjust(COLUMNS - 3))
    return "\n".join(lines)


def draw_png(scenario: Scenario, path: Path) -> None:
    """The same as a picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(12, 6), height_ratios=[3, 2])
    _draw_acknowledgements(scenario, above)
    _draw_nodes(scenario, below)
    figure.suptitle("Acknowledged writes while nodes are killed with kill -9")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_acknowledgements(scenario: Scenario, axes: Axes) -> None:
    step = 0.1
    bins = [index * step for index in range(int(scenario.duration / step) + 2)]
    for partition in range(PARTITIONS):
        times = [ack.time for ack in scenario.ledger.acknowledged if ack.partition == partition]
        axes.hist(times, bins=bins, histtype="step", label=f"partition {partition}")
    for kill in scenario.kills:
        axes.axvline(kill.time, color="red", linestyle="--", linewidth=1)
        label = f" node {kill.node_id}, {kill.role}\n {kill.gap_ms:.0f} ms (Kafka {kill.kafka_ms} ms)"
        axes.annotate(label, (kill.time, axes.get_ylim()[1]), verticalalignment="top", fontsize=8)
    axes.set_ylabel("acknowledged per 100 ms")
    axes.legend(loc="lower right", fontsize=8)


def _draw_nodes(scenario: Scenario, axes: Axes) -> None:
    nodes = scenario.cluster.node_ids
    for row, node_id in enumerate(nodes):
        down = [kill for kill in scenario.kills if kill.node_id == node_id]
        edges = [0.0]
        for kill in down:
            axes.barh(row, kill.time - edges[-1], left=edges[-1], color="tab:green", height=0.5)
            axes.plot(kill.time, row, marker="x", color="red")
            edges.append(kill.restarted)
        axes.barh(row, scenario.duration - edges[-1], left=edges[-1], color="tab:green", height=0.5)
    axes.set_yticks(range(len(nodes)), [f"node {node_id}" for node_id in nodes])
    axes.set_xlabel("seconds")


def _shade(count: int, most: int) -> int:
    return 0 if count == 0 else max(1, round(count / most * (len(_SHADES) - 1)))


def _node_mark(scenario: Scenario, node_id: int, at: float) -> str:
    width = scenario.duration / COLUMNS
    for kill in scenario.kills:
        if kill.node_id == node_id and kill.time - width < at <= kill.restarted:
            return "✗" if at <= kill.time else " "
    return "─"
