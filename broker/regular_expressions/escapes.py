"""Escapes: a backslash and what follows it, outside and within brackets.

Each function reads at a position and returns what it found with the position behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kraft.broker.regular_expressions.characters import (
    CODE_POINT_MAX,
    PERL_CLASSES,
    CharacterSet,
    as_written,
    named_property,
)
from kraft.broker.regular_expressions.nodes import InvalidExpression

_CONTROLS: Mapping[str, int] = MappingProxyType({"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11})
_OCTAL = frozenset("01234567")
_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")


def read_class_escape(text: str, position: int, *, ignores_case: bool) -> tuple[CharacterSet, int] | None:
    r"""Read an escape that stands for a set of characters, such as \d or \p{Lu}. None if it is another escape."""
    letter = text[position + 1 : position + 2]
    if letter and letter.lower() in PERL_CLASSES:
        found = PERL_CLASSES[letter.lower()]
        return as_written(found, is_negated=letter.isupper(), ignores_case=ignores_case), position + 2
    if letter not in ("p", "P"):
        return None
    name, end = _property_name(text, position)
    is_negated = (letter == "P") != name.startswith("^")
    characters = named_property(name.removeprefix("^"))
    if characters is None:
        reason = f"unknown Unicode property {name!r} (general categories such as L or Lu are supported)"
        raise InvalidExpression(text, position, reason)
    return as_written(characters, is_negated=is_negated, ignores_case=ignores_case), end


def _property_name(text: str, position: int) -> tuple[str, int]:
    start = position + 2
    if not text.startswith("{", start):
        if start >= len(text):
            raise InvalidExpression(text, position, "missing name of a Unicode property")
        return text[start], start + 1
    end = text.find("}", start)
    if end < 0:
        raise InvalidExpression(text, position, 'missing "}" of a Unicode property')
    return text[start + 1 : end], end + 1


def read_character_escape(text: str, position: int) -> tuple[int, int]:
    """Read an escape that stands for one character, and return its code point."""
    letter = text[position + 1 : position + 2]
    if not letter:
        raise InvalidExpression(text, position, "trailing backslash")
    if letter in _CONTROLS:
        return _CONTROLS[letter], position + 2
    if letter == "x":
        return _hexadecimal(text, position)
    if letter == "0" or (letter in _OCTAL and text[position + 2 : position + 3] in _OCTAL):
        end = position + 2
        while end < position + 4 and text[end : end + 1] in _OCTAL:
            end += 1
        return int(text[position + 1 : end], 8), end
    if letter.isdigit():
        raise InvalidExpression(text, position, "back-references are not supported")
    if letter.isascii() and not letter.isalnum():
        return ord(letter), position + 2
    raise InvalidExpression(text, position, f"unknown escape \\{letter}")


def _hexadecimal(text: str, position: int) -> tuple[int, int]:
    start = position + 2
    if text.startswith("{", start):
        end = text.find("}", start)
        digits, behind = text[start + 1 : end] if end >= 0 else "", end + 1
    else:
        digits, behind = text[start : start + 2], start + 2
        digits = digits if len(digits) == 2 else ""
    if not digits or not _HEXADECIMAL.issuperset(digits) or int(digits, 16) > CODE_POINT_MAX:
        raise InvalidExpression(text, position, "invalid hexadecimal escape (write \\x7f or \\x{10ffff})")
    return int(digits, 16), behind
