"""Alert rules and dashboards use only metrics and labels that nodes export."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kraft.broker.serving.metrics.metric_registry import MetricKind
from kraft.broker.serving.metrics.table import TABLE
from tests.deploy.monitoring.expressions import BOARDS, METRIC, RULES, board_expressions, panels

ROOT = Path(__file__).parents[3]
FOREIGN = frozenset(
    {
        "node_filesystem_avail_bytes",
        "node_filesystem_size_bytes",
        "kubelet_volume_stats_available_bytes",
        "kubelet_volume_stats_capacity_bytes",
    }
)
"""Metrics of node_exporter and the kubelet, which nodes do not export."""
LISTED = re.compile(r"^\| `([a-z0-9_]+)` \| ([a-z]+)[^|]* \|", re.MULTILINE)
COUNTED = re.compile(r"(?:rate|increase)\(([a-z0-9_]+)")


@pytest.fixture(scope="module")
def kinds() -> dict[str, str]:
    """Return the kind of each metric, by name, from the metrics page, which is generated from the table of metrics."""
    found = dict(LISTED.findall((ROOT / "docs" / "metrics.md").read_text()))
    assert len(found) == len(TABLE)
    return found


def test_every_metric_of_rules_and_dashboards_is_exported_by_a_node(kinds: dict[str, str]) -> None:
    rules = "\n".join(line for line in RULES.read_text().splitlines() if not line.strip().startswith("#"))
    asked = {name for text in [rules, *(one for _, one in board_expressions())] for name in METRIC.findall(text)}
    assert asked - kinds.keys() - FOREIGN == set()
    assert len(asked) > 60


def test_dashboards_show_counters_only_as_rates(kinds: dict[str, str]) -> None:
    for where, expression in board_expressions():
        counters = {name for name in METRIC.findall(expression) if kinds.get(name) == MetricKind.COUNTER.name.lower()}
        assert counters <= set(COUNTED.findall(expression)), where


def test_labels_in_dashboards_exist_on_their_metrics() -> None:
    rows = {"_".join(row.key).lower().replace(".", "_").replace("-", "_"): row for row in TABLE}
    known = {label for row in rows.values() for label in row.labels} | {"job", "instance", "quantile"}
    for board in BOARDS:
        for panel in panels(board):
            for target in panel["targets"]:
                assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known, panel["title"]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_dashboard_panels_have_an_id_a_position_and_the_chosen_data_source(board: Path) -> None:
    whole = json.loads(board.read_text())
    assert whole["uid"] == board.stem
    assert len({panel["id"] for panel in whole["panels"]}) == len(whole["panels"])
    cells = [
        (x, y)
        for panel in whole["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels(board))
