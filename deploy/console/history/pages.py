"""The pages under /history: the cluster at a point of the metadata log, and the differences between two points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kraft.client.metadata_log.errors import MetadataLogError
from kraft.deploy.console.cluster_view import FAILURES, now_ms
from kraft.deploy.console.history.log import MetadataLogReader, NotGiven
from kraft.deploy.console.history.timeline import Timeline
from kraft.deploy.console.history.views import RowsPage, changes_page, event_rows, partitions_page
from kraft.deploy.console.messages.query import BadQuery, parse_time_ms
from kraft.deploy.console.rendering import render, view_of
from kraft.image import MetadataImage

SECTION = "History"
EVENTS_BEFORE, EVENTS_AFTER = 12, 12
OFFSET_DIGITS_MAX = 18


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Parameters of a page. `at`: the offset to show. `since`: the offset to compare with; None for no comparison."""

    at: int
    since: int | None
    search: str
    page: int


def routes() -> list[Route]:
    """Return the routes of the history pages."""
    return [Route("/history", show)]


def log_of(request: Request) -> MetadataLogReader:
    """Return the metadata log that this process keeps."""
    state = request.app.state
    if not hasattr(state, "metadata_log"):
        state.metadata_log = MetadataLogReader(view_of(request).settings)
    log: MetadataLogReader = state.metadata_log
    return log


async def show(request: Request) -> Response:
    """Show the cluster at offset `at` or at `time`; with `since`, show the changes after that point. `search` and
    `page` apply to the partitions or changes."""
    log = log_of(request)
    try:
        timeline = await log.read()
        asked = read_query(request.query_params, timeline, now_ms())
        around = timeline.around(asked.at, EVENTS_BEFORE, EVENTS_AFTER)
        oldest_shown = around[0].offset if around else asked.at
        since = () if asked.since is None else (asked.since,)
        points = asked.at, timeline.end_offset, oldest_shown, *since
        image, newest, first, *before = await log.images(timeline, *points)
    except NotGiven as problem:
        return render(request, "not_given.html", section=SECTION, why=str(problem))
    except (BadQuery, MetadataLogError, *FAILURES) as problem:
        return render(request, "no_history.html", section=SECTION, status=400, why=str(problem))
    rows, is_cut = _rows(image, before[0] if before else None, asked)
    events = event_rows(around, newest, image, first)  # the first image still has topics that were deleted later
    return render(
        request,
        "history.html",
        section=SECTION,
        asked=asked,
        image=image,
        timeline=timeline,
        at_ms=timeline.time_at(asked.at),
        since_ms=None if asked.since is None else timeline.time_at(asked.since),
        rows=rows,
        is_cut=is_cut,
        events=events,
        last=next((event for event in events if event.offset == asked.at - 1), None),
        source=log.source,
    )


def _rows(image: MetadataImage, before: MetadataImage | None, asked: HistoryQuery) -> tuple[RowsPage, bool]:
    if before is None:
        return partitions_page(image, asked.search, asked.page), False
    return changes_page(before, image, asked.page)


def read_query(given: Mapping[str, str], timeline: Timeline, now: int) -> HistoryQuery:
    """Parse the offsets or times in an address. Raise BadQuery that names the first wrong parameter."""
    text = given.get("time", "").strip()
    at = given.get("at", "").strip()
    offset = timeline.offset_at(parse_time_ms(text, now)) if text else _offset("at", at, timeline.end_offset)
    since_text = given.get("since", "").strip()
    since = _offset("since", since_text, 0) if since_text else None
    return HistoryQuery(offset, since, given.get("search", ""), _offset("page", given.get("page", ""), 0))


def _offset(name: str, text: str, default: int) -> int:
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= OFFSET_DIGITS_MAX):
        raise BadQuery(f"{name}={text}: expected a number, 0 or more")
    return int(text)
