"""Which records are shown: regular expressions over key, value and headers. All that are given must match.

Expressions are over characters where the bytes are UTF-8 (`.` is one letter, also where that is two bytes), and over
bytes where they are not (`\\xff` is that byte).
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
    """`headers`: the name, and what its value must match (None: the name is enough)."""

    key: re.Pattern[str] | None = None
    value: re.Pattern[str] | None = None
    headers: tuple[tuple[str, re.Pattern[str] | None], ...] = ()

    def matches(self, record: ConsumerRecord) -> bool:
        """Whether the record is wanted. An expression may match anywhere; null matches none."""
        return (
            _finds(self.key, record.key)
            and _finds(self.value, record.value)
            and all(
                any(name == wanted and _finds(pattern, value) for name, value in record.headers)
                for wanted, pattern in self.headers
            )
        )


def compile_filter(key: str | None, value: str | None, headers: Iterable[str]) -> RecordFilter:
    """From regular expressions; headers as `NAME` or `NAME=REGEX`. CommandFailed for one that does not compile."""
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
