"""Pure: division of long lists into pages, done on the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlencode

T = TypeVar("T")

PAGE_ROWS = 100


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list that has `total` rows in all; `number` counts pages from 1."""

    rows: Sequence[T]
    number: int
    count: int
    total: int
    what: str
    """Noun for one row, such as "topic"."""

    def query(self, query: Mapping[str, str], number: int) -> str:
        """Return the query string of another page of the same list."""
        return urlencode({**{k: v for k, v in query.items() if k != "notice"}, "page": number})


def cut(rows: Sequence[T], wanted: str, what: str, *, size: int = PAGE_ROWS) -> Page[T]:
    """Return the requested page of the rows, or the nearest page that exists."""
    count = max(1, -(-len(rows) // size))
    number = min(max(1, int(wanted)), count) if wanted.isdecimal() and len(wanted) < 10 else 1
    return Page(rows[(number - 1) * size : number * size], number, count, len(rows), what)
