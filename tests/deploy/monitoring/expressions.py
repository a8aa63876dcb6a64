"""The expressions of alert rules and dashboards, in the form that can be sent to Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
BOARDS = sorted((MONITORING / "dashboards").glob("*.json"))
RULES = MONITORING / "alerts.yml"

METRIC = re.compile(r"\b(?:kafka|kraft|process|node|kubelet)_[a-z0-9_]+\b")
COMPARED = re.compile(r"\s*(?:[<>]=?|[!=]=)\s*-?[0-9.]+\s*$")
VARIABLES = {"$job": "kafka", "$instance": ".*", "$__rate_interval": "5s"}


def panels(board: Path) -> list[dict[str, Any]]:
    """Return the panels that show data."""
    return [panel for panel in json.loads(board.read_text())["panels"] if panel["type"] != "row"]


def board_expressions() -> Iterator[tuple[str, str]]:
    """Return each expression of a dashboard with the names of its board and panel. Variables are replaced as Grafana
    would."""
    for board in BOARDS:
        for panel in panels(board):
            for target in panel["targets"]:
                expression = target["expr"]
                for name, value in VARIABLES.items():
                    expression = expression.replace(name, value)
                yield f"{board.stem}: {panel['title']}", expression


def rule_operands(rules: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Return each alert with the left side of its comparison, from the rules as Prometheus lists them."""
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["name"], COMPARED.sub("", rule["query"])
