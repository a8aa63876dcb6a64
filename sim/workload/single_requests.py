"""Sends one request at most once, for clients that must know whether each request may have been carried out."""

from __future__ import annotations

from typing import Any

from kraft.client.cluster import Cluster
from kraft.client.connections import CONNECTION_FAILURES, Link
from kraft.wire import messages
from kraft.wire.api_keys import ApiKey


class NoClearAnswer(Exception):
    """Raised when no clear answer came: the request may have been carried out, or may still be."""


class NotSent(NoClearAnswer):
    """Raised when the request was certainly not sent."""


async def ask_any_once(client: Cluster, key: ApiKey, *, timeout_ms: int, **fields: Any) -> Any:
    """Send a request to the first broker that can be reached; return its response. Raises NoClearAnswer if the broker
    gives none."""
    for address in client.candidates():
        try:
            link = await client.links.get(address, "admin", timeout_ms=timeout_ms)
        except CONNECTION_FAILURES:
            continue
        return await ask_once(link, key, timeout_ms=timeout_ms, **fields)
    raise NotSent


async def ask_once(link: Link, key: ApiKey, *, timeout_ms: int, **fields: Any) -> Any:
    """Send a request over `link`; return the response. Raises NoClearAnswer if there is none."""
    request = messages.build(messages.request_class(key), **fields)
    try:
        return await link.request(key, request, timeout_ms=timeout_ms)
    except CONNECTION_FAILURES as failure:
        raise NoClearAnswer from failure
