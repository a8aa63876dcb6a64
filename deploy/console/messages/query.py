"""Pure: the query of a page of records, parsed from its address and written into the addresses of neighbouring
pages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from urllib.parse import urlencode

import regex

from kraft.client.core.records import ConsumerRecord
from kraft.deploy.console.messages.decoding import Form

PAGE_RECORDS = 50
PAGE_RECORDS_MAX = 500
PATTERN_LETTERS_MAX = 200
OFFSET_MAX = (1 << 63) - 1
MATCHED_BYTES_MAX = 65_536
"""Number of bytes of a key, value or header that a filter searches."""
PATTERN_MS_MAX = 50
"""Time limit in ms for matching a regular expression against one text. It ends excessive backtracking."""
_AGO = re.compile(r"-(\d{1,9})([smhdw])")
_SECONDS = MappingProxyType({"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800})

Cursor = dict[int, int]
"""Type: an offset per partition."""


class BadQuery(Exception):
    """The query is invalid; the text names the given value and the values that are expected."""


class PageStart(StrEnum):
    """Position at which a page of records starts."""

    END = "end"
    BEGIN = "begin"
    OFFSET = "offset"
    TIME = "time"
    AFTER = "after"
    BEFORE = "before"


@dataclass(frozen=True, slots=True)
class Filter:
    """Filter of records: `text` must occur in the key, the value or a header, literally or as a regular expression."""

    text: str = ""
    is_regex: bool = False
    part: str = "any"

    def compiled(self) -> regex.Pattern[str] | None:
        """Return the compiled filter; None if every record matches. Raise BadQuery for an invalid regular
        expression."""
        if not self.text:
            return None
        if len(self.text) > PATTERN_LETTERS_MAX:
            raise BadQuery(f"the filter is longer than {PATTERN_LETTERS_MAX} letters")
        try:
            return regex.compile(self.text if self.is_regex else regex.escape(self.text, special_only=True))
        except (regex.error, RecursionError, OverflowError) as problem:
            raise BadQuery(f"{self.text!r} is not a regular expression: {problem}") from None

    def matches(self, pattern: regex.Pattern[str] | None, record: ConsumerRecord) -> bool:
        """Whether the value matches; null never matches. Raise BadQuery if the regular expression takes too long."""
        if pattern is None:
            return True
        try:
            return any(pattern.search(text, timeout=PATTERN_MS_MAX / 1_000) for text in self._texts(record))
        except TimeoutError:
            raise BadQuery(
                f"the regular expression {self.text!r} took more than {PATTERN_MS_MAX} ms with the record at "
                f"{record.topic}-{record.partition}, offset {record.offset}: write it without nested repetition, "
                "such as a+ for (a+)+"
            ) from None

    def _texts(self, record: ConsumerRecord) -> list[str]:
        found: list[bytes | None] = []
        if self.part in ("any", "key"):
            found.append(record.key)
        if self.part in ("any", "value"):
            found.append(record.value)
        texts = [_searchable(data) for data in found if data is not None]
        if self.part in ("any", "header"):
            texts += [f"{name}={_searchable(value or b'')}" for name, value in record.headers]
        return texts


PARTS = ("any", "key", "value", "header")


@dataclass(frozen=True, slots=True)
class Query:
    """A page of a topic's records. If `partition` is None, the page shows all partitions. `cursor` has start offsets if
    `start` is AFTER, and end offsets if it is BEFORE."""

    topic: str
    partition: int | None = None
    where: PageStart = PageStart.END
    offset: int = 0
    time: str = ""
    cursor: tuple[tuple[int, int], ...] = ()
    only: Filter = Filter()
    form: Form = Form.AUTO
    count: int = PAGE_RECORDS

    def parameters(self) -> str:
        """Return the query string of this page's address."""
        given = {
            "partition": "" if self.partition is None else str(self.partition),
            "where": "" if self.where is PageStart.END else self.where.value,
            "offset": str(self.offset) if self.where is PageStart.OFFSET else "",
            "time": self.time if self.where is PageStart.TIME else "",
            "cursor": format_cursor(dict(self.cursor)) if self.where in (PageStart.AFTER, PageStart.BEFORE) else "",
            "filter": self.only.text,
            "regex": "1" if self.only.is_regex else "",
            "part": "" if self.only.part == "any" else self.only.part,
            "form": "" if self.form is Form.AUTO else self.form.value,
            "count": "" if self.count == PAGE_RECORDS else str(self.count),
        }
        return urlencode({name: value for name, value in given.items() if value})

    def at(self, where: PageStart, cursor: Cursor | None = None) -> Query:
        """Return the same query with another start."""
        return replace(self, where=where, cursor=tuple(sorted((cursor or {}).items())))


