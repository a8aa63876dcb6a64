"""docs/partition-states.md: the states of a hosted replica, drawn from the tables in the code."""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from kraft.broker.partition import partition_states
from kraft.broker.partition.partition_states import APPEND_TRANSITIONS, LOG_TRANSITIONS, AppendState, LogState

_HEAD = """# The states of a hosted replica

A broker keeps two states for each replica that it hosts: what its log is, and whether appends may run. They change
independently of each other. A transition that is not in a table is an error of kraft itself, and stops the node. The
simulator counts how often each one was taken, and `kraft sim` names those that a campaign never took.

This page is generated from `kraft.broker.partition.partition_states`: `make docs`.
"""

Table = Mapping[tuple[Any, Any], Any]


def render_partition_states() -> str:
    """Render a chapter for each table."""
    chapters = (("The log", LogState, LOG_TRANSITIONS), ("Appends", AppendState, APPEND_TRANSITIONS))
    return "\n".join([_HEAD, *(line for chapter in chapters for line in _chapter(*chapter))])


def _chapter(title: str, states: type[Enum], table: Table) -> Iterator[str]:
    meanings = _meanings(states.__name__)
    yield from (f"## {title}", "", "| state | meaning |", "|---|---|")
    yield from (f"| {state.value} | {meanings[state.name]} |" for state in states)
    yield from ("", "```mermaid", "stateDiagram-v2")
    first = next(iter(states))
    yield f"    [*] --> {first.value}"
    for (state, event), following in table.items():
        if state is not following:
            yield f"    {state.value} --> {following.value}: {event.value}"
    yield from ("```", "", "| state | event | next state |", "|---|---|---|")
    yield from (f"| {state.value} | {event.value} | {after.value} |" for (state, event), after in table.items())
    yield ""


def _meanings(name: str) -> dict[str, str]:
    """Return the docstring below each member of an enum."""
    tree = ast.parse(inspect.getsource(partition_states))
    (body,) = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    found: dict[str, str] = {}
    for member, text in itertools.pairwise(body):
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            target = member.targets[0]
            assert isinstance(target, ast.Name)
            found[target.id] = " ".join(str(text.value.value).split())
    return found
