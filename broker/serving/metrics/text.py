"""The text that a Prometheus server scrapes, written at a tenth of what prometheus-client's writer costs: names and
labels are kept as text from one scrape to the next. Source: the Prometheus text format, version 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.broker.serving.metrics.naming import REPORTER, Names
from kraft.seam.measures import Histogram

if TYPE_CHECKING:
    from kraft.broker.node.metrics import Family, Metrics, Tags

LINES_PER_STEP = 200
"""Of a name with a member for each partition."""
LABELS_KEPT_MAX = 1024
"""Of one name: more label sets than this, which clients can make, are written anew each time."""
TYPES = MappingProxyType({"counter": "counter", "gauge": "gauge", "summary": "summary", "info": "gauge"})


def text_in_steps(metrics: Metrics, *, partitions: bool, names: Names = REPORTER) -> Iterator[str]:
    """A piece for each name that has members, of those with a member per partition one for LINES_PER_STEP of them;
    others may have a turn of the loop between two pieces."""
    for family in list(metrics.families_of_reading(partitions=partitions)):
        name = names.of_samples(family)
        if name is not None:
            yield from _family_in_steps(family, name, names)


def _family_in_steps(family: Family, name: str, names: Names) -> Iterator[str]:
    head = _head(family, name)
    lines: list[str] = []
    for tags, value in family.members():
        if isinstance(value, Histogram):
            _write_histogram(lines, family, tags, value, names)
        else:
            lines.append(f"{_start(family, tags, names)} {_number(value)}\n")
        if family.is_on_demand and len(lines) >= LINES_PER_STEP:
            yield head + "".join(lines)
            head, lines = "", []
    if lines:
        yield head + "".join(lines)


def _head(family: Family, name: str) -> str:
    kind = TYPES[family.kind.value]
    return f"# HELP {name} {_escaped(family.name.mbean, quotes=False)}\n# TYPE {name} {kind}\n"


def _write_histogram(lines: list[str], family: Family, tags: Tags, histogram: Histogram, names: Names) -> None:
    name = names.of_samples(family) or ""
    for share, percentile in histogram.percentiles().items():
        lines.append(f"{_start(family, (*tags, ('quantile', share)), names)} {_number(percentile)}\n")
    labels = _start(family, tags, names)[len(name) :]
    lines.append(f"{name}_count{labels} {_number(histogram.count)}\n{name}_sum{labels} {_number(histogram.total)}\n")


def _start(family: Family, tags: Tags, names: Names) -> str:
    """Name and labels of a line, kept for the names that most ask for."""
    start = family.starts.get(tags) if names is REPORTER else None
    if start is None:
        labels = ",".join(f'{names.of_label(name)}="{_escaped(value, quotes=True)}"' for name, value in tags)
        start = (names.of_samples(family) or "") + (f"{{{labels}}}" if labels else "")
        if names is REPORTER and not family.is_on_demand:
            if len(family.starts) >= LABELS_KEPT_MAX:
                family.starts.clear()
            family.starts[tags] = start
    return start


def _escaped(text: str, *, quotes: bool) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
