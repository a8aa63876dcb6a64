"""The expressions of alert rules and dashboards, as Prometheus is asked for them."""

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
    """Those that show data."""
    return [panel for panel in json.loads(board.read_text())["panels"] if panel["type"] != "row"]


def board_expressions() -> Iterator[tuple[str, str]]:
    """(board and panel, expression) with the variables as Grafana would fill them in."""
    for board in BOARDS:
        for panel in panels(board):
            for target in panel["targets"]:
                expression = target["expr"]
                for name, value in VARIABLES.items():
                    expression = expression.replace(name, value)
                yield f"{board.stem}: {panel['title']}", expression


def rule_operands(rules: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(alert, what it compares with a limit), of the rules as Prometheus lists them."""
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["name"], COMPARED.sub("", rule["query"])
