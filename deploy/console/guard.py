"""Protection against requests from other sites, and the security headers of every response.

A page of another site can make a browser send requests here. So a request that changes something must come from a page
of the console (Sec-Fetch-Site, Origin) and carry a token that only its pages contain. Against DNS rebinding (a foreign
name that resolves to this address), the Host header is checked while the console listens on loopback only.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_FIELD = "token"
FORM_BYTES_MAX = 1_048_576
FORM_FIELDS_MAX = 1_000
FORM = "kraft.form"
SAFE_METHODS = frozenset({"GET", "HEAD"})
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),  # with the policy no-referrer, browsers would send forms with Origin: null
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)


def new_token() -> str:
    """Return a new token for this process of the console."""
    return secrets.token_urlsafe(24)


def is_loopback(host: str) -> bool:
    """Whether this name or address is on the loopback interface."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(host_header: str) -> str:
    """Return the name in a Host header, without the port."""
    if host_header.startswith("["):
        return host_header.partition("]")[0] + "]"
    return host_header.rpartition(":")[0] if ":" in host_header else host_header


def decide_refusal(headers: Mapping[str, str], *, allow_changes: bool) -> str | None:
    """Return why a request that changes something is rejected because of its headers; None if it is accepted."""
    if not allow_changes:
        return "this console is read-only: start it with --allow-changes to change anything"
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is None and origin is None:
        return "the browser does not report which page sent this (no Sec-Fetch-Site, no Origin): use a newer one"
    if site is not None and site != "same-origin":
        return f"this request comes from another site (Sec-Fetch-Site: {site})"
    own = headers.get("host", "")
    if origin is not None and origin not in (f"http://{own}", f"https://{own}"):
        return f"this request comes from another site (Origin: {origin})"
    return None


class Guard:
    """The outermost layer of the application, which checks requests. It puts the fields of a form, without the token,
    into `scope[FORM]`."""

    def __init__(self, app: ASGIApp, *, token: str, allow_changes: bool, loopback_only: bool) -> None:
        self._app = app
        self._token = token
        self._allow_changes = allow_changes
        self._loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = await self._refusal(scope, receive)
        if refusal is not None:
            await PlainTextResponse(f"refused: {refusal}\n", status_code=403)(scope, receive, _with_headers(send))
            return
        await self._app(scope, receive, _with_headers(send))

    async def _refusal(self, scope: Scope, receive: Receive) -> str | None:
        headers = Headers(scope=scope)
        name = host_name(headers.get("host", ""))
        if self._loopback_only and not is_loopback(name):
            return f"the Host header names {name or 'nobody'}; this console listens on loopback only: use 127.0.0.1"
        if scope["method"] in SAFE_METHODS:
            return None
        why = decide_refusal(headers, allow_changes=self._allow_changes)
        if why is not None:
            return why
        body = await _read_body(receive)
        if body is None:
            return f"a form of more than {FORM_BYTES_MAX} bytes"
        try:
            form = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX))
        except ValueError:
            return "this is not a form"
        if not hmac.compare_digest(form.pop(TOKEN_FIELD, "").encode(), self._token.encode()):
            return "the page is of an earlier run of the console: reload it"
        scope[FORM] = form
        return None


async def _read_body(receive: Receive) -> bytes | None:
    """Read the body. Return None if it is too long or the client has disconnected."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += bytes(message.get("body", b""))
        if len(body) > FORM_BYTES_MAX:
            return None
        if not message.get("more_body", False):
            return body


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS:
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await send(message)

    return send_with_headers
