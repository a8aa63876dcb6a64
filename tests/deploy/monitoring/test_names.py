"""Alert rules and dashboards ask for metrics that nodes have, with labels that they have."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kraft.broker.serving.metrics.metric_registry import Kind
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
"""Of node_exporter and of the kubelet."""
LISTED = re.compile(r"^\| `([a-z0-9_]+)` \| ([a-z]+)[^|]* \|", re.MULTILINE)
COUNTED = re.compile(r"(?:rate|increase)\(([a-z0-9_]+)")


@pytest.fixture(scope="module")
def kinds() -> dict[str, str]:
    """Name → kind of each metric of the page of metrics, which is made of the table."""
    found = dict(LISTED.findall((ROOT / "docs" / "metrics.md").read_text()))
    assert len(found) == len(TABLE)
    return found


def test_each_metric_that_rules_and_dashboards_ask_for_is_one_of_a_node(kinds: dict[str, str]) -> None:
    rules = "\n".join(line for line in RULES.read_text().splitlines() if not line.strip().startswith("#"))
    asked = {name for text in [rules, *(one for _, one in board_expressions())] for name in METRIC.findall(text)}
    assert asked - kinds.keys() - FOREIGN == set()
    assert len(asked) > 60


def test_no_dashboard_shows_a_counter_without_its_rate(kinds: dict[str, str]) -> None:
    for where, expression in board_expressions():
        counters = {name for name in METRIC.findall(expression) if kinds.get(name) == Kind.COUNTER.name.lower()}
        assert counters <= set(COUNTED.findall(expression)), where


def test_labels_that_a_dashboard_shows_are_those_of_its_metrics() -> None:
    rows = {"_".join(row.key).lower().replace(".", "_").replace("-", "_"): row for row in TABLE}
    known = {label for row in rows.values() for label in row.labels} | {"job", "instance", "quantile"}
    for board in BOARDS:
        for panel in panels(board):
            for target in panel["targets"]:
                assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known, panel["title"]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.stem)
def test_a_dashboards_panels_have_an_id_a_place_and_the_chosen_source(board: Path) -> None:
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
