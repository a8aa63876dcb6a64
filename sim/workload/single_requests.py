"""One request, sent at most once: for clients of whose requests it must be known what came of them."""

from __future__ import annotations

from typing import Any

from kraft.client.cluster import Cluster
from kraft.client.connections import CONNECTION_FAILURES, Link
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey


class NoClearAnswer(Exception):
    """The request may have been carried out, or may be yet."""


class NotSent(NoClearAnswer):
    """It never left its client."""


async def ask_any_once(client: Cluster, key: ApiKey, *, timeout_ms: int, **fields: Any) -> Any:
    """The answer of whichever broker can be reached first. NoClearAnswer if it gives none."""
    for address in client.candidates():
        try:
            link = await client.links.get(address, "admin", timeout_ms=timeout_ms)
        except CONNECTION_FAILURES:
            continue
        return await ask_once(link, key, timeout_ms=timeout_ms, **fields)
    raise NotSent


async def ask_once(link: Link, key: ApiKey, *, timeout_ms: int, **fields: Any) -> Any:
    """The answer at the other end of `link`. NoClearAnswer if there is none."""
    request = messages.build(messages.request_class(key), **fields)
    try:
        return await link.request(key, request, timeout_ms=timeout_ms)
    except CONNECTION_FAILURES as failure:
        raise NoClearAnswer from failure
