"""The pages under /messages: topics to choose from, a topic's records, one record, new records live, and a form that
produces a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kraft.client.core.records import ConsumerRecord
from kraft.deploy.console.cluster_view import FAILURES, now_ms
from kraft.deploy.console.event_stream import Emit, EventStream
from kraft.deploy.console.messages.decoding import RECORD_BYTES_MAX, Form, schema_ids
from kraft.deploy.console.messages.producing import BadRecord, parse_record
from kraft.deploy.console.messages.query import PARTS, BadQuery, PageStart, Query, parse_query
from kraft.deploy.console.messages.reading import TURN_MS, Reader
from kraft.deploy.console.messages.registry import Registry
from kraft.deploy.console.messages.rows import RecordRow, row_of
from kraft.deploy.console.messages.window import RecordPage
from kraft.deploy.console.rendering import form_of, problem_page, redirect, render, view_of

TOPICS_SHOWN_MAX = 100
SECTION = "Messages"


def routes() -> list[Route]:
    """Return the routes of the message pages."""
    return [
        Route("/messages", choose_topic),
        Route("/messages/{topic}", browse),
        Route("/messages/{topic}", produce, methods=["POST"]),
        Route("/messages/{topic}/live", live),
        Route("/messages/{topic}/{partition:int}/{offset:int}", show_record),
    ]


def registry_of(request: Request) -> Registry:
    """Return the schema registry of this process."""
    state = request.app.state
    if not hasattr(state, "registry"):
        state.registry = Registry(view_of(request).settings.schema_registry)
    registry: Registry = state.registry
    return registry


async def choose_topic(request: Request) -> Response:
    """List the topics whose names contain `search`."""
    search = request.query_params.get("search", "")
    names = (name for name in sorted(view_of(request).snapshot.topics) if search.lower() in name.lower())
    shown = list(islice(names, TOPICS_SHOWN_MAX + 1))
    return render(
        request,
        "choose_topic.html",
        section=SECTION,
        search=search,
        topics=shown[:TOPICS_SHOWN_MAX],
        has_more=len(shown) > TOPICS_SHOWN_MAX,
    )


async def browse(request: Request) -> Response:
    """Show a page of records. If the query is invalid or the cluster rejects it, show the reason and no records."""
    topic = request.path_params["topic"]
    try:
        query = parse_query(topic, request.query_params)
        page = await _reader(request).page(query, now_ms())
    except (BadQuery, *FAILURES) as problem:
        return _page(request, _or_default(topic, request.query_params), RecordPage((), None, None, 0), [], str(problem))
    return _page(request, query, page, await _rows(request, page.records, query.form), "")


async def live(request: Request) -> ASGIApp:
    """Send server-sent events named `records`, each with rows and the number of records left out."""
    topic = request.path_params["topic"]
    given = dict(request.query_params)

    async def work(emit: Emit) -> None:
        query = parse_query(topic, given)

        async def emit_rows(records: list[ConsumerRecord], left_out: int) -> None:
            rows = await _rows(request, records, query.form)
            await emit("records", {"rows": [row.as_json() for row in rows], "left_out": left_out})

        await _reader(request).follow(query, emit_rows)

    return EventStream(work, expected=(BadQuery, *FAILURES))


async def show_record(request: Request) -> Response:
    """Show one record, up to RECORD_BYTES_MAX."""
    topic, partition, offset = (request.path_params[name] for name in ("topic", "partition", "offset"))
    try:
        query = parse_query(topic, {"form": request.query_params.get("form", "")})
        record = await _reader(request).record(topic, partition, offset)
    except BadQuery as problem:
        return problem_page(request, str(problem), section=SECTION, status=404)
    if record is None:
        text = f"{topic}-{partition} holds no record at offset {offset}"
        return problem_page(request, text, section=SECTION, status=404)
    schemas = await registry_of(request).schemas(schema_ids((record.key, record.value)))
    row = row_of(record, query.form, schemas, RECORD_BYTES_MAX)
    return render(
        request, "record.html", section=SECTION, topic=topic, row=row, query_form=query.form, forms=list(Form)
    )


async def produce(request: Request) -> Response:
    """Append one record from a form. The guard has already checked it."""
    topic = request.path_params["topic"]
    producer = view_of(request).settings.producer
    try:
        record = parse_record(form_of(request))
        async with producer(delivery_timeout_ms=10_000, request_timeout_ms=5_000) as open_producer:
            report = await open_producer.send(
                topic, record.value, record.key, partition=record.partition, headers=record.headers
            )
    except (BadRecord, ValueError, *FAILURES) as problem:
        query = Query(topic)
        return _page(
            request, query, RecordPage((), None, None, 0), [], f"The record was not appended: {problem}", status=400
        )
    return redirect(f"/messages/{topic}", f"Appended to partition {report.partition} at offset {report.offset}")


async def _rows(
    request: Request, records: tuple[ConsumerRecord, ...] | list[ConsumerRecord], form: Form
) -> list[RecordRow]:
    wanted = schema_ids(tuple(data for record in records for data in (record.key, record.value)))
    schemas = await registry_of(request).schemas(wanted) if form in (Form.AUTO, Form.AVRO) else {}
    rows, since = [], trio.current_time()
    for record in records:
        rows.append(row_of(record, form, schemas))
        if trio.current_time() - since >= TURN_MS / 1_000:  # a checkpoint, because records may be large
            await trio.lowlevel.checkpoint()
            since = trio.current_time()
    return rows


def _page(
    request: Request, query: Query, page: RecordPage, rows: list[RecordRow], problem: str, *, status: int = 200
) -> Response:
    described = view_of(request).snapshot.topics.get(query.topic)
    begins = query.at(PageStart.BEGIN), query.at(PageStart.END)
    beside = {
        "oldest": begins[0].parameters(),
        "newest": begins[1].parameters(),
        "older": None if page.older is None else query.at(PageStart.BEFORE, page.older).parameters(),
        "newer": None if page.newer is None else query.at(PageStart.AFTER, page.newer).parameters(),
    }
    return render(
        request,
        "messages.html",
        section=SECTION,
        status=400 if problem and status == 200 else status,
        topic=query.topic,
        asked=query,
        page=page,
        rows=rows,
        problem=problem,
        beside=beside,
        partitions=[] if described is None else [one.index for one in described.partitions],
        forms=list(Form),
        parts=PARTS,
        registry=registry_of(request).url,
    )


def _or_default(topic: str, given: Mapping[str, str]) -> Query:
    try:
        return parse_query(topic, given)
    except BadQuery:
        return Query(topic)


def _reader(request: Request) -> Reader:
    settings = view_of(request).settings
    return Reader(settings.admin, settings.consumer)
