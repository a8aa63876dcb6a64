"""Requests to an ASGI application without a socket."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

from starlette.types import ASGIApp, Message, Scope

HOST = "127.0.0.1:8480"


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the application."""

    status: int
    headers: dict[str, str]
    text: str


async def ask(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    headers: dict[str, str] | None = None,
    form: dict[str, str] | None = None,
    body: bytes = b"",
) -> Answer:
    """Send one request to the application, from 127.0.0.1, and return the response."""
    sent: list[Message] = []
    content = urlencode(form).encode() if form is not None else body

    async def receive() -> Message:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope_of(method, path, headers), receive, send)
    start, *rest = sent
    text = b"".join(message.get("body", b"") for message in rest).decode()
    return Answer(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, text)


def scope_of(method: str, path: str, headers: dict[str, str] | None = None) -> Scope:
    """Return the ASGI scope that a server creates from the head of a request."""
    parts = urlsplit(path)
    given = {"host": HOST, **(headers or {})}
    return {
        "type": "http",
        "method": method,
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "scheme": "http",
        "server": ("127.0.0.1", 8480),
        "client": ("127.0.0.1", 1),
        "root_path": "",
        "http_version": "1.1",
    }
