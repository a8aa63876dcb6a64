"""Schemas from a schema registry: they are cached in a bounded number, and after a failure not requested again at
once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kraft.deploy.console.messages import registry as module
from kraft.deploy.console.messages.registry import NEW_PER_PAGE_MAX, Registry

ANSWERS = {
    "/schemas/ids/1": {"schema": '"string"'},
    "/schemas/ids/2": {"schema": "message X {}", "schemaType": "PROTOBUF"},
    "/schemas/ids/3": {"nothing": 1},
}


class Server(ThreadingHTTPServer):
    asked: list[str]

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Server)
        self.server.asked.append(self.path)
        answer = ANSWERS.get(self.path)
        self.send_response(404 if answer is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield one
        one.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the parsing of schemas, which other tests cover."""
    monkeypatch.setattr(module, "parse_schema", lambda text: ("parsed", text))


async def test_a_schema_is_requested_only_once(server: Server) -> None:
    registry = Registry(server.url + "/")
    assert await registry.schemas([1]) == {1: ("parsed", '"string"')}
    assert await registry.schemas([1, 1]) == {1: ("parsed", '"string"')}
    assert server.asked == ["/schemas/ids/1"]


async def test_a_failed_schema_is_not_requested_again_at_once(server: Server) -> None:
    registry = Registry(server.url)
    for _ in range(2):
        assert await registry.schemas([2, 3, 4]) == {}
    assert sorted(server.asked) == ["/schemas/ids/2", "/schemas/ids/3", "/schemas/ids/4"]
    problems = registry.problems([2, 3, 4])
    assert "PROTOBUF" in problems[2]
    assert "holds no schema" in problems[3]
    assert "404" in problems[4]


async def test_a_page_requests_a_bounded_number_of_unknown_schemas(server: Server) -> None:
    await Registry(server.url).schemas(range(100, 200))
    assert len(server.asked) == NEW_PER_PAGE_MAX


async def test_the_least_recently_used_schema_is_evicted_first(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCHEMAS_MAX", 1)
    monkeypatch.setitem(ANSWERS, "/schemas/ids/5", ANSWERS["/schemas/ids/1"])
    registry = Registry(server.url)
    for schema_id in (1, 5, 1):
        await registry.schemas([schema_id])
    assert server.asked == [f"/schemas/ids/{schema_id}" for schema_id in (1, 5, 1)]


async def test_without_a_schema_registry_no_schema_is_returned() -> None:
    assert await Registry(None).schemas([1]) == {}


async def test_an_unreachable_schema_registry_is_reported_without_an_exception() -> None:
    registry = Registry("http://127.0.0.1:1")
    assert await registry.schemas([1]) == {}
    assert "127.0.0.1:1" in registry.problems([1])[1]
