"""Merge the log lines of several nodes by time."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path

Line = tuple[str, int, str]
"""A log line: its time (as text that sorts), its node, and its text."""

_TIME = re.compile(r'(?:\{.*?"timestamp": ")?(\d{4}-\d\d-\d\dT[\d:.]+)')
"""Pattern of the time at the start of a line, or in the field `timestamp` of a JSON line."""


def read_from(path: Path, position: int) -> tuple[str, int]:
    """Return the complete lines of a file from this position on, and the position after them."""
    try:
        with open(path, "rb") as file:
            file.seek(position)
            data = file.read()
    except FileNotFoundError:
        return "", 0
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode("utf-8", "replace"), position + len(whole)


def merge_by_time(lines: Mapping[int, Iterable[str]]) -> Iterator[Line]:
    """Merge the lines of all nodes into one sequence by time. A line without a time, as in a traceback, follows the
    line that precedes it in its file."""
    return heapq.merge(*(_timed(node_id, of_node) for node_id, of_node in lines.items()), key=itemgetter(0))


def labelled(node_id: int, line: str) -> str:
    """Return the line with its node's name in front. A JSON line gets the name as a field, and stays JSON."""
    return line if line.startswith("{") else f"[{node_id}] {line}"


def _timed(node_id: int, lines: Iterable[str]) -> Iterator[Line]:
    time = ""
    for line in lines:
        found = _TIME.match(line)
        time = found.group(1) if found else time
        yield time, node_id, line
