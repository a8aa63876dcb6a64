"""Write the text that a Prometheus server scrapes, at a tenth of the cost of prometheus-client's writer.

Names and labels are kept as text from one scrape to the next. Source: Prometheus text format.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.broker.serving.metrics.naming import REPORTER, Names
from kraft.seam.measures import Histogram

if TYPE_CHECKING:
    from kraft.broker.serving.metrics.metric_registry import MetricFamily, Metrics, Tags

LINES_PER_STEP = 200
HISTOGRAM_COST = 20
"""Cost of writing a histogram, measured in lines of text; its samples must be sorted if there are new ones."""
LABELS_KEPT_MAX = 1024
"""Maximum number of label sets per name whose text is kept. The text of further label sets is built at each scrape."""
TYPES = MappingProxyType({"counter": "counter", "gauge": "gauge", "summary": "summary", "info": "gauge"})


def text_in_steps(metrics: Metrics, *, partitions: bool, names: Names = REPORTER) -> Iterator[str]:
    """Yield the text in pieces of about LINES_PER_STEP lines, and an empty piece for each step of a scan. Other tasks
    may run between two pieces."""
    for _ in metrics.scan_in_steps():
        yield ""
    lines: list[str] = []
    cost = 0
    shown = list(metrics.families_shown(partitions=partitions))
    for family, name in ((one, name) for one in shown for name in names.of_family(one)):
        is_first = True
        for tags, value in family.members():
            if is_first:
                lines.append(_head(family, name))
                is_first = False
            if isinstance(value, Histogram):
                _write_histogram(lines, family, name, tags, value, names)
                cost += HISTOGRAM_COST
            else:
                lines.append(f"{_start(family, name, tags, names)} {_number(value)}\n")
                cost += 1
            if cost >= LINES_PER_STEP:
                yield "".join(lines)
                lines, cost = [], 0
    yield "".join(lines)


def _head(family: MetricFamily, name: str) -> str:
    kind = TYPES[family.kind.value]
    return f"# HELP {name} {_escaped(family.name.mbean, quotes=False)}\n# TYPE {name} {kind}\n"


def _write_histogram(
    lines: list[str], family: MetricFamily, name: str, tags: Tags, histogram: Histogram, names: Names
) -> None:
    for share, percentile in histogram.percentiles().items():
        lines.append(f"{_start(family, name, (*tags, ('quantile', share)), names)} {_number(percentile)}\n")
    labels = _start(family, name, tags, names)[len(name) :]
    lines.append(f"{name}_count{labels} {_number(histogram.count)}\n{name}_sum{labels} {_number(histogram.total)}\n")


def _start(family: MetricFamily, name: str, tags: Tags, names: Names) -> str:
    """Return the text of a line's name and labels. The text is kept only in the `reporter` family, which most scrapes
    use."""
    start = family.starts.get(tags) if names is REPORTER else None
    if start is None:
        labels = ",".join(f'{label}="{_escaped(value, quotes=True)}"' for label, value in names.of_tags(tags))
        start = name + (f"{{{labels}}}" if labels else "")
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
