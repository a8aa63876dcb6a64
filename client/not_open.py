"""Placeholders for a client's parts until its `async with` has begun. Any use of a placeholder raises an error.

Because the placeholders are replaced when the client opens, an open client pays nothing for the check.
"""

from __future__ import annotations

from typing import Any, NoReturn


class _NotOpen:
    def __init__(self, client: str) -> None:
        self._client = client

    def __getattr__(self, name: str) -> NoReturn:
        raise not_open_error(self._client)


def not_open(client: str) -> Any:
    """Return a placeholder for any part of this kind of client (such as "Producer"). It raises RuntimeError at the
    first use."""
    return _NotOpen(client)


def not_open_error(client: str) -> RuntimeError:
    return RuntimeError(f"{client} is open only within `async with {client}(...) as {client.lower()}:`")
