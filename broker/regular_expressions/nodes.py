"""The syntax tree of a regular expression, and the error for a text that has none.

Whether a repetition is greedy and what a group captures is not kept: neither changes whether a whole name matches.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kraft.broker.regular_expressions.characters import CharacterSet

SHOWN_MAX = 200
"""Maximum number of characters of the expression in an error."""


class InvalidExpression(Exception):
    """The text is no regular expression, or one that is too large."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        """`position` is the character of `text`, from 0, at which the error is."""
        super().__init__(f"{reason} (position {position} of {_shortened(text)!r})")


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


class AssertionKind(Enum):
    """What holds at a place between two characters."""

    TEXT_START = "text start"
    TEXT_END = "text end"
    LINE_START = "line start"
    LINE_END = "line end"
    WORD_BOUNDARY = "word boundary"
    NO_WORD_BOUNDARY = "no word boundary"


class Empty(NamedTuple):
    """Matches the empty text."""


class Characters(NamedTuple):
    """Matches one character of the set."""

    characters: CharacterSet


class Assertion(NamedTuple):
    """Matches the empty text where the assertion holds."""

    kind: AssertionKind


class Concatenation(NamedTuple):
    parts: tuple[SyntaxNode, ...]


class Alternation(NamedTuple):
    branches: tuple[SyntaxNode, ...]


class Repetition(NamedTuple):
    """Matches `node` at least `low` times and at most `high` times; without a limit if `high` is None."""

    node: SyntaxNode
    low: int
    high: int | None


SyntaxNode = Empty | Characters | Assertion | Concatenation | Alternation | Repetition


def concatenation(parts: list[SyntaxNode]) -> SyntaxNode:
    """Return the concatenation of these nodes, in its simplest form."""
    kept = tuple(part for part in parts if not isinstance(part, Empty))
    if len(kept) == 1:
        return kept[0]
    return Concatenation(kept) if kept else Empty()
