"""Requests that the guard rejects, and the headers of responses, tested with a small application behind the guard."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from kraft.deploy.console.app import PARTS, SECTIONS, make_app
from kraft.deploy.console.guard import FORM, FORM_BYTES_MAX, Guard, host_name, is_loopback
from tests.deploy.console.asgi import ask
from tests.deploy.console.plain_settings import plain_settings

OWN = {"origin": "http://127.0.0.1:8480", "sec-fetch-site": "same-origin"}


async def echo(request: Request) -> Response:
    return PlainTextResponse(repr(request.scope.get(FORM)))


def guarded(*, allow_changes: bool = True, loopback_only: bool = True) -> Starlette:
    guard = Middleware(Guard, token="secret", allow_changes=allow_changes, loopback_only=loopback_only)
    return Starlette(routes=[Route("/", echo, methods=["GET", "POST", "DELETE"])], middleware=[guard])


async def test_the_guard_passes_a_form_of_a_console_page_on_without_the_token() -> None:
    answer = await ask(guarded(), "POST", "/", form={"token": "secret", "a": "1"}, headers=OWN)
    assert (answer.status, answer.text) == (200, "{'a': '1'}")


@pytest.mark.parametrize(("headers", "token", "words"), [
    ({"sec-fetch-site": "cross-site"}, "secret", "another site"),
    ({"sec-fetch-site": "same-site"}, "secret", "another site"),
    ({"origin": "http://evil.example"}, "secret", "Origin: http://evil.example"),
    ({"origin": "null"}, "secret", "Origin: null"),
    ({}, "secret", "use a newer one"),
    (OWN, "", "reload it"),
    (OWN, "Secret", "reload it"),
])  # fmt: skip
async def test_the_guard_refuses_a_change_from_another_site(headers: dict[str, str], token: str, words: str) -> None:
    answer = await ask(guarded(), "POST", "/", form={"token": token}, headers=headers)
    assert answer.status == 403
    assert words in answer.text


async def test_a_read_only_console_refuses_changes() -> None:
    answer = await ask(guarded(allow_changes=False), "POST", "/", form={"token": "secret"}, headers=OWN)
    assert answer.status == 403
    assert "--allow-changes" in answer.text


async def test_the_guard_of_a_read_only_console_refuses_a_delete_request() -> None:
    assert (await ask(guarded(allow_changes=False), "DELETE", "/", headers=OWN)).status == 403


async def test_the_guard_refuses_a_form_that_is_too_long() -> None:
    answer = await ask(guarded(), "POST", "/", body=b"a=" + b"x" * FORM_BYTES_MAX, headers=OWN)
    assert answer.status == 403
    assert str(FORM_BYTES_MAX) in answer.text


async def test_the_guard_refuses_a_foreign_host_name_that_resolves_to_loopback() -> None:
    rebound = {"host": "evil.example:8480"}
    assert (await ask(guarded(), "GET", "/", headers=rebound)).status == 403
    assert (await ask(guarded(loopback_only=False), "GET", "/", headers=rebound)).status == 200
    for name in ("localhost:8480", "127.0.0.1:8480", "[::1]:8480"):
        assert (await ask(guarded(), "GET", "/", headers={"host": name})).status == 200


async def test_every_response_has_the_security_headers() -> None:
    for answer in (await ask(guarded(), "GET", "/"), await ask(guarded(allow_changes=False), "POST", "/")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


async def test_every_route_that_changes_something_is_refused_without_a_token() -> None:
    app = make_app(plain_settings("127.0.0.1:1", allow_changes=True))
    changing = [route for route in app.routes if isinstance(route, Route) and "POST" in (route.methods or ())]
    assert len(changing) >= 8
    for route in changing:
        path = route.path.replace("{index:int}", "0").replace("{topic}", "t").replace("{name}", "t")
        assert (await ask(app, "POST", path, form={"token": "guessed"}, headers=OWN)).status == 403, path


async def test_no_two_console_routes_have_the_same_path_and_method() -> None:
    names = [one.module for one in SECTIONS] + list(PARTS)
    assert len(names) == len(set(names))
    app = make_app(plain_settings("127.0.0.1:1"))
    paths = [(r.path, *sorted(r.methods or ())) for r in app.routes if isinstance(r, Route)]
    assert len(paths) == len(set(paths))


def test_the_name_in_a_host_header_is_read_without_its_port() -> None:
    assert [host_name(one) for one in ("a:1", "a", "[::1]:80", "[::1]")] == ["a", "a", "[::1]", "[::1]"]
    assert [is_loopback(one) for one in ("127.0.0.9", "[::1]", "LOCALHOST", "10.0.0.1", "")] == [
        True, True, True, False, False,
    ]  # fmt: skip
