"""Lines of several nodes' logs in the order of their times."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path

Line = tuple[str, int, str]
"""Its time, as text that sorts; the node; the line."""

_TIME = re.compile(r'(?:\{.*?"timestamp": ")?(\d{4}-\d\d-\d\dT[\d:.]+)')
"""At the begin of a line, or in its field `timestamp` where it is JSON."""


def read_from(path: Path, position: int) -> tuple[str, int]:
    """The whole lines of a file from this position on, and where the next one will begin."""
    try:
        with open(path, "rb") as file:
            file.seek(position)
            data = file.read()
    except FileNotFoundError:
        return "", 0
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode("utf-8", "replace"), position + len(whole)


def merge_by_time(lines: Mapping[int, Iterable[str]]) -> Iterator[Line]:
    """The lines of each node as one sequence by time. A line without a time, as of a traceback, stays behind the line
    before it."""
    return heapq.merge(*(_timed(node_id, of_node) for node_id, of_node in lines.items()), key=itemgetter(0))


def labelled(node_id: int, line: str) -> str:
    """The line as it is shown beside those of other nodes. One of JSON names its node, and stays JSON."""
    return line if line.startswith("{") else f"[{node_id}] {line}"


def _timed(node_id: int, lines: Iterable[str]) -> Iterator[Line]:
    time = ""
    for line in lines:
        found = _TIME.match(line)
        time = found.group(1) if found else time
        yield time, node_id, line
