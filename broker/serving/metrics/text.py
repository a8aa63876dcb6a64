"""The text that a Prometheus server scrapes, written at a tenth of what prometheus-client's writer costs: names and
labels are kept as text from one scrape to the next. Source: the Prometheus text format, version 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.seam.measures import Histogram

if TYPE_CHECKING:
    from kraft.broker.node.metrics import Family, Metrics, Tags

LABELS_KEPT_MAX = 1024
"""Of one name: more label sets than this, which clients can make, are written anew each time."""
TYPES = MappingProxyType({"counter": "counter", "gauge": "gauge", "summary": "summary", "info": "gauge"})
SUFFIXES = MappingProxyType({"counter": "_total", "gauge": "", "summary": "", "info": "_info"})


def text_in_steps(metrics: Metrics, *, partitions: bool) -> Iterator[str]:
    """A piece for each name that has members; others may have a turn of the loop between two pieces."""
    for family in list(metrics.families_of_reading(partitions=partitions)):
        lines: list[str] = []
        for tags, value in family.members():
            if isinstance(value, Histogram):
                _write_histogram(lines, family, tags, value)
            else:
                lines.append(f"{_start(family, tags)} {_number(value)}\n")
        if lines:
            yield _head(family) + "".join(lines)


def _head(family: Family) -> str:
    kind = family.kind.value
    name = family.prometheus + SUFFIXES[kind]
    return f"# HELP {name} {_escaped(family.name.mbean, quotes=False)}\n# TYPE {name} {TYPES[kind]}\n"


def _write_histogram(lines: list[str], family: Family, tags: Tags, histogram: Histogram) -> None:
    name = family.prometheus
    for share, percentile in histogram.percentiles().items():
        lines.append(f"{_start(family, (*tags, ('quantile', share)))} {_number(percentile)}\n")
    labels = _start(family, tags)[len(name) :]
    lines.append(f"{name}_count{labels} {_number(histogram.count)}\n{name}_sum{labels} {_number(histogram.total)}\n")


def _start(family: Family, tags: Tags) -> str:
    """Name and labels of a line."""
    start = family.starts.get(tags)
    if start is None:
        labels = ",".join(f'{_label(name)}="{_escaped(value, quotes=True)}"' for name, value in tags)
        start = family.prometheus + SUFFIXES[family.kind.value] + (f"{{{labels}}}" if labels else "")
        if not family.is_on_demand:
            if len(family.starts) >= LABELS_KEPT_MAX:
                family.starts.clear()
            family.starts[tags] = start
    return start


def _label(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


def _escaped(text: str, *, quotes: bool) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