def parse_query(topic: str, given: Mapping[str, str]) -> Query:
    """Parse the parameters of an address. Raise BadQuery that names the first wrong parameter."""
    part = given.get("part") or "any"
    if part not in PARTS:
        raise BadQuery(f"part={part}: expected one of {', '.join(PARTS)}")
    partition = given.get("partition", "")
    offset = given.get("offset", "")
    where = _where(given.get("where") or ("offset" if offset else "end"))
    return Query(
        topic,
        None if partition in ("", "all") else _number("partition", partition, 0, 2**31 - 1),
        where,
        _number("offset", offset or "0", 0, OFFSET_MAX) if where is PageStart.OFFSET else 0,
        given.get("time", "").strip(),
        tuple(sorted(parse_cursor(given.get("cursor", "")).items())),
        Filter(given.get("filter", ""), given.get("regex", "") not in ("", "0"), part),
        _form(given.get("form") or "auto"),
        _number("count", given.get("count") or str(PAGE_RECORDS), 1, PAGE_RECORDS_MAX),
    )


def format_cursor(cursor: Cursor) -> str:
    return ".".join(f"{partition}-{offset}" for partition, offset in sorted(cursor.items()))


def parse_cursor(text: str) -> Cursor:
    """Parse partitions and offsets such as `0-17.1-4`. Raise BadQuery for anything else."""
    if not re.fullmatch(r"(\d{1,10}-\d{1,19}(\.\d{1,10}-\d{1,19})*)?", text, re.ASCII):
        raise BadQuery("cursor: expected PARTITION-OFFSET, joined by dots")
    pairs = (entry.split("-") for entry in text.split(".") if entry)
    return {int(partition): min(int(offset), OFFSET_MAX) for partition, offset in pairs}


def parse_time_ms(text: str, now_ms: int) -> int:
    """Parse a time: ISO 8601 (UTC if it has no zone), milliseconds since 1970, or a time before now: -90s, -15m, -2h,
    -1d."""
    if match := _AGO.fullmatch(text):
        return max(now_ms - int(match[1]) * _SECONDS[match[2]] * 1_000, 0)
    if text.isascii() and text.isdigit() and len(text) > 4:
        return min(int(text), OFFSET_MAX)
    try:
        found = datetime.fromisoformat(text)
        time_ms = round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000)
    except (ValueError, OverflowError):
        raise BadQuery(
            f"{text!r} is not a time: expected 2026-11-21T10:00:00, milliseconds since 1970, or -1h"
        ) from None
    if time_ms < 0:
        raise BadQuery(f"{text!r} is before 1970, and no record is that old")
    return time_ms


def format_time(time_ms: int) -> str:
    """Return a time in UTC with milliseconds; empty for None, and the number of milliseconds beyond the year 9999."""
    if time_ms < 0:
        return ""
    if time_ms > 253_402_300_799_000:
        return f"{time_ms} ms"
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1_000:03}"


def _searchable(data: bytes) -> str:
    head = data[:MATCHED_BYTES_MAX]
    try:
        return head.decode()
    except UnicodeDecodeError:
        return head.decode("latin-1")


def _number(name: str, text: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
        raise BadQuery(f"{name}={text}: expected a number from {least} to {most}")
    return int(text)


def _where(text: str) -> PageStart:
    try:
        return PageStart(text)
    except ValueError:
        raise BadQuery(f"where={text}: expected one of {', '.join(PageStart)}") from None


def _form(text: str) -> Form:
    try:
        return Form(text)
    except ValueError:
        raise BadQuery(f"form={text}: expected one of {', '.join(Form)}") from None
