"""Parts of a broker get what they use: only what assembles them, and the handlers of requests, know a whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kraft

BROKER = Path(kraft.__file__).parent / "broker"
HANDLERS = "api"
ASSEMBLIES = frozenset({"broker", "broker_node"})
REQUESTS = frozenset({"dispatch", "request_partitions"})
"""What a handler's work on one request consists of, wherever it is kept."""
MADE_OF_THE_WHOLE = frozenset({"node_metrics"})
"""Registers the metrics of all parts."""


def known_by(name: str) -> Iterator[Path]:
    """The modules of the broker that import a class of this name, for its type alone or not."""
    for path in sorted(BROKER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
                yield path


@pytest.mark.parametrize(
    ("whole", "may_know"),
    [("ReplicaManager", ASSEMBLIES), ("Broker", ASSEMBLIES | REQUESTS | MADE_OF_THE_WHOLE)],
)
def test_no_part_gets_a_whole(whole: str, may_know: frozenset[str]) -> None:
    found = [path for path in known_by(whole) if path.stem not in may_know and HANDLERS not in path.parts]
    assert found == []
    assert list(known_by(whole)), "the class has another name now"
