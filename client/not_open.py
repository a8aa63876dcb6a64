"""What stands in the place of a client's parts until its `async with` has begun: any use of it says so.

A value in place of the part, so that an open client pays nothing for it.
"""

from __future__ import annotations

from typing import Any, NoReturn


class _NotOpen:
    def __init__(self, client: str) -> None:
        self._client = client

    def __getattr__(self, name: str) -> NoReturn:
        raise not_open_error(self._client)


def not_open(client: str) -> Any:
    """In the place of any part of this client ("Producer"): RuntimeError at the first use."""
    return _NotOpen(client)


def not_open_error(client: str) -> RuntimeError:
    return RuntimeError(f"{client} is open only within `async with {client}(...) as {client.lower()}:`")
