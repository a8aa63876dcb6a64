"""Helpers: a console for a real cluster, in this process and without a browser."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import httpx
from starlette.applications import Starlette

from kraft.deploy.console.app import make_app
from tests.deploy.console.plain_settings import plain_settings

URL = "http://127.0.0.1:8480"


class ConsoleClient:
    """An HTTP client of the console. `text` has the words of the page, separated by single spaces."""

    def __init__(self, client: httpx.AsyncClient, app: Starlette) -> None:
        self.client = client
        self.app = app

    async def page(self, path: str, *, status: int = 200) -> str:
        answer = await self.client.get(path)
        assert answer.status_code == status, answer.text
        return text_of(answer.text)

    async def post(self, path: str, *, origin: str = URL, **fields: str) -> httpx.Response:
        data = {"token": self.app.state.token, **fields}
        return await self.client.post(path, data=data, headers={"Origin": origin})


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


@asynccontextmanager
async def console(bootstrap: str, **settings: Any) -> AsyncIterator[ConsoleClient]:
    """Run a console whose cluster view has finished its first round."""
    app = make_app(plain_settings(bootstrap, **settings))
    async with app.router.lifespan_context(app):
        await app.state.view.refresh()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=URL) as client:
            yield ConsoleClient(client, app)
