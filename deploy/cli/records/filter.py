r"""Filter of printed records: regular expressions over key, value and headers. A record must match all given
expressions.

An expression is matched against characters if the bytes are UTF-8 (`.` matches one letter, even if it takes two bytes),
and against bytes if they are not (`\xff` matches that byte).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed
from kraft.deploy.cli.records.value_text import searchable, typed_bytes

if TYPE_CHECKING:
    from kraft.client.core.records import ConsumerRecord


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Compiled filter. `headers` has pairs of a header's name and the expression for its value. If the expression is
    None, any value matches."""

    key: re.Pattern[str] | None = None
    value: re.Pattern[str] | None = None
    headers: tuple[tuple[str, re.Pattern[str] | None], ...] = ()

    def matches(self, record: ConsumerRecord) -> bool:
        """Whether the record passes the filter. An expression may match anywhere in the text; null matches none."""
        return (
            _finds(self.key, record.key)
            and _finds(self.value, record.value)
            and all(
                any(name == wanted and _finds(pattern, value) for name, value in record.headers)
                for wanted, pattern in self.headers
            )
        )


def compile_filter(key: str | None, value: str | None, headers: Iterable[str]) -> RecordFilter:
    """Compile regular expressions into a filter. Headers have the form `NAME` or `NAME=REGEX`. Raise CommandFailed for
    an invalid expression."""
    compiled = []
    for entry in headers:
        name, equals, pattern = entry.partition("=")
        compiled.append((name, _compile("--header", pattern) if equals else None))
    return RecordFilter(_compile("--key", key), _compile("--value", value), tuple(compiled))


def _compile(option: str, pattern: str | None) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    try:
        return re.compile(searchable(typed_bytes(pattern)))
    except re.error as problem:
        raise CommandFailed(f"{option} {pattern}: not a regular expression: {problem}", code=EXIT_USAGE) from None


def _finds(pattern: re.Pattern[str] | None, data: bytes | None) -> bool:
    return pattern is None or (data is not None and pattern.search(searchable(data)) is not None)
