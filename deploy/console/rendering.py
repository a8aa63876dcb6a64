"""Rendering of pages: templates, and the functions that every template may use.

Templates are in `templates/` of this folder, and of each section that has its own folder.
"""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse

from kraft.deploy.console.cluster_view import ClusterView
from kraft.deploy.console.guard import FORM
from kraft.deploy.console.node_metrics import SERIES
from kraft.deploy.console.sparkline import sparkline
from kraft.seam.ids import encode_uuid

HERE = Path(__file__).parent
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def make_environment() -> Environment:
    """Return a template environment that finds templates by name, escapes values, and raises an error for an undefined
    variable."""
    folders = [HERE / "templates", *sorted(HERE.glob("*/templates"))]
    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "counted": counted,
        "bytes": size,
        "time": clock_time,
        "ago": ago,
        "metric": metric,
        "id": shown_id,
    }
    environment.globals |= {"sparkline": lambda *values, **more: Markup(sparkline(*values, **more))}
    return environment


def view_of(request: Request) -> ClusterView:
    """Return the cluster view of this process."""
    view: ClusterView = request.app.state.view
    return view


def form_of(request: Request) -> dict[str, str]:
    """Return the fields of the request's form, which the guard has checked."""
    form: dict[str, str] = request.scope[FORM]
    return form


def render(request: Request, template: str, *, section: str, status: int = 200, **context: Any) -> HTMLResponse:
    """Render a page. `section` is the navigation entry that is highlighted. `context` has the variables of the
    template."""
    state, view = request.app.state, view_of(request)
    text = state.templates.get_template(template).render(
        view=view,
        snapshot=view.snapshot,
        settings=view.settings,
        sections=state.sections,
        section=section,
        token=state.token,
        path=request.url.path,
        query=dict(request.query_params),
        notice=request.query_params.get("notice", ""),
        **context,
    )
    return HTMLResponse(text, status_code=status)


def problem_page(request: Request, text: str, *, section: str, status: int = 502) -> HTMLResponse:
    """Render a page with an error."""
    return render(
        request, "problem.html", section=section, status=status, text=text, is_missing=status == HTTPStatus.NOT_FOUND
    )


def redirect(path: str, notice: str = "") -> RedirectResponse:
    """Redirect to a page of the console after a change, and show this notice on it. The path never comes from user
    input."""
    query = f"?{urlencode({'notice': notice})}" if notice else ""
    return RedirectResponse(path + query, status_code=303)


def number(value: float | None) -> str:
    """Return a number with thousands separators; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.2f}"


def counted(count: int, what: str) -> str:
    """Return the count with its noun: 1 topic, 2 topics."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def size(value: float | None) -> str:
    """Return a number of bytes in a suitable unit; a dash for None."""
    if value is None:
        return "–"
    for unit in UNITS[:-1]:
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {UNITS[-1]}"


def metric(value: float, title: str) -> str:
    """Return a value of a metric as text with its unit. `title` is a key of SERIES."""
    unit = SERIES[title].unit
    if unit in ("B", "B/s"):
        return size(value) + unit[1:]
    if unit == "of a core":
        return f"{value:.0%} {unit}"
    return f"{number(value)} {unit}".strip()


def shown_id(value: UUID | None) -> str:
    """Return an id in the form in which Kafka's tools show it; a dash for None."""
    return "–" if value is None else encode_uuid(value)


def clock_time(time_ms: int | None) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds; a dash for None."""
    if time_ms is None or time_ms < 0:
        return "–"
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(time_ms)


def ago(age_ms: float | None) -> str:
    """Return a duration in readable form."""
    if age_ms is None:
        return "–"
    if age_ms < 1_000:
        return "now"
    for unit, ms, below in (("s", 1_000, 120), ("min", 60_000, 120), ("h", 3_600_000, 48)):
        if age_ms < ms * below:
            return f"{age_ms / ms:.0f} {unit}"
    return f"{age_ms / 86_400_000:.0f} d"
