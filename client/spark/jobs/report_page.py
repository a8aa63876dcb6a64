"""A pipeline's report as one self-contained HTML file: findings, pictures and tables.

Needs jinja2 and matplotlib, which are imported when a report is made.
"""

from __future__ import annotations

import base64
import importlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import DataFrame

BAD, WARNING, GOOD = "bad", "warning", "good"
COLOURS = MappingProxyType(
    {
        "ink": "#1d2329",
        "soft": "#59626c",
        "blue": "#2b6ca8",
        "grey": "#b9c9d6",
        "amber": "#e0a030",
        "red": "#b03048",
    }
)
"""Colours of the pictures that colour-blind readers can distinguish. Shapes and words carry the same information."""
ROWS_MAX = 200
"""Maximum rows of a table on a report page."""
INCHES = (9.0, 2.6)


class MissingLibrary(ImportError):
    """A library that reports need is not installed; the message explains how to install the library."""


@dataclass(frozen=True, slots=True)
class ReportFinding:
    """A conclusion of a report. `tone`: bad, warning or good. `advice`: what to do next, or ""."""

    tone: str
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report page. `picture` is a PNG; `note` explains what the part shows."""

    title: str
    note: str = ""
    picture: bytes = b""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = field(default_factory=tuple)
    rows_total: int = 0

    @property
    def picture_uri(self) -> str:
        return "data:image/png;base64," + base64.b64encode(self.picture).decode()


def table_section(title: str, frame: DataFrame, note: str = "", picture: bytes = b"") -> Section:
    """Return the first rows of a DataFrame as a section of a report page."""
    rows = frame.limit(ROWS_MAX + 1).collect()
    total = len(rows) if len(rows) <= ROWS_MAX else frame.count()
    return Section(title, note, picture, frame.columns, [tuple(row) for row in rows[:ROWS_MAX]], total)


def write_page(
    path: str, title: str, facts: Iterable[str], findings: Sequence[ReportFinding], sections: Sequence[Section]
) -> Path | None:
    """Write the report page and return its path, or None if the path is "". Raises MissingLibrary; OSError if the page
    cannot be written."""
    if not path:
        return None
    text = render_page(title, facts, findings, sections)
    Path(path).write_text(text, encoding="utf-8")
    return Path(path)


def render_page(
    title: str, facts: Iterable[str], findings: Sequence[ReportFinding], sections: Sequence[Section]
) -> str:
    """Render the report page as HTML. Raises MissingLibrary."""
    jinja2 = _library("jinja2")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["cell"] = _cell
    template = environment.from_string(Path(__file__).with_name("report.html.j2").read_text(encoding="utf-8"))
    shown = [one for one in sections if one.picture or one.rows or one.note]
    return str(template.render(title=title, facts=list(facts), findings=findings, sections=shown))


class Picture:
    """A figure with one plot, to be drawn on `axes` and then converted by `png()`."""

    def __init__(self, height_inches: float = INCHES[1]) -> None:
        figure = _library("matplotlib.figure").Figure(figsize=(INCHES[0], height_inches), layout="constrained")
        self._figure = figure
        self.axes: Axes = figure.subplots()
        self.axes.spines[["top", "right"]].set_visible(False)
        self.axes.tick_params(labelsize=8)

    def legend(self) -> None:
        """Add a legend above the plot."""
        self.axes.legend(frameon=False, fontsize=8, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))

    def png(self) -> bytes:
        buffer = io.BytesIO()
        self._figure.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        missing = name.partition(".")[0]
        raise MissingLibrary(
            f"a report needs {missing}, which is not installed: pip install {missing}, or give --out '' for no report"
        ) from problem


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}".rstrip("0").rstrip(".")
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value) or "–"
    return str(value)
