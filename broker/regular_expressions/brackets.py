"""A bracket: [abc], [^a-z], [[:digit:]_], with escapes."""

from __future__ import annotations

from kraft.broker.regular_expressions.characters import (
    POSIX_CLASSES,
    CharacterRange,
    CharacterSet,
    as_written,
)
from kraft.broker.regular_expressions.escapes import read_character_escape, read_class_escape
from kraft.broker.regular_expressions.nodes import InvalidExpression


def read_bracket(text: str, start: int, *, ignores_case: bool) -> tuple[CharacterSet, int]:
    """Read the bracket that begins at `start`. Return its characters and the position behind it."""
    position = start + 1
    is_negated = text.startswith("^", position)
    position += is_negated
    items: list[CharacterRange | CharacterSet] = []
    while not text.startswith("]", position) or not items:
        if position >= len(text):
            raise InvalidExpression(text, start, 'missing "]" of the bracket')
        found = _read_class(text, position, ignores_case=ignores_case)
        if found is None:
            item, position = _read_range(text, start, position)
            items.append(item)
        else:
            items.append(found[0])
            position = found[1]
    return CharacterSet(tuple(items), is_negated, ignores_case), position + 1


def _read_class(text: str, position: int, *, ignores_case: bool) -> tuple[CharacterSet, int] | None:
    """Read a class within a bracket. None if the next item is a character or a range."""
    if text.startswith("\\", position):
        return read_class_escape(text, position, ignores_case=ignores_case)
    end = text.find(":]", position + 2) if text.startswith("[:", position) else -1
    if end < 0:
        return None
    name = text[position + 2 : end]
    characters = POSIX_CLASSES.get(name.removeprefix("^"))
    if characters is None:
        raise InvalidExpression(text, position, f"unknown class [:{name}:]")
    return as_written(characters, is_negated=name.startswith("^"), ignores_case=ignores_case), end + 2


def _read_range(text: str, start: int, position: int) -> tuple[CharacterRange, int]:
    """Read one character, or a range such as a-z. A hyphen before the closing bracket is a character."""
    first, end = _read_character(text, start, position)
    if not text.startswith("-", end) or text.startswith("]", end + 1):
        return CharacterRange(first, first), end
    if end + 1 >= len(text):
        raise InvalidExpression(text, start, 'missing "]" of the bracket')
    last, end = _read_character(text, start, end + 1)
    if last < first:
        raise InvalidExpression(text, position, f"reversed range {text[position:end]!r}")
    return CharacterRange(first, last), end


def _read_character(text: str, start: int, position: int) -> tuple[int, int]:
    if text.startswith("\\", position):
        return read_character_escape(text, position)
    return ord(text[position]), position + 1
